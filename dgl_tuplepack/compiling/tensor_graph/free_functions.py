"""Our versions of functions of DGL, for a TensorGraph or for tensors, under DGL's names and with its arguments."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._core.checks import choice, shown
from dgl_tuplepack.compiling.tensor_graph.dispatch import replaces
from dgl_tuplepack.compiling.tensor_graph.graph import TensorGraph
from dgl_tuplepack.compiling.tensor_graph.messages import DST, EDGE, NEUTRAL, REDUCERS, SRC, at_edges, binary
from dgl_tuplepack.compiling.tensor_graph.structure import Groups, Relation, groups_of
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType

# DGL's letters for source nodes, edges and destination nodes.
_TARGETS = {"u": SRC, "e": EDGE, "v": DST}


@replaces("dgl.ops.spmm", "gspmm", graph_type=TensorGraph)
def gspmm(g: TensorGraph, op: str, reduce_op: str, lhs_data: Tensor | None, rhs_data: Tensor | None) -> Tensor:
    """Compute messages from features of source nodes and edges, and reduce them at the destination nodes.

    As in DGL, the maximum of no messages is -inf and the minimum is inf; in a graph without edges both are 0.
    """
    choice("reduce function", reduce_op, REDUCERS, SchemaError)
    fill = NEUTRAL.get(reduce_op, 0.0) if g.num_edges() else 0.0
    relation = _relation(g)
    return relation.by_dst.reduce(_messages(relation, op, lhs_data, rhs_data, SRC, EDGE), reduce_op, fill)


@replaces("dgl.ops.sddmm", "gsddmm", graph_type=TensorGraph)
def gsddmm(
    g: TensorGraph,
    op: str,
    lhs_data: Tensor | None,
    rhs_data: Tensor | None,
    lhs_target: str = "u",
    rhs_target: str = "v",
) -> Tensor:
    """Compute features of edges from features of their end nodes, or of the edges themselves."""
    for target in (lhs_target, rhs_target):
        choice("target", target, _TARGETS, SchemaError)
    return _messages(_relation(g), op, lhs_data, rhs_data, _TARGETS[lhs_target], _TARGETS[rhs_target])


def _relation(graph: TensorGraph) -> Relation:
    """Return the edges of a graph with one edge type; SchemaError if it has several edge types."""
    return graph.relations[graph.to_canonical_etype(None)]


def _messages(
    relation: Relation, op: str, left: Tensor | None, right: Tensor | None, left_target: int, right_target: int
) -> Tensor:
    operands = []
    if op != "copy_rhs":
        operands.append(at_edges(relation, left_target, _given(left, op, "left")))
    if op != "copy_lhs":
        operands.append(at_edges(relation, right_target, _given(right, op, "right")))
    return binary(op, *operands) if len(operands) == 2 else operands[0]


def _given(values: Tensor | None, op: str, side: str) -> Tensor:
    if values is None:
        raise SchemaError(f"the operation {shown(op)} needs the {side} feature, but it is None; give a tensor.")
    return values


@replaces("dgl.ops.edge_softmax", "edge_softmax", graph_type=TensorGraph)
def edge_softmax(graph: TensorGraph, logits: Any, eids: Any = "__ALL__", norm_by: str = "dst") -> Any:
    """Return the softmax of `logits`, ``[E, ...]``, over the edges that share a destination ("src": source) node.

    If `eids` are given, `logits` has rows for these edges only. With several edge types, logits and results are dicts
    by type, and the edges of all types at a node share one softmax.
    """
    choice("norm_by", norm_by, ("dst", "src"), SchemaError)
    edge_types = graph.canonical_etypes
    # Edges are grouped by their node at one end; edge_type[end] is the type of that node.
    end = 2 if norm_by == "dst" else 0

    def groups_at(edge_type: EdgeType) -> Groups:
        relation = graph.relations[edge_type]
        return relation.by_dst if end == 2 else relation.by_src

    if len(edge_types) == 1:
        groups = groups_at(edge_types[0])
        chosen = groups if isinstance(eids, str) else Groups(groups.index[eids.long()], groups.number)
        return chosen.softmax(logits)
    if not isinstance(eids, str):
        raise SchemaError("a softmax over some of the edges needs a graph of one edge type; leave eids out.")
    given = {graph.to_canonical_etype(name): values for name, values in logits.items()}
    absent = [edge_type for edge_type in edge_types if edge_type not in given]
    if absent:
        raise SchemaError(f"logits lack the edge types {absent}; give a tensor for each of {edge_types}.")
    # Compute all types at once, as in DGL: if the result of a type is not used, its logits still get a gradient.
    # first[t]: index of the first node of type t, if the nodes of all types are numbered together.
    first = dict(zip(graph.ntypes, accumulate(map(graph.num_nodes, graph.ntypes), initial=0), strict=False))
    index = torch.cat([groups_at(edge_type).index + first[edge_type[end]] for edge_type in edge_types])
    values = Groups(index, graph.num_nodes()).softmax(torch.cat([given[edge_type] for edge_type in edge_types]))
    return dict(zip(edge_types, torch.split(values, [graph.num_edges(each) for each in edge_types]), strict=True))


@replaces("dgl.transforms.functional", "reverse", graph_type=TensorGraph)
def reverse(
    g: TensorGraph,
    copy_ndata: bool = True,
    copy_edata: bool = False,
    *,
    share_ndata: bool | None = None,
    share_edata: bool | None = None,
) -> TensorGraph:
    """Return the graph with all edges reversed, in the same order; keep edge features only if `copy_edata` is true."""
    # `share_ndata` and `share_edata` are DGL's old names of `copy_ndata` and `copy_edata`.
    keep_nodes = copy_ndata if share_ndata is None else share_ndata
    keep_edges = copy_edata if share_edata is None else share_edata
    return g.reversed(keep_nodes, keep_edges)


@replaces("dgl.ops.segment", "segment_reduce", graph_type=None)
def segment_reduce(seglen: Tensor, value: Tensor, reducer: str = "sum") -> Tensor:
    """Return the sum, mean, max or min of each segment; segment s has ``seglen[s]`` consecutive rows of `value`."""
    choice("reduce function", reducer, REDUCERS, SchemaError)
    return _segments(seglen, value).reduce(value, reducer)


@replaces("dgl.ops.segment", "segment_softmax", graph_type=None)
def segment_softmax(seglen: Tensor, value: Tensor) -> Tensor:
    """Return the softmax over each segment; segment s has ``seglen[s]`` consecutive rows of `value`."""
    return _segments(seglen, value).softmax(value)


def _segments(seglen: Tensor, value: Tensor) -> Groups:
    return Groups(groups_of(seglen, value.shape[0]), seglen.shape[0])


@replaces("dgl.ops.segment", "segment_mm", graph_type=None)
def segment_mm(a: Tensor, b: Tensor, seglen_a: Tensor) -> Tensor:
    """Multiply segment s of `a`, which has ``seglen_a[s]`` consecutive rows, by the matrix ``b[s]``."""
    return gather_mm(a, b, idx_b=groups_of(seglen_a.to(a.device), a.shape[0]))


@replaces("dgl.ops.gather_mm", "gather_mm", graph_type=None)
def gather_mm(a: Tensor, b: Tensor, *, idx_b: Tensor) -> Tensor:
    """Multiply row i of `a` by the matrix ``b[idx_b[i]]``."""
    rows, (types, width, out) = a.shape[0], b.shape
    if types <= width:
        # If there are few matrices, it is faster to multiply each row by all of them, and to select one product.
        products = (a @ b.transpose(0, 1).reshape(width, types * out)).view(rows, types, out)
        return products.gather(1, idx_b.long().view(-1, 1, 1).expand(rows, 1, out)).squeeze(1)
    return torch.bmm(a.unsqueeze(1), b.index_select(0, idx_b)).squeeze(1)


@replaces("dgl.nn.pytorch.utils", "forward", owner="Sequential", position=1, graph_type=TensorGraph)
def sequential(self: Any, graph: TensorGraph, *feats: Any) -> Any:
    """Call the modules one after the other on the same graph, each with the result of the module before."""
    for module in self:
        feats = module(graph, *(feats if isinstance(feats, tuple) else (feats,)))
    return feats


def _of_nodes_and_edges(name: str, function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return our versions of DGL's functions ``{name}_nodes`` and ``{name}_edges``.

    `function` gets the groups by graph of the nodes or edges of a type, their features, and the other arguments.
    """

    @replaces("dgl.readout", f"{name}_nodes", graph_type=TensorGraph)
    def of_nodes(graph: TensorGraph, *arguments: Any, ntype: str | None = None, **settings: Any) -> Any:
        return function(graph.by_graph(graph.node_type(ntype)), graph.nodes[ntype].data, *arguments, **settings)

    @replaces("dgl.readout", f"{name}_edges", graph_type=TensorGraph)
    def of_edges(graph: TensorGraph, *arguments: Any, etype: Any = None, **settings: Any) -> Any:
        groups = graph.by_graph(graph.to_canonical_etype(etype))
        return function(groups, graph.edges[etype].data, *arguments, **settings)

    of_nodes.__doc__ = of_edges.__doc__ = function.__doc__
    return of_nodes, of_edges


