"""Compute messages along edges and reduce them at destination nodes, with built-in or user-defined functions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.compiling.tensor_graph.structure import GatheredFeatures, Relation, Structure
from dgl_tuplepack.errors import SchemaError, UnsupportedError
from dgl_tuplepack.graphs.blocks import EdgeType

REDUCERS = ("sum", "mean", "max", "min")
_CROSS_REDUCERS = (*REDUCERS, "stack")
# Reducer -> the value that does not affect its results.
NEUTRAL = {"max": float("-inf"), "min": float("inf")}
# The numbers by which DGL's built-in functions refer to source nodes, destination nodes and edges.
SRC, DST, EDGE = 0, 1, 2

_MAILBOX = (
    "a TensorGraph has no mailboxes, whose shapes depend on degrees; use sum, mean, max and min of dgl.function, or "
    "compose others from them (a softmax-weighted sum: edge_softmax, then u_mul_e and sum)."
)


class EdgeBatch:
    """The argument of a user-defined message function: all edges of a type."""

    def __init__(self, graph: Structure, edge_type: EdgeType) -> None:
        self._relation = relation = graph.relations[edge_type]
        self.canonical_etype = edge_type
        self.src = GatheredFeatures(graph.frames[edge_type[0]], relation.by_src.gather)
        self.dst = GatheredFeatures(graph.frames[edge_type[2]], relation.by_dst.gather)
        self.data = graph.frames[edge_type]

    def edges(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return source nodes, destination nodes and ids of the edges."""
        return self._relation.src, self._relation.dst, self._relation.ids()

    def batch_size(self) -> int:
        """Return the number of edges."""
        return self._relation.num_edges

    def __len__(self) -> int:
        return self.batch_size()


class NodeBatch:
    """The argument of a user-defined apply function: all nodes of a type."""

    def __init__(self, graph: Structure, node_type: str, data: Mapping[str, Tensor]) -> None:
        self._graph, self.ntype, self.data = graph, node_type, data

    @property
    def mailbox(self) -> Any:
        """Raise UnsupportedError: messages are not kept for each node."""
        raise UnsupportedError(f"an apply function reads nodes.mailbox, but {_MAILBOX}")

    def nodes(self) -> Tensor:
        """Return the ids of the nodes."""
        return self._graph.node_ids(self.ntype)

    def batch_size(self) -> int:
        """Return the number of nodes."""
        return self._graph.num_nodes(self.ntype)

    def __len__(self) -> int:
        return self.batch_size()


Apply = Callable[[NodeBatch], Mapping[str, Tensor]]


def messages_of(graph: Structure, edge_type: EdgeType, function: Any) -> dict[str, Tensor]:
    """Compute messages ``[E, ...]`` by name along all edges of a type."""
    # Built-in functions of DGL that combine two features have `binary_op`; functions that copy one have `in_field`.
    if hasattr(function, "binary_op"):
        left = _operand(graph, edge_type, function.lhs, function.lhs_field)
        right = _operand(graph, edge_type, function.rhs, function.rhs_field)
        return {function.out_field: binary(function.binary_op, left, right)}
    if hasattr(function, "in_field"):
        return {function.out_field: _operand(graph, edge_type, function.target, function.in_field)}
    if not callable(function):
        raise SchemaError(f"a message function must be of dgl.function or a function of edges, not {shown(function)}.")
    return _returned("a message function", function(EdgeBatch(graph, edge_type)))


def _returned(what: str, features: Any) -> dict[str, Tensor]:
    """Return the features that a user-defined function has returned, as a dict."""
    if not isinstance(features, Mapping):
        raise SchemaError(f"{what} must return a dict of tensors by name, but returned {type(features).__name__}.")
    return dict(features)


def _operand(graph: Structure, edge_type: EdgeType, target: int, name: str) -> Tensor:
    """Return, for each edge, the feature `name` of its source node, its destination node, or the edge itself."""
    # `target` is SRC, DST or EDGE: 0, 1 or 2.
    frame = graph.frames[(edge_type[0], edge_type[2], edge_type)[target]]
    if name not in frame:
        owners = ("source nodes", "destination nodes", "edges")[target]
        raise SchemaError(
            f"a built-in function reads feature {name!r} of the {owners} of edge type {edge_type!r}, but they have "
            f"{sorted(frame)}."
        )
    return at_edges(graph.relations[edge_type], target, frame[name])


def at_edges(relation: Relation, target: int, values: Tensor) -> Tensor:
    """Return one row for each edge: the row of its source node, of its destination node, or of the edge itself."""
    if target == EDGE:
        return values
    return (relation.by_src if target == SRC else relation.by_dst).gather(values)


def binary(operation: str, left: Tensor, right: Tensor) -> Tensor:
    """Compute add, sub, mul, div or dot of both sides, ``[E, ...]``, row by row, with broadcasting as in DGL."""
    if operation not in _OPERATIONS:
        known = ", ".join(_OPERATIONS)
        raise UnsupportedError(f"unknown operation {shown(operation)} of a built-in function; choose one of {known}.")
    axes = max(left.dim(), right.dim())
    return _OPERATIONS[operation](_with_axes(left, axes), _with_axes(right, axes))


def _with_axes(values: Tensor, axes: int) -> Tensor:
    """Return the values with `axes` axes in total; new axes of length 1 follow the first axis."""
    if values.dim() == axes:
        return values
    return values.reshape(values.shape[0], *(1,) * (axes - values.dim()), *values.shape[1:])


