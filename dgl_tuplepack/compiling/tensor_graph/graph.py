"""A graph of plain tensors with the interface of a DGLGraph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from dgl_tuplepack.compiling.tensor_graph.arguments import (
    batch_numbers,
    frames,
    graph_slots,
    numbers_of_nodes,
    relations,
)
from dgl_tuplepack.compiling.tensor_graph.dispatch import install_if_dgl_is_imported
from dgl_tuplepack.compiling.tensor_graph.messages import Apply, applied, messages_of, propagate, propagate_each
from dgl_tuplepack.compiling.tensor_graph.refusals import refusal
from dgl_tuplepack.compiling.tensor_graph.structure import Structure, Types
from dgl_tuplepack.compiling.tensor_graph.views import EdgeView, FeatureView, NodeView
from dgl_tuplepack.errors import SchemaError, UnsupportedError
from dgl_tuplepack.graphs.blocks import EdgeType, GraphType

Value = TypeVar("Value")


class TensorGraph(Structure):
    """A graph, or a batch of graphs, of plain tensors, with the methods of a DGLGraph that DGL's layers need.

    It uses only operations of torch. So ``torch.compile(fullgraph=True, dynamic=False)`` can trace models on it, and
    the models run on every device of torch. Other methods of a DGLGraph, such as changes of structure and sampling,
    raise an error that names the method.

    Parameters
    ----------
    src, dst
        Source and destination node of each edge, int32 or int64 ``[E]``. For heterographs, dicts of such tensors by
        canonical edge type; then all other arguments are dicts by type too.
    num_nodes
        Number of nodes V. For heterographs, a dict by node type.
    batch_num_nodes, batch_num_edges
        Numbers of nodes and edges of each graph of a batch, integers ``[G]``. None: there is a single graph.
    node_graph_slots, edge_graph_slots
        Index of the graph of each node and of each edge, int64 ``[V]`` and ``[E]``. None: computed when needed.
    node_features, edge_features
        Features by name, ``[V, ...]`` and ``[E, ...]``.

    Raises
    ------
    SchemaError
        Arguments do not fit together.

    Notes
    -----
    Results equal DGL's up to the order of sums. As in DGL, nodes without messages get 0. Maxima and minima differ from
    DGL's in three ways. If a node has no messages, the apply function of `update_all` gets 0 for the node, and not
    infinity. An infinite maximum or minimum of messages stays infinite. NaN among messages gives NaN.

    Examples
    --------
    >>> import dgl.function as fn
    >>> import torch
    >>> graph = TensorGraph(torch.tensor([0, 1]), torch.tensor([2, 2]), 3)
    >>> graph.ndata["x"] = torch.tensor([[1.0], [2.0], [4.0]])
    >>> graph.update_all(fn.copy_u("x", "m"), fn.sum("m", "total"))
    >>> graph.ndata["total"].flatten().tolist()
    [0.0, 0.0, 3.0]
    """

    def __init__(
        self,
        src: Tensor | Mapping[EdgeType, Tensor],
        dst: Tensor | Mapping[EdgeType, Tensor],
        num_nodes: int | Mapping[str, int],
        *,
        batch_num_nodes: Tensor | Mapping[str, Tensor] | None = None,
        batch_num_edges: Tensor | Mapping[EdgeType, Tensor] | None = None,
        node_graph_slots: Tensor | Mapping[str, Tensor] | None = None,
        edge_graph_slots: Tensor | Mapping[EdgeType, Tensor] | None = None,
        node_features: Mapping[str, Any] | None = None,
        edge_features: Mapping[Any, Any] | None = None,
    ) -> None:
        install_if_dgl_is_imported()
        hetero = isinstance(num_nodes, Mapping)
        numbers = numbers_of_nodes(num_nodes)
        self.relations = relations(hetero, src, dst, numbers)
        self.types = Types(sorted(numbers), list(self.relations))
        self.rows = {each: numbers[each] for each in self.types.node_types}
        self.rows |= {each: relation.num_edges for each, relation in self.relations.items()}
        features = {"node_features": node_features, "edge_features": edge_features}
        self.frames = frames(hetero, features, self.rows)
        counts = {"batch_num_nodes": batch_num_nodes, "batch_num_edges": batch_num_edges}
        self._counts = batch_numbers(hetero, counts, self.rows)
        slots = {"node_graph_slots": node_graph_slots, "edge_graph_slots": edge_graph_slots}
        self._slots = graph_slots(hetero, slots, self.rows, self._counts)

    def _with(self, **changes: Any) -> TensorGraph:
        copy = TensorGraph.__new__(TensorGraph)
        copy.__dict__.update({**self.__dict__, **changes})
        return copy

    def __getattr__(self, name: str) -> Any:
        raise refusal(name)

    def __repr__(self) -> str:
        nodes = ", ".join(f"{each}: {self.rows[each]}" for each in self.ntypes)
        edges = ", ".join(f"{each}: {self.rows[each]}" for each in self.canonical_etypes)
        if self.is_homogeneous:
            nodes, edges = str(self.num_nodes()), str(self.num_edges())
        return f"TensorGraph(num_nodes={nodes}, num_edges={edges}, batch_size={self.batch_size})"

    def __getitem__(self, key: Any) -> TensorGraph:
        """Return a graph with one edge type and its node types; it shares features with this graph."""
        edge_type = self.types.edge_type(key)
        nodes = list(dict.fromkeys((edge_type[0], edge_type[2])))
        kept: list[GraphType] = [*nodes, edge_type]
        return self._with(
            relations={edge_type: self.relations[edge_type]},
            types=Types(nodes, [edge_type]),
            rows={each: self.rows[each] for each in kept},
            frames={each: self.frames[each] for each in kept},
            # As in DGL, a batch cut down to one edge type counts as one graph.
            _counts={},
            _slots={},
        )

    # Features.

    @property
    def ndata(self) -> FeatureView:
        """Features of nodes."""
        return FeatureView(self, self.ntypes)

    @property
    def srcdata(self) -> FeatureView:
        """Features of the node types that edges begin in."""
        return FeatureView(self, self.srctypes)

    @property
    def dstdata(self) -> FeatureView:
        """Features of the node types that edges end in."""
        return FeatureView(self, self.dsttypes)

    @property
    def edata(self) -> FeatureView:
        """Features of edges."""
        return FeatureView(self, self.canonical_etypes)

    @property
    def nodes(self) -> NodeView:
        """``nodes[TYPE].data``: features; ``nodes(TYPE)``: node ids 0..V-1."""
        return NodeView(self, self.ntypes)

    @property
    def srcnodes(self) -> NodeView:
        """As `nodes`, for node types that edges begin in."""
        return NodeView(self, self.srctypes)

    @property
    def dstnodes(self) -> NodeView:
        """As `nodes`, for node types that edges end in."""
        return NodeView(self, self.dsttypes)

    @property
    def edges(self) -> EdgeView:
        """``edges[TYPE].data``: features; ``edges(form, order, etype)``: end nodes."""
        return EdgeView(self)

    def local_scope(self) -> _LocalScope:
        """Return a context that undoes all changes of features when it ends."""
        return _LocalScope(self)

    def local_var(self) -> TensorGraph:
        """Return a graph with the same features; features that are set later in one graph are not set in the other."""
        return self._with(frames=_copied(self.frames))

    def clone(self) -> TensorGraph:
        """Return a graph with copies of all features."""
        return self._mapped(lambda tensor: tensor.clone())

    def reversed(self, keep_nodes: bool, keep_edges: bool) -> TensorGraph:
        """Return the graph with all edges reversed.

        Keep features of nodes only if `keep_nodes` is true, and features of edges only if `keep_edges` is true.
        """

        def by_reversed_type(values: Mapping[Any, Value]) -> dict[Any, Value]:
            # Edge types are triples (source, name, destination); node types are strings, and do not change.
            return {t if isinstance(t, str) else (t[2], t[1], t[0]): value for t, value in values.items()}

        node_frames = {t: dict(self.frames[t]) if keep_nodes else {} for t in self.ntypes}
        edge_frames = {t: dict(self.frames[t]) if keep_edges else {} for t in self.canonical_etypes}
        relations = by_reversed_type({t: each.reversed() for t, each in self.relations.items()})
        return self._with(
            relations=relations,
            types=Types(self.ntypes, list(relations)),
            rows=by_reversed_type(self.rows),
            frames={**node_frames, **by_reversed_type(edge_frames)},
            _counts=by_reversed_type(self._counts),
            _slots=by_reversed_type(self._slots),
        )

    # Message passing.

    def apply_nodes(self, func: Apply, v: Any = "__ALL__", ntype: str | None = None) -> None:
        """Set features of all nodes of a type to the results of a function of nodes."""
        _check_all(v)
        node_type = self.types.node_type(ntype)
        self._set_nodes(node_type, applied(self, node_type, func, {}))

    def apply_edges(self, func: Any, edges: Any = "__ALL__", etype: str | EdgeType | None = None) -> None:
        """Set features of edges of type `etype`, or of all types if None, to the results of a message function."""
        _check_all(edges)
        if etype is None and len(self.canonical_etypes) > 1 and callable(func):
            raise SchemaError(
                f"the graph has the edge types {self.canonical_etypes}, but a user-defined function is for one type; "
                "name that type: apply_edges(function, etype=TYPE)."
            )
        for edge_type in self.canonical_etypes if etype is None else [self.types.edge_type(etype)]:
            self.edges[edge_type].data.update(messages_of(self, edge_type, func))

    def update_all(
        self,
        message_func: Any,
        reduce_func: Any,
        apply_node_func: Apply | None = None,
        etype: str | EdgeType | None = None,
    ) -> None:
        """Send messages along all edges, and set features of the destination nodes to the reduced messages."""
        if etype is None and len(self.canonical_etypes) > 1:
            raise SchemaError(
                f"the graph has the edge types {self.canonical_etypes}; give one to update_all(..., etype=TYPE), "
                "or the functions of each type to multi_update_all."
            )
        edge_type = self.types.edge_type(etype)
        self._set_nodes(edge_type[2], propagate(self, edge_type, message_func, reduce_func, apply_node_func))

    def multi_update_all(
        self, etype_dict: Mapping[Any, Any], cross_reducer: Any, apply_node_func: Apply | None = None
    ) -> None:
        """Send messages with the functions of each edge type, and reduce the results at each node across edge types.

        `etype_dict`: edge type -> (message function, reduce function), or these two and an apply function.
        """
        for node_type, result in propagate_each(self, etype_dict, cross_reducer).items():
            self._set_nodes(node_type, result)
            if apply_node_func is not None:
                self.apply_nodes(apply_node_func, ntype=node_type)

    def _set_nodes(self, node_type: str, values: Mapping[str, Tensor]) -> None:
        FeatureView(self, [node_type]).update(values)

    # Copies.

    def to(self, device: torch.device | str, non_blocking: bool = False) -> TensorGraph:
        """Return the same graph on another device."""

        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=non_blocking)

        relations = {t: each.mapped(moved) for t, each in self.relations.items()}
        return self._mapped(moved)._with(relations=relations)

    def cpu(self) -> TensorGraph:
        """Return the same graph on the CPU."""
        return self.to("cpu")

    def astype(self, idtype: torch.dtype) -> TensorGraph:
        """Return the same graph with end nodes of another integer dtype."""
        relations = {t: each.mapped(lambda ends: ends.to(idtype)) for t, each in self.relations.items()}
        return self.local_var()._with(relations=relations)

    def long(self) -> TensorGraph:
        """Return the same graph with int64 end nodes."""
        return self.astype(torch.int64)

    def int(self) -> TensorGraph:
        """Return the same graph with int32 end nodes."""
        return self.astype(torch.int32)

    def _mapped(self, function: Callable[[Tensor], Tensor]) -> TensorGraph:
        """Return a copy with `function` applied to all features, counts and graph slots."""

        def mapped(tensors: Mapping[Any, Tensor]) -> dict[Any, Tensor]:
            return {key: function(tensor) for key, tensor in tensors.items()}

        frames = {each: mapped(frame) for each, frame in self.frames.items()}
        return self._with(frames=frames, _counts=mapped(self._counts), _slots=mapped(self._slots))


class _LocalScope:
    """A context that undoes all changes of features when it ends."""

    def __init__(self, graph: TensorGraph) -> None:
        self._graph = graph
        self._before = graph.frames

    def __enter__(self) -> None:
        self._before = self._graph.frames
        self._graph.frames = _copied(self._before)

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        self._graph.frames = self._before
        return False


def _copied(frames: Mapping[GraphType, dict[str, Tensor]]) -> dict[GraphType, dict[str, Tensor]]:
    return {key: dict(frame) for key, frame in frames.items()}


def _check_all(rows: Any) -> None:
    """Refuse (UnsupportedError) a selection of nodes or edges; a string, such as DGL's "__ALL__", stands for all."""
    if not isinstance(rows, str):
        raise UnsupportedError(
            "a TensorGraph applies functions to all nodes or edges of a type, but only some of them are given; apply "
            "the function to all, and select rows of the result."
        )
