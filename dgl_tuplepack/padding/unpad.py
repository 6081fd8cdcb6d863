"""From a padded batch back to the graphs in it."""

from __future__ import annotations

from typing import Any

from dgl_tuplepack.padding.batch import PaddedBatch, new_graph


def unpad(batch: PaddedBatch, with_labels: bool = False) -> list[Any]:
    """List the real graphs of a batch, with their features, in order.

    Parameters
    ----------
    batch
        What `PaddedCollate` returned.
    with_labels
        Give pairs (graph, label) instead of graphs.

    Returns
    -------
    list
        DGLGraphs (or pairs) whose features and labels are views of the batch.

    Examples
    --------
    >>> import dgl
    >>> from dgl_tuplepack import Limits, PaddedCollate
    >>> pair = dgl.graph(([0, 1], [1, 0]))
    >>> [g.num_nodes() for g in unpad(PaddedCollate(Limits(6, 8, graphs=4), example=pair)([pair, pair]))]
    [2, 2]
    """
    number = batch.num_real_graphs
    if not number:
        return []
    # Counts of graphs that were split off the padding; the padding graph itself is what is left over.
    nodes = {t: counts[:number].tolist() for t, counts in batch._nodes_per_graph.items()}
    edges = {t: counts[:number].tolist() for t, counts in batch._edges_per_graph.items()}
    first_node, first_edge = dict.fromkeys(nodes, 0), dict.fromkeys(edges, 0)
    items = []
    for index in range(number):
        ends = {}
        for t in batch.edge_types:
            span = slice(first_edge[t], first_edge[t] + edges[t][index])
            ends[t] = batch._src[t][span] - first_node[t[0]], batch._dst[t][span] - first_node[t[2]]
        graph = new_graph(ends, {t: counts[index] for t, counts in nodes.items()})
        for node_type, node_features in batch._node_features.items():
            span = slice(first_node[node_type], first_node[node_type] + nodes[node_type][index])
            graph.nodes[node_type].data.update({name: value[span] for name, value in node_features.items()})
            first_node[node_type] = span.stop
        for edge_type, edge_features in batch._edge_features.items():
            span = slice(first_edge[edge_type], first_edge[edge_type] + edges[edge_type][index])
            graph.edges[edge_type].data.update({name: value[span] for name, value in edge_features.items()})
            first_edge[edge_type] = span.stop
        items.append((graph, _label(batch, index)) if with_labels else graph)
    return items


def _label(batch: PaddedBatch, index: int) -> Any:
    if isinstance(batch.labels, dict):
        return {name: value[index] for name, value in batch.labels.items()}
    return None if batch.labels is None else batch.labels[index]
