"""From a padded batch back to the graphs in it."""

from __future__ import annotations

from typing import Any

from dgl_tuplepack._checks import true_or_false
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.build import build_graph
from dgl_tuplepack.padding.batch import PaddedBatch
from dgl_tuplepack.padding.sorted_edges import edges_of_graphs


def unpad(batch: PaddedBatch, with_labels: bool = False) -> list[Any]:
    """List the real graphs of a batch, with their features, in order.

    Features that were written into ``batch.graph`` are included; features that were deleted there are not.

    Parameters
    ----------
    batch
        A batch from `PaddedCollate` or a store.
    with_labels
        Return pairs (graph, label) instead of graphs.

    Returns
    -------
    list
        DGLGraphs (or pairs) whose features and labels are views of the batch; edge features of a batch with sorted
        edges are copies, in the order that the edges had in their graph.

    Raises
    ------
    SchemaError
        `batch` is not a padded batch, or nodes or edges were added to or removed from its graph in place.

    Examples
    --------
    >>> import dgl
    >>> from dgl_tuplepack import Limits, PaddedCollate
    >>> pair = dgl.graph(([0, 1], [1, 0]))
    >>> [g.num_nodes() for g in unpad(PaddedCollate(Limits(6, 8, graphs=4), example=pair)([pair, pair]))]
    [2, 2]
    """
    if not isinstance(batch, PaddedBatch):
        raise SchemaError(f"unpad needs a PaddedBatch, but got {type(batch).__name__}; for a DGLGraph use dgl.unbatch.")
    with_labels = true_or_false("with_labels", with_labels)
    number = batch.num_real_graphs
    if not number:
        return []
    batch._exchange_features()
    by_type = {t: edges_of_graphs(batch, t) for t in batch.edge_types}
    # Without the empty slots and the padding graph, which come last.
    nodes = {t: counts[:number].tolist() for t, counts in batch._nodes_per_graph.items()}
    edges = {t: counts[:number].tolist() for t, counts in batch._edges_per_graph.items()}
    first_node, first_edge = dict.fromkeys(nodes, 0), dict.fromkeys(edges, 0)
    items = []
    for index in range(number):
        of_nodes = {t: slice(first_node[t], first_node[t] + counts[index]) for t, counts in nodes.items()}
        of_edges = {t: slice(first_edge[t], first_edge[t] + counts[index]) for t, counts in edges.items()}
        graph = build_graph(
            {
                t: (by_type[t].src[span] - first_node[t[0]], by_type[t].dst[span] - first_node[t[2]])
                for t, span in of_edges.items()
            },
            {t: counts[index] for t, counts in nodes.items()},
            {t: {n: v[of_nodes[t]] for n, v in values.items()} for t, values in batch._node_features.items()},
            {t: {n: v[of_edges[t]] for n, v in edges_of_type.features.items()} for t, edges_of_type in by_type.items()},
        )
        first_node = {t: span.stop for t, span in of_nodes.items()}
        first_edge = {t: span.stop for t, span in of_edges.items()}
        items.append((graph, _label(batch, index)) if with_labels else graph)
    return items


def _label(batch: PaddedBatch, index: int) -> Any:
    if isinstance(batch.labels, dict):
        return {name: value[index] for name, value in batch.labels.items()}
    return None if batch.labels is None else batch.labels[index]
