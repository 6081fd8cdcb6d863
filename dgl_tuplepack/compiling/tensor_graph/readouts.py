"""DGL's readouts on a TensorGraph: one result for each graph of a batch, from its nodes or edges."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dgl_tuplepack._core.checks import choice
from dgl_tuplepack.compiling.tensor_graph.dispatch import replaces
from dgl_tuplepack.compiling.tensor_graph.graph import TensorGraph
from dgl_tuplepack.compiling.tensor_graph.groups import Groups
from dgl_tuplepack.compiling.tensor_graph.messages import REDUCERS
from dgl_tuplepack.errors import SchemaError


class _Rows(NamedTuple):
    """Nodes or edges of a type: their groups by graph, their number in each graph, and their features."""

    groups: Groups
    counts: Tensor
    features: Any


def _nodes(graph: TensorGraph, ntype: str | None) -> _Rows:
    counts = graph.batch_num_nodes(ntype)
    return _Rows(Groups(graph.node_graph_slots(ntype), counts.shape[0]), counts, graph.nodes[ntype].data)


def _edges(graph: TensorGraph, etype: Any) -> _Rows:
    counts = graph.batch_num_edges(etype)
    return _Rows(Groups(graph.edge_graph_slots(etype), counts.shape[0]), counts, graph.edges[etype].data)


@replaces("dgl.readout", "readout_nodes", graph_type=TensorGraph)
def readout_nodes(
    graph: TensorGraph, feat: str, weight: str | None = None, *, op: str = "sum", ntype: str | None = None
) -> Tensor:
    """Return the sum, mean, max or min of a feature, times feature `weight` if given, over the nodes of each graph."""
    return _readout(_nodes(graph, ntype), feat, weight, op)


@replaces("dgl.readout", "readout_edges", graph_type=TensorGraph)
def readout_edges(
    graph: TensorGraph, feat: str, weight: str | None = None, *, op: str = "sum", etype: Any = None
) -> Tensor:
    """Return the sum, mean, max or min of a feature, times feature `weight` if given, over the edges of each graph."""
    return _readout(_edges(graph, etype), feat, weight, op)


def _readout(rows: _Rows, feat: str, weight: str | None, op: str) -> Tensor:
    choice("readout", op, REDUCERS, SchemaError)
    values = rows.features[feat]
    if weight is not None:
        values = values * rows.features[weight]
    if op == "mean":
        return rows.groups.mean(values, rows.counts)
    return rows.groups.reduce(values, op)


@replaces("dgl.readout", "softmax_nodes", graph_type=TensorGraph)
def softmax_nodes(graph: TensorGraph, feat: str, *, ntype: str | None = None) -> Tensor:
    """Return the softmax of a feature over the nodes of each graph."""
    rows = _nodes(graph, ntype)
    return rows.groups.softmax(rows.features[feat])


@replaces("dgl.readout", "softmax_edges", graph_type=TensorGraph)
def softmax_edges(graph: TensorGraph, feat: str, *, etype: Any = None) -> Tensor:
    """Return the softmax of a feature over the edges of each graph."""
    rows = _edges(graph, etype)
    return rows.groups.softmax(rows.features[feat])


@replaces("dgl.readout", "broadcast_nodes", graph_type=TensorGraph)
def broadcast_nodes(graph: TensorGraph, graph_feat: Tensor, *, ntype: str | None = None) -> Tensor:
    """Return, for each node, the row of `graph_feat` that belongs to its graph."""
    return _repeated(_nodes(graph, ntype), graph_feat)


@replaces("dgl.readout", "broadcast_edges", graph_type=TensorGraph)
def broadcast_edges(graph: TensorGraph, graph_feat: Tensor, *, etype: Any = None) -> Tensor:
    """Return, for each edge, the row of `graph_feat` that belongs to its graph."""
    return _repeated(_edges(graph, etype), graph_feat)


def _repeated(rows: _Rows, values: Tensor) -> Tensor:
    """Return, for each node or edge, the value of its graph."""
    graphs = rows.groups.number
    if graphs == 1 and values.shape[:1] != (1,):
        # As in DGL, the row of the only graph may come without its first axis.
        values = values.unsqueeze(0)
    if values.shape[:1] != (graphs,):
        raise SchemaError(
            f"a graph feature has shape {tuple(values.shape)}, but there are {graphs} graphs; give a row for each."
        )
    return rows.groups.gather(values)


@replaces("dgl.readout", "topk_nodes", graph_type=TensorGraph)
def topk_nodes(
    graph: TensorGraph,
    feat: str,
    k: int,
    *,
    descending: bool = True,
    sortby: int | None = None,
    ntype: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the `k` largest node features of each graph, ``[B, k, D]``, and the indices of their nodes.

    Features are compared by their column `sortby`; if it is None, each column is sorted separately. If `descending` is
    false, return the `k` smallest features. Indices begin with 0 in each graph.
    """
    return _topk(_nodes(graph, ntype), feat, k, descending, sortby)


