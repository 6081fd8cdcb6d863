"""From a padded batch back to the graphs in it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dgl_tuplepack._checks import true_or_false
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.joining import build_item
from dgl_tuplepack.graphs.relations import Column
from dgl_tuplepack.padding.batch import PaddedBatch
from dgl_tuplepack.padding.sorted_edges import in_order_of_graphs


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
        DGLGraphs (or pairs), dicts of them for named graphs, whose features and labels are views of the batch; edge
        features of a batch with sorted edges are copies, in the order that the edges had in their graph, and so are
        indices, which count from the first node or edge of their graph again.

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
    content = in_order_of_graphs(batch)
    # Without the empty slots and the padding graph, which come last.
    per_type: dict[Any, Tensor] = {**batch._nodes_per_graph, **batch._edges_per_graph}
    counts = {t: each[:number].tolist() for t, each in per_type.items()}
    first = dict.fromkeys(counts, 0)
    items = []
    for index in range(number):
        rows = {t: slice(first[t], first[t] + each[index]) for t, each in counts.items()}

        def local(key: Column, values: Tensor, rows: slice | int, first: dict[Any, int] = first) -> Tensor:
            """Return rows of a column; indices count from the first node or edge of the graph."""
            target = batch._indexed_by(key, values)
            return values[rows] if target is None else values[rows] - first[target]

        graph = build_item(
            batch.graph_names,
            {
                t: (content.src[t][rows[t]] - first[t[0]], content.dst[t][rows[t]] - first[t[2]])
                for t in batch.edge_types
            },
            {t: counts[t][index] for t in batch.node_types},
            {
                t: {n: local(("node_feature", t, n), v, rows[t]) for n, v in content.node_features[t].items()}
                for t in batch.node_types
            },
            {
                t: {n: local(("edge_feature", t, n), v, rows[t]) for n, v in content.edge_features[t].items()}
                for t in batch.edge_types
            },
        )
        label = {n: local(("label", None, n), v, index) for n, v in content.labels.items()}
        items.append((graph, batch._as_label(label)) if with_labels else graph)
        first = {t: span.stop for t, span in rows.items()}
    return items
