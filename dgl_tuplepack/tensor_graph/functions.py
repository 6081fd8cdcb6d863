"""Message, reduce and apply functions: DGL's built-in ones by their attributes, and those of users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from dgl_tuplepack._checks import shown
from dgl_tuplepack.errors import SchemaError, UnsupportedError
from dgl_tuplepack.graphs.blocks import EdgeType
from dgl_tuplepack.tensor_graph.relation import Relation
from dgl_tuplepack.tensor_graph.views import GatheredFeatures

if TYPE_CHECKING:
    from dgl_tuplepack.tensor_graph.graph import TensorGraph

REDUCERS = ("sum", "mean", "max", "min")
# Numbers that DGL gives source nodes, destination nodes and edges in its built-in functions.
SRC, DST, EDGE = 0, 1, 2

_MAILBOX = (
    "a TensorGraph does not sort messages into mailboxes, whose shapes depend on the degrees; use the built-in reduce "
    "functions sum, mean, max and min of dgl.function, which many others can be composed of (a softmax-weighted sum: "
    "edge_softmax, then u_mul_e and sum)."
)


class EdgeBatch:
    """What a user-defined message function takes: all edges of a type."""

    def __init__(self, graph: TensorGraph, edge_type: EdgeType) -> None:
        relation = graph.relations[edge_type]
        self._relation = relation
        self.canonical_etype = edge_type
        self.src = GatheredFeatures(graph.frames[edge_type[0]], relation.by_src.gather)
        self.dst = GatheredFeatures(graph.frames[edge_type[2]], relation.by_dst.gather)
        self.data = graph.frames[edge_type]

    def edges(self) -> tuple[Tensor, Tensor, Tensor]:
        """Source nodes, destination nodes and numbers of the edges."""
        return self._relation.src, self._relation.dst, self._relation.numbers()

    def batch_size(self) -> int:
        """Number of edges."""
        return self._relation.num_edges

    def __len__(self) -> int:
        return self._relation.num_edges


class NodeBatch:
    """What a user-defined apply function takes: all nodes of a type."""

    def __init__(self, graph: TensorGraph, node_type: str, data: Mapping[str, Tensor]) -> None:
        self._graph = graph
        self.ntype = node_type
        self.data = data

    @property
    def mailbox(self) -> Any:
        """Messages, which are not kept for each node."""
        raise UnsupportedError(f"an apply function reads nodes.mailbox, but {_MAILBOX}")

    def nodes(self) -> Tensor:
        """Numbers of the nodes."""
        return self._graph.node_numbers(self.ntype)

    def batch_size(self) -> int:
        """Number of nodes."""
        return self._graph.num_nodes(self.ntype)

    def __len__(self) -> int:
        return self.batch_size()


def is_built_in(function: Any) -> bool:
    """Whether a message function is one of dgl.function; SchemaError if it cannot be called."""
    if hasattr(function, "binary_op") or hasattr(function, "in_field"):
        return True
    if callable(function):
        return False
    raise SchemaError(
        f"a message function must be one of dgl.function or a function of edges, but is {shown(function)}."
    )


def check_reducer(function: Any) -> None:
    """Refuse reduce functions other than DGL's built-in ones."""
    if getattr(function, "msg_field", None) is not None and getattr(function, "name", None) in REDUCERS:
        return
    if callable(function):
        raise UnsupportedError(f"the reduce function {shown(function)} is user-defined, but {_MAILBOX}")
    raise SchemaError(
        f"a reduce function must be sum, mean, max or min of dgl.function, but is {shown(function)}; give "
        "dgl.function.sum('m', 'h'), say."
    )


def messages_of(graph: TensorGraph, edge_type: EdgeType, function: Any) -> dict[str, Tensor]:
    """Compute messages ``[E, ...]`` by name along all edges of a type."""
    if is_built_in(function):
        return {function.out_field: _built_in(graph, edge_type, function)}
    messages = function(EdgeBatch(graph, edge_type))
    if not isinstance(messages, Mapping):
        raise SchemaError(
            f"a message function must return a dict of tensors by name, but returned {type(messages).__name__}."
        )
    return dict(messages)


def operand(graph: TensorGraph, edge_type: EdgeType, target: int, name: str) -> Tensor:
    """Return the feature of source nodes, destination nodes or edges that a built-in function names."""
    # In the order of SRC, DST and EDGE.
    frame = graph.frames[(edge_type[0], edge_type[2], edge_type)[target]]
    if name not in frame:
        rows = ("source nodes", "destination nodes", "edges")[target]
        raise SchemaError(
            f"a built-in function reads feature {name!r} of the {rows} of edge type {edge_type!r}, but they have "
            f"{sorted(frame)}."
        )
    return frame[name]


def _built_in(graph: TensorGraph, edge_type: EdgeType, function: Any) -> Tensor:
    relation = graph.relations[edge_type]
    if not hasattr(function, "binary_op"):
        return at_edges(relation, function.target, operand(graph, edge_type, function.target, function.in_field))
    left = at_edges(relation, function.lhs, operand(graph, edge_type, function.lhs, function.lhs_field))
    right = at_edges(relation, function.rhs, operand(graph, edge_type, function.rhs, function.rhs_field))
    return binary(function.binary_op, *broadcast_pair(left, right))


def at_edges(relation: Relation, target: int, values: Tensor) -> Tensor:
    """Rows of source nodes, destination nodes or edges, one for each edge."""
    if target == EDGE:
        return values
    return (relation.by_src if target == SRC else relation.by_dst).gather(values)


def broadcast_pair(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Give both as many axes: missing ones come after the first, as in DGL."""
    axes = max(left.dim(), right.dim())
    return _with_axes(left, axes), _with_axes(right, axes)


def _with_axes(values: Tensor, axes: int) -> Tensor:
    if values.dim() == axes:
        return values
    return values.reshape(values.shape[0], *(1,) * (axes - values.dim()), *values.shape[1:])


def binary(operation: str, left: Tensor, right: Tensor) -> Tensor:
    """Compute add, sub, mul, div, or dot over the last axis, which stays with length 1; one number has no such axis."""
    if operation not in OPERATIONS:
        raise UnsupportedError(f"unknown operation {shown(operation)} of a built-in function; known are {OPERATIONS}.")
    if operation == "add":
        return left + right
    if operation == "sub":
        return left - right
    if operation == "mul":
        return left * right
    if operation == "div":
        return left / right
    if left.shape[1:][-1:] != right.shape[1:][-1:]:
        raise SchemaError(
            f"dot needs features with equal last axes, but they have the shapes {tuple(left.shape)} and "
            f"{tuple(right.shape)}; multiply them, or give both as many channels."
        )
    products = left * right
    return products if products.dim() == 1 else products.sum(-1, keepdim=True)


OPERATIONS = ("add", "sub", "mul", "div", "dot")

Apply = Callable[[NodeBatch], Mapping[str, Tensor]]
