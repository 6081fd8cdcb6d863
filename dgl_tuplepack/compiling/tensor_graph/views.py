"""Features of nodes and edges as mappings, with the interface of a DGLGraph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.compiling.tensor_graph.structure import Structure
from dgl_tuplepack.errors import SchemaError, UnsupportedError
from dgl_tuplepack.graphs.blocks import GraphType


class FeatureView(MutableMapping[str, Any]):
    """Mapping from feature names to tensors or, with several node (edge) types, to dicts: type -> tensor."""

    def __init__(self, graph: Structure, types: Sequence[GraphType]) -> None:
        self._graph = graph
        self._types = types

    def _frame(self, of_type: GraphType) -> dict[str, Tensor]:
        # Read it from the graph each time, since `local_scope` replaces the frames.
        return self._graph.frames[of_type]

    def __getitem__(self, name: str) -> Any:
        if len(self._types) == 1:
            return self._frame(self._types[0])[name]
        return {each: self._frame(each)[name] for each in self._types if name in self._frame(each)}

    def __setitem__(self, name: str, value: Any) -> None:
        if len(self._types) != 1 and not isinstance(value, Mapping):
            raise SchemaError(
                f"feature {name!r} of the types {self._types} is set to {type(value).__name__}; give a dict of tensors "
                "by type."
            )
        types = self._graph.types
        # An edge type may be given by its middle name; `known` is the full type.
        for of_type, tensor in ({self._types[0]: value} if len(self._types) == 1 else value).items():
            known = types.node_type(of_type) if of_type in types.node_types else types.edge_type(of_type)
            check_rows(name, tensor, self._graph.rows[known], known)
            self._frame(known)[name] = tensor

    def __delitem__(self, name: str) -> None:
        if len(self._types) == 1:
            del self._frame(self._types[0])[name]
            return
        for each in self._types:
            self._frame(each).pop(name, None)

    def _names(self) -> list[str]:
        """Return the names of the features of all types, each name once."""
        return list(dict.fromkeys(name for each in self._types for name in self._frame(each)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __repr__(self) -> str:
        return repr({name: self[name] for name in self._names()})


def check_rows(name: str, value: Any, number: int, of_type: GraphType) -> None:
    """Raise SchemaError unless a feature is a tensor with one row for each of the `number` nodes or edges."""
    owners = "nodes" if isinstance(of_type, str) else "edges"
    if not isinstance(value, Tensor):
        raise SchemaError(
            f"feature {name!r} of the {owners} of type {of_type!r} must be a tensor, but is {type(value).__name__}."
        )
    if value.dim() == 0 or value.shape[0] != number:
        raise SchemaError(
            f"feature {name!r} has shape {tuple(value.shape)}, but there are {number} {owners} of type {of_type!r}; "
            "give one row for each."
        )


class Space(NamedTuple):
    """The value of ``graph.nodes[TYPE]`` or ``graph.edges[TYPE]``."""

    data: FeatureView


class NodeView:
    """The view ``graph.nodes``, for ``nodes[TYPE].data`` and ``nodes(TYPE)``; TYPE must be in the list `among`."""

    def __init__(self, graph: Structure, among: list[str]) -> None:
        self._graph = graph
        self._among = among

    def __getitem__(self, key: Any) -> Space:
        return Space(FeatureView(self._graph, [self._graph.types.node_type(_only_type(key), self._among)]))

    def __call__(self, ntype: str | None = None) -> Tensor:
        """Return the ids of the nodes: 0..V-1."""
        return self._graph.node_numbers(self._graph.types.node_type(ntype, self._among))


class EdgeView:
    """The view ``graph.edges``, for ``edges[TYPE].data`` and ``edges(form, order, etype)``."""

    def __init__(self, graph: Structure) -> None:
        self._graph = graph

    def __getitem__(self, key: Any) -> Space:
        return Space(FeatureView(self._graph, [self._graph.types.edge_type(_only_type(key))]))

    def __call__(self, form: str = "uv", order: str = "eid", etype: Any = None) -> Any:
        """Depending on `form`, return source and destination nodes ("uv"), edge ids ("eid"), or all three ("all")."""
        return self._graph.all_edges(form, order, etype)


def _only_type(key: Any) -> Any:
    """Return the type that a view is indexed by; for ``[:]``, return None, which stands for the only type."""
    if key is None or isinstance(key, str | tuple):
        return key
    if isinstance(key, slice) and key == slice(None):
        return None
    raise UnsupportedError(
        f"a TensorGraph returns features of all nodes or edges of a type, but got the key {shown(key)}; index the "
        "tensor, as in graph.ndata['x'][rows]."
    )


class GatheredFeatures(Mapping[str, Tensor]):
    """Features of the source (destination) nodes of edges, with one row for each edge.

    A feature is gathered when it is first read.
    """

    def __init__(self, frame: Mapping[str, Tensor], gather: Callable[[Tensor], Tensor]) -> None:
        self._frame = frame
        self._gather = gather
        self._done: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._done:
            self._done[name] = self._gather(self._frame[name])
        return self._done[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frame)

    def __len__(self) -> int:
        return len(self._frame)

    def __contains__(self, name: object) -> bool:
        return name in self._frame