def _readout(groups: Groups, features: Any, feat: str, weight: str | None = None, *, op: str = "sum") -> Tensor:
    """Return the sum, mean, max or min of a feature, times feature `weight` if given, over each graph."""
    choice("readout", op, REDUCERS, SchemaError)
    return groups.reduce(features[feat] if weight is None else features[feat] * features[weight], op)


def _softmax(groups: Groups, features: Any, feat: str) -> Tensor:
    """Return the softmax of a feature over each graph."""
    return groups.softmax(features[feat])


def _broadcast(groups: Groups, features: Any, graph_feat: Tensor) -> Tensor:
    """Return, for each node or edge, the row of `graph_feat` that belongs to its graph."""
    graphs = groups.number
    if graphs == 1 and graph_feat.shape[:1] != (1,):
        # As in DGL, the row of the only graph may come without its first axis.
        graph_feat = graph_feat.unsqueeze(0)
    if graph_feat.shape[:1] != (graphs,):
        raise SchemaError(f"a graph feature has shape {tuple(graph_feat.shape)}, but there are {graphs} graphs.")
    return groups.gather(graph_feat)


def _topk(
    groups: Groups, features: Any, feat: str, k: int, *, descending: bool = True, sortby: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the `k` largest features of each graph, ``[B, k, D]``, and the indices of their nodes or edges.

    Features are compared by their column `sortby`; if it is None, each column is sorted separately. If `descending` is
    false, return the `k` smallest features. Indices begin with 0 in each graph.
    """
    values, counts = features[feat], groups.counts()
    if values.dim() != 2:
        raise SchemaError(f"topk needs a feature with two axes, but {feat!r} has {values.dim()}.")
    # keys: [rows, D] or [rows, 1].
    keys = values.detach() if sortby is None else values.detach()[:, sortby].unsqueeze(1)
    # An extra last row in each: `chosen` may read on after the end of `order`, and `values` may have no rows.
    order = torch.nn.functional.pad(_sorted_in_graphs(keys, groups, descending), (0, 0, 0, 1))
    padded = torch.nn.functional.pad(values, (0, 0, 0, 1))
    first_rows = counts.cumsum(0) - counts
    ranks = torch.arange(k, device=values.device)
    # If a graph has fewer than `k` rows, `chosen` reads on into the next graph; ``.where(exists, ...)`` replaces these.
    exists = (ranks < counts.unsqueeze(1)).unsqueeze(2)  # [B, k, 1]
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


readout_nodes, readout_edges = _of_nodes_and_edges("readout", _readout)
softmax_nodes, softmax_edges = _of_nodes_and_edges("softmax", _softmax)
broadcast_nodes, broadcast_edges = _of_nodes_and_edges("broadcast", _broadcast)
topk_nodes, topk_edges = _of_nodes_and_edges("topk", _topk)