def _dot(left: Tensor, right: Tensor) -> Tensor:
    """Return the sum of products over the last axis, which is kept; values ``[E]`` have no axis to sum over."""
    # Compare the lengths of the last axes, if there are axes after the first.
    if left.shape[1:][-1:] != right.shape[1:][-1:]:
        raise SchemaError(
            f"dot needs equal last axes, but the shapes are {tuple(left.shape)} and {tuple(right.shape)}."
        )
    products = left * right
    return products if products.dim() == 1 else products.sum(-1, keepdim=True)


_OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "dot": _dot,
}


def propagate(
    graph: Structure, edge_type: EdgeType, message: Any, reduce: Any, apply: Any = None, *, fill: float = 0.0
) -> dict[str, Tensor]:
    """Send messages along the edges of a type; return the new features of destination nodes by name.

    If the reduce function is max or min, nodes without messages get `fill`.
    """
    if getattr(reduce, "msg_field", None) is None or getattr(reduce, "name", None) not in REDUCERS:
        if callable(reduce):
            raise UnsupportedError(f"the reduce function {shown(reduce)} is user-defined, but {_MAILBOX}")
        raise SchemaError(f"a reduce function must be sum, mean, max or min of dgl.function, not {shown(reduce)}.")
    if apply is not None and reduce.name in NEUTRAL and not fill:
        raise UnsupportedError(
            f"update_all has {reduce.name} and an apply function, which in DGL gets infinity for nodes without "
            "messages, before 0 replaces infinite results; infinity makes gradients of padding NaN. Leave the apply "
            f"function out, and call it on .ndata[{reduce.out_field!r}] afterwards, which is 0 for such nodes."
        )
    messages = messages_of(graph, edge_type, message)
    if reduce.msg_field not in messages:
        raise SchemaError(f"the reduce function reads {reduce.msg_field!r}, but the messages are {sorted(messages)}.")
    result = graph.relations[edge_type].by_dst.reduce(messages[reduce.msg_field], reduce.name, fill)
    return applied(graph, edge_type[2], apply, {reduce.out_field: result})


def applied(graph: Structure, node_type: str, function: Any, result: dict[str, Tensor]) -> dict[str, Tensor]:
    """Call an apply function with the nodes' features, updated by `result`; if `function` is None, return `result`."""
    if function is None:
        return result
    changed = function(NodeBatch(graph, node_type, {**graph.frames[node_type], **result}))
    return _returned("an apply function", changed)


def propagate_each(graph: Structure, functions: Mapping[Any, Any], cross_reducer: Any) -> dict[str, dict[str, Tensor]]:
    """Send messages with the functions of each edge type; return features by node type, reduced across edge types."""
    if not callable(cross_reducer) and cross_reducer not in _CROSS_REDUCERS:
        known = ", ".join(_CROSS_REDUCERS)
        raise SchemaError(f"unknown cross reducer {shown(cross_reducer)}; give a function, or one of {known}.")
    given = {graph.to_canonical_etype(name): each for name, each in functions.items()}
    order = sorted(given, key=graph.canonical_etypes.index) if cross_reducer == "stack" else list(given)
    # For each node type, by edge type: new features, and whether each node gets no messages (for max and min only).
    features: dict[str, list[dict[str, Tensor]]] = {}
    without_messages: dict[str, list[Tensor]] = {}
    for edge_type in order:
        each, node_type = given[edge_type], edge_type[2]
        if not isinstance(each, tuple) or not 2 <= len(each) <= 3:
            raise SchemaError(
                f"edge type {edge_type!r} needs (message, reduce) or (message, reduce, apply): {shown(each)}"
            )
        # As in DGL, a node's maximum or minimum ignores edge types without messages to the node.
        fill = NEUTRAL.get(getattr(each[1], "name", ""))
        result = propagate(graph, edge_type, *each, fill=0.0 if fill is None else fill)
        features.setdefault(node_type, []).append(result)
        if fill is not None:
            without_messages.setdefault(node_type, []).append(graph.relations[edge_type].by_dst.counts() == 0)
    return {t: _across(each, without_messages.get(t, []), cross_reducer) for t, each in features.items()}


def _across(
    features: Sequence[dict[str, Tensor]], without_messages: list[Tensor], cross_reducer: Any
) -> dict[str, Tensor]:
    merged = {}
    for name in dict.fromkeys(name for each in features for name in each):
        value = _merge([each[name] for each in features if name in each], cross_reducer)
        if without_messages:
            # An infinite result becomes 0 at a node that lacks messages of at least one edge type.
            lacks_any = torch.stack(without_messages).any(0).view(-1, *(1,) * (value.dim() - 1))
            value = torch.where(lacks_any & torch.isinf(value), 0.0, value)
        merged[name] = value
    return merged


def _merge(values: list[Tensor], cross_reducer: str | Callable[[list[Tensor]], Tensor]) -> Tensor:
    if cross_reducer == "stack":
        return torch.stack(values, 1)
    if len(values) == 1:
        return values[0]
    if callable(cross_reducer):
        return cross_reducer(values)
    result = getattr(torch.stack(values), cross_reducer)(0)
    return result.values if cross_reducer in NEUTRAL else result  # type: ignore[no-any-return]
