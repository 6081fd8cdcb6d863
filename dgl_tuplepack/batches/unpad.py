"""Split a padded batch into its graphs."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dgl_tuplepack._core.checks import true_or_false
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.collate import in_order_of_graphs
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.build import build_item
from dgl_tuplepack.graphs.schema import as_label


def unpad(batch: PaddedBatch, with_labels: bool = False) -> list[Any]:
    """Return the real graphs of a batch, with their features, in the order of the batch.

    Features that were written into ``batch.graph`` are included. Features that were deleted from it are left out.

    Parameters
    ----------
    batch
        A batch from `PaddedCollate` or a store.
    with_labels
        Return pairs (graph, label) instead of graphs.

    Returns
    -------
    list
        DGLGraphs (or pairs), or dicts of DGLGraphs for named graphs, with the index type that they had before padding.
        Features and labels are views of the batch, with two exceptions. Features of sorted edges, and of nodes tied to
        them, are copies in the order of the original graph. Features and labels that hold node or edge indices are
        copies, renumbered from 0 within each graph.

    Raises
    ------
    SchemaError
        `batch` is not a padded batch, or the number of nodes or edges of its graph was changed in place.

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
    batch.sync_with_graph()
    content = in_order_of_graphs(batch)
    # counts[t][i]: number of nodes (edges) of type t in the real graph i.
    per_type: dict[Any, Tensor] = {**batch.nodes_per_graph_by_type, **batch.edges_per_graph_by_type}
    counts = {t: each[:number].tolist() for t, each in per_type.items()}
    src, dst = ({t: ends.to(batch.idtype) for t, ends in each.items()} for each in (content.src, content.dst))
    nodes = {t: _with_targets(batch, "node_feature", t, own) for t, own in content.node_features.items()}
    edges = {t: _with_targets(batch, "edge_feature", t, own) for t, own in content.edge_features.items()}
    labels = _with_targets(batch, "label", None, content.labels)
    # first[t]: first node (edge) of type t of graph `index`. spans[t]: slice of that graph's nodes (edges) of type t.
    first = dict.fromkeys(counts, 0)
    items = []
    for index in range(number):
        spans = {t: slice(first[t], first[t] + each[index]) for t, each in counts.items()}
        graph = build_item(
            batch.graph_names,
            {e: (src[e][spans[e]] - first[e[0]], dst[e][spans[e]] - first[e[2]]) for e in batch.edge_types},
            {t: counts[t][index] for t in batch.node_types},
            {t: _rows(own, spans[t], first) for t, own in nodes.items()},
            {t: _rows(own, spans[t], first) for t, own in edges.items()},
        )
        items.append((graph, as_label(_rows(labels, index, first))) if with_labels else graph)
        first = {t: span.stop for t, span in spans.items()}
    return items


# Name, values, and the type that the values index (None if they are not indices).
_Columns = list[tuple[str, Tensor, Any]]


def _with_targets(batch: PaddedBatch, content: str, t: Any, columns: dict[str, Tensor]) -> _Columns:
    """Return each feature of the type t, or each label, with the type that it indexes."""
    return [(name, values, batch.indexed_by((content, t, name), values)) for name, values in columns.items()]


def _rows(columns: _Columns, rows: slice | int, first: dict[Any, int]) -> dict[str, Tensor]:
    """Return some rows of all columns; subtract ``first[t]`` from indices of the type t, so that they count from 0."""
    return {name: values[rows] if target is None else values[rows] - first[target] for name, values, target in columns}