@replaces("dgl.readout", "topk_edges", graph_type=TensorGraph)
def topk_edges(
    graph: TensorGraph, feat: str, k: int, *, descending: bool = True, sortby: int | None = None, etype: Any = None
) -> tuple[Tensor, Tensor]:
    """Return the `k` largest edge features of each graph, ``[B, k, D]``, and the indices of their edges.

    Features are compared by their column `sortby`; if it is None, each column is sorted separately. If `descending` is
    false, return the `k` smallest features. Indices begin with 0 in each graph.
    """
    return _topk(_edges(graph, etype), feat, k, descending, sortby)


def _topk(rows: _Rows, feat: str, k: int, descending: bool, sortby: int | None) -> tuple[Tensor, Tensor]:
    """Return the `k` largest (or smallest) rows of each graph, and their indices in the graph, as in `topk_nodes`."""
    values = rows.features[feat]
    if values.dim() != 2:
        raise SchemaError(f"topk needs a feature with two axes, but {feat!r} has {values.dim()}.")
    # keys: [rows, D] or [rows, 1].
    keys = values.detach() if sortby is None else values.detach()[:, sortby].unsqueeze(1)
    # An extra last row in each: `chosen` may read on after the end of `order`, and `values` may have no rows.
    order = torch.nn.functional.pad(_sorted_in_graphs(keys, rows.groups, descending), (0, 0, 0, 1))
    padded = torch.nn.functional.pad(values, (0, 0, 0, 1))
    first_rows = rows.counts.cumsum(0) - rows.counts
    ranks = torch.arange(k, device=values.device)
    # If a graph has fewer than `k` rows, `chosen` reads on into the next graph; ``.where(exists, ...)`` replaces these.
    exists = (ranks < rows.counts.unsqueeze(1)).unsqueeze(2)  # [B, k, 1]
    chosen = order[(first_rows.unsqueeze(1) + ranks).clamp(max=values.shape[0])]  # [B, k, D or 1]
    # As in DGL, rows that a graph lacks get the indices after its last row.
    indices = (chosen - first_rows.view(-1, 1, 1)).where(exists, ranks.unsqueeze(1))
    if sortby is None:
        return padded.gather(0, chosen.flatten(0, 1)).view(chosen.shape).where(exists, 0.0), indices
    return padded[chosen.squeeze(2)].where(exists, 0.0), indices.squeeze(2)


def _sorted_in_graphs(keys: Tensor, graphs: Groups, descending: bool) -> Tensor:
    """Return, for each column of `keys`, the indices of the rows in the order of graphs, and by key in each graph."""
    by_key = keys.argsort(dim=0, stable=True, descending=descending)
    # Sorting by graph is stable, so the rows of each graph stay sorted by key.
    by_graph = graphs.index[by_key].argsort(dim=0, stable=True)
    return by_key.gather(0, by_graph)
