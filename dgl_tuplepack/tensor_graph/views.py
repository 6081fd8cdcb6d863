"""Features of nodes and edges as mappings, by the ways in which a DGLGraph offers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from dgl_tuplepack._checks import shown
from dgl_tuplepack.errors import SchemaError, UnsupportedError
from dgl_tuplepack.graphs.blocks import GraphType

if TYPE_CHECKING:
    from dgl_tuplepack.tensor_graph.graph import TensorGraph


class FeatureView(MutableMapping[str, Any]):
    """Features of the nodes or edges of some types: name -> tensor, or dict of tensors by type for several types."""

    def __init__(self, graph: TensorGraph, of_edges: bool, types: list[Any]) -> None:
        self._graph = graph
        self._of_edges = of_edges
        self._types = types

    def _frame(self, of_type: GraphType) -> dict[str, Tensor]:
        # The graph is asked each time: inside a local scope it has other frames.
        frames: dict[Any, dict[str, Tensor]] = self._graph.edge_frames if self._of_edges else self._graph.node_frames
        return frames[of_type]

    def __getitem__(self, name: str) -> Any:
        if len(self._types) == 1:
            return self._frame(self._types[0])[name]
        return {each: self._frame(each)[name] for each in self._types if name in self._frame(each)}

    def __setitem__(self, name: str, value: Any) -> None:
        if len(self._types) == 1:
            self._set(self._types[0], name, value)
            return
        if not isinstance(value, Mapping):
            raise SchemaError(
                f"feature {name!r} of the types {self._types} is set to {type(value).__name__}; give a dict of tensors "
                "by type."
            )
        for of_type, tensor in value.items():
            known = self._graph.types.edge_type(of_type) if self._of_edges else self._graph.types.node_type(of_type)
            self._set(known, name, tensor)

    def _set(self, of_type: GraphType, name: str, value: Any) -> None:
        number = self._graph.num_edges(of_type) if self._of_edges else self._graph.num_nodes(of_type)  # type: ignore[arg-type]
        check_rows(name, value, number, "edges" if self._of_edges else "nodes", of_type)
        self._frame(of_type)[name] = value

    def __delitem__(self, name: str) -> None:
        if len(self._types) == 1:
            del self._frame(self._types[0])[name]
            return
        for each in self._types:
            self._frame(each).pop(name, None)

    def _names(self) -> list[str]:
        if len(self._types) == 1:
            return list(self._frame(self._types[0]))
        return list(dict.fromkeys(name for each in self._types for name in self._frame(each)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __repr__(self) -> str:
        return repr({name: self[name] for name in self._names()})


def check_rows(name: str, value: Any, number: int, rows: str, of_type: GraphType) -> None:
    """Check that a feature is a tensor with one row for each node or edge."""
    if not isinstance(value, Tensor):
        raise SchemaError(
            f"feature {name!r} of the {rows} of type {of_type!r} must be a tensor, but is {type(value).__name__}."
        )
    if value.dim() == 0 or value.shape[0] != number:
        raise SchemaError(
            f"feature {name!r} has shape {tuple(value.shape)}, but there are {number} {rows} of type {of_type!r}; give "
            f"one row for each."
        )


class Space(NamedTuple):
    """What ``graph.nodes[TYPE]`` and ``graph.edges[TYPE]`` give."""

    data: FeatureView


class NodeView:
    """``graph.nodes``: ``nodes[TYPE].data`` and ``nodes(TYPE)``."""

    def __init__(self, graph: TensorGraph, among: list[str]) -> None:
        self._graph = graph
        self._among = among

    def __getitem__(self, key: Any) -> Space:
        name = _only_type(key)
        return Space(FeatureView(self._graph, False, [self._graph.types.node_type(name, self._among)]))

    def __call__(self, ntype: str | None = None) -> Tensor:
        """Numbers of the nodes: 0..V-1."""
        return self._graph.node_numbers(self._graph.types.node_type(ntype, self._among))


class EdgeView:
    """``graph.edges``: ``edges[TYPE].data`` and ``edges(form, order, etype)``."""

    def __init__(self, graph: TensorGraph) -> None:
        self._graph = graph

    def __getitem__(self, key: Any) -> Space:
        is_type = isinstance(key, tuple) and len(key) == 3 and all(isinstance(each, str) for each in key)
        name = key if is_type else _only_type(key)
        return Space(FeatureView(self._graph, True, [self._graph.types.edge_type(name)]))

    def __call__(self, form: str = "uv", order: str = "eid", etype: Any = None) -> Any:
        """Source and destination nodes ("uv"), numbers ("eid"), or all three of them ("all")."""
        return self._graph.all_edges(form, order, etype)


def _only_type(key: Any) -> str | None:
    if key is None or isinstance(key, str):
        return key
    if isinstance(key, slice) and key == slice(None):
        return None
    raise UnsupportedError(
        f"a TensorGraph gives features of all nodes or edges of a type, but was asked for {shown(key)}; take rows of "
        "the tensor, as in graph.ndata['x'][rows]."
    )


class GatheredFeatures(Mapping[str, Tensor]):
    """Features of nodes as the edges see them; a row for each edge is taken when a feature is asked for."""

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
