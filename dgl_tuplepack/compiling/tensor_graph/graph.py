"""A graph of plain tensors with the interface of a DGLGraph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from dgl_tuplepack._core.checks import shown, whole_number
from dgl_tuplepack.compiling.tensor_graph.dispatch import install_if_dgl_is_imported
from dgl_tuplepack.compiling.tensor_graph.messages import Apply, applied, messages_of, propagate, propagate_each
from dgl_tuplepack.compiling.tensor_graph.structure import (
    FeatureView,
    Relation,
    Structure,
    TypeView,
    is_readable,
)
from dgl_tuplepack.errors import SchemaError, UnsupportedError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType

Value = TypeVar("Value")


class TensorGraph(Structure):
    """A graph, or a batch of graphs, of plain tensors, with the methods of a DGLGraph that DGL's layers need.

    It uses only operations of torch. So ``torch.compile(fullgraph=True, dynamic=False)`` can trace models on it, and
    the models run on every device of torch. Other methods of a DGLGraph raise an error that names the method.

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
    Results equal DGL's up to the order of sums; nodes without messages get 0. Maxima and minima differ in two cases: an
    infinite maximum or minimum of messages stays infinite; and NaN among messages gives NaN.

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
        given = num_nodes if isinstance(num_nodes, Mapping) else {NODE_TYPE: num_nodes}
        numbers: dict[Any, int] = {t: _checked_number(t, given[t]) for t in sorted(given)}
        self.relations = _relations(hetero, src, dst, numbers)
        self.sizes = {**numbers, **{each: relation.num_edges for each, relation in self.relations.items()}}
        self.frames = {each: {} for each in self.sizes}
        self._set_features("node_features", node_features if hetero else {NODE_TYPE: node_features or {}})
        self._set_features("edge_features", edge_features if hetero else {EDGE_TYPE: edge_features or {}})

        def by_type(name: str, given: Any, types: Sequence[GraphType], *, is_count: bool) -> dict[GraphType, Tensor]:
            checked = {} if given is None else _by_type(name, hetero, given, types)
            for each, values in checked.items():
                _check_indices(name, values, each, _INTEGERS if is_count else _INTEGERS[1:])
            return checked

        counts = by_type("batch_num_nodes", batch_num_nodes, self.ntypes, is_count=True)
        counts |= by_type("batch_num_edges", batch_num_edges, self.canonical_etypes, is_count=True)
        slots = by_type("node_graph_slots", node_graph_slots, self.ntypes, is_count=False)
        slots |= by_type("edge_graph_slots", edge_graph_slots, self.canonical_etypes, is_count=False)
        self._counts, self._slots = counts, slots
        _check_batch(counts, slots, self.sizes)

    def _set_features(self, argument: str, by_type: Mapping[Any, Any] | None) -> None:
        for of_type, frame in (by_type or {}).items():
            if of_type not in self.frames:
                raise SchemaError(f"{argument} has the type {of_type!r}, but the graph has {list(self.frames)}.")
            if not isinstance(frame, Mapping):
                raise SchemaError(f"{argument}[{of_type!r}] must be a dict of tensors, but is {type(frame).__name__}.")
            FeatureView(self, [of_type]).update(frame)

    def _with(self, **changes: Any) -> TensorGraph:
        copy = TensorGraph.__new__(TensorGraph)
        copy.__dict__.update({**self.__dict__, **changes})
        return copy

    def __getattr__(self, name: str) -> Any:
        if torch.compiler.is_compiling():
            # Torch's tracer answers `hasattr` and `getattr` with a default only if the class is this one.
            raise AttributeError(str(_refusal(name)))
        raise _refusal(name)

    def __repr__(self) -> str:
        nodes = ", ".join(f"{each}: {self.sizes[each]}" for each in self.ntypes)
        edges = ", ".join(f"{each}: {self.sizes[each]}" for each in self.canonical_etypes)
        if self.is_homogeneous:
            nodes, edges = str(self.num_nodes()), str(self.num_edges())
        return f"TensorGraph(num_nodes={nodes}, num_edges={edges}, batch_size={self.batch_size})"

    def __getitem__(self, key: Any) -> TensorGraph:
        """Return a graph with one edge type and its node types; it shares features with this graph."""
        edge_type = self.to_canonical_etype(key)
        kept: list[GraphType] = [*dict.fromkeys((edge_type[0], edge_type[2])), edge_type]
        return self._with(
            relations={edge_type: self.relations[edge_type]},
            sizes={each: self.sizes[each] for each in kept},
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
    def nodes(self) -> TypeView:
        """``nodes[TYPE].data``: features; ``nodes(TYPE)``: node ids 0..V-1."""
        return self._node_view(self.ntypes)

    @property
    def srcnodes(self) -> TypeView:
        """As `nodes`, for node types that edges begin in."""
        return self._node_view(self.srctypes)

    @property
    def dstnodes(self) -> TypeView:
        """As `nodes`, for node types that edges end in."""
        return self._node_view(self.dsttypes)

    def _node_view(self, among: Sequence[str]) -> TypeView:
        def find(name: str | None = None) -> str:
            return self.node_type(name, among)

        return TypeView(self, find, lambda ntype=None: self.node_ids(find(ntype)))

    @property
    def edges(self) -> TypeView:
        """``edges[TYPE].data``: features; ``edges(form, order, etype)``: end nodes, see `all_edges`."""
        return TypeView(self, self.to_canonical_etype, self.all_edges)

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
        """Return the graph with all edges reversed; keep features of nodes and of edges only if asked to."""

        def by_reversed_type(values: Mapping[Any, Value]) -> dict[Any, Value]:
            # Edge types are triples (source, name, destination); node types are strings, and do not change.
            return {t if isinstance(t, str) else t[::-1]: value for t, value in values.items()}

        kept = {t: keep_nodes if isinstance(t, str) else keep_edges for t in self.frames}
        frames = {t: dict(frame) if kept[t] else {} for t, frame in self.frames.items()}
        return self._with(
            relations=by_reversed_type({t: each.reversed() for t, each in self.relations.items()}),
            sizes=by_reversed_type(self.sizes),
            frames=by_reversed_type(frames),
            _counts=by_reversed_type(self._counts),
            _slots=by_reversed_type(self._slots),
        )

    # Message passing.

    def apply_nodes(self, func: Apply, v: Any = "__ALL__", ntype: str | None = None) -> None:
        """Set features of all nodes of a type to the results of a function of nodes."""
        _check_all(v)
        node_type = self.node_type(ntype)
        self._set_nodes(node_type, applied(self, node_type, func, {}))

    def apply_edges(self, func: Any, edges: Any = "__ALL__", etype: str | EdgeType | None = None) -> None:
        """Set features of edges of type `etype`, or of all types if None, to the results of a message function."""
        _check_all(edges)
        if callable(func):
            # A user-defined function is for one type.
            etype = self.to_canonical_etype(etype)
        for edge_type in self.canonical_etypes if etype is None else [self.to_canonical_etype(etype)]:
            self.edges[edge_type].data.update(messages_of(self, edge_type, func))

    def update_all(
        self,
        message_func: Any,
        reduce_func: Any,
        apply_node_func: Apply | None = None,
        etype: str | EdgeType | None = None,
    ) -> None:
        """Send messages along all edges, and set features of the destination nodes to the reduced messages."""
        edge_type = self.to_canonical_etype(etype)
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

        return self._mapped(moved)._with_ends(moved)

    def cpu(self) -> TensorGraph:
        """Return the same graph on the CPU."""
        return self.to("cpu")

    def astype(self, idtype: torch.dtype) -> TensorGraph:
        """Return the same graph with end nodes of another integer dtype."""
        return self.local_var()._with_ends(lambda ends: ends.to(idtype))

    def long(self) -> TensorGraph:
        """Return the same graph with int64 end nodes."""
        return self.astype(torch.int64)

    def int(self) -> TensorGraph:
        """Return the same graph with int32 end nodes."""
        return self.astype(torch.int32)

    def _with_ends(self, function: Callable[[Tensor], Tensor]) -> TensorGraph:
        return self._with(relations={t: each.mapped(function) for t, each in self.relations.items()})

    def _mapped(self, function: Callable[[Tensor], Tensor]) -> TensorGraph:
        """Return a copy with `function` applied to all features, counts and graph slots."""

        def mapped(tensors: Mapping[Any, Tensor]) -> dict[Any, Tensor]:
            return {key: function(tensor) for key, tensor in tensors.items()}

        frames = {each: mapped(frame) for each, frame in self.frames.items()}
        return self._with(frames=frames, _counts=mapped(self._counts), _slots=mapped(self._slots))


class _LocalScope:
    # Not a generator, which older tracers do not follow.
    def __init__(self, graph: TensorGraph) -> None:
        self._graph, self._before = graph, graph.frames

    def __enter__(self) -> None:
        self._before = self._graph.frames
        self._graph.frames = _copied(self._before)

    def __exit__(self, *error: object) -> None:
        self._graph.frames = self._before


def _copied(frames: Mapping[GraphType, dict[str, Tensor]]) -> dict[GraphType, dict[str, Tensor]]:
    return {key: dict(frame) for key, frame in frames.items()}


def _check_all(rows: Any) -> None:
    """Refuse (UnsupportedError) a selection of nodes or edges; a string, such as DGL's "__ALL__", stands for all."""
    if not isinstance(rows, str):
        raise UnsupportedError(
            "a TensorGraph applies functions to all nodes or edges of a type, but only some of them are given; select "
            "rows of the result."
        )


# Private attributes of a DGLGraph that functions of DGL read.
_INSIDE = {"_graph", "_node_frames", "_edge_frames", "_idtype_str"}


def _refusal(name: str) -> UnsupportedError:
    """Return the error for an attribute that a TensorGraph does not have."""
    if name in _INSIDE:
        return UnsupportedError(
            f"a function of DGL reads {name!r} of a DGLGraph, but a model that is padded or compiled gets a "
            "TensorGraph. Functions that make another graph (dgl.to_homogeneous, subgraph, DropEdge, remove_self_loop) "
            "belong to the dataset, or to its transform. If it is one of dgl.ops, edge_softmax, dgl.reverse, a readout "
            "or a broadcast, DGL was imported after the graph was made: call dgl_tuplepack.tensor_graph.install()."
        )
    return UnsupportedError(
        f"a TensorGraph has no attribute {name!r}. It offers features, message passing and counts of a DGLGraph, as in "
        "docs/explain/compile.md; its structure does not change. Call the method of the DGLGraphs before they are "
        "packed, as with dgl.add_self_loop(graph), or compute the result from graph.edges(). To send messages along "
        "some edges, give the others weight 0."
    )


_INTEGERS = (torch.int32, torch.int64)


def _relations(hetero: bool, src: Any, dst: Any, numbers: Mapping[str, int]) -> dict[EdgeType, Relation]:
    """Return the edges of each type, sorted by type; `numbers`: node type -> number of nodes."""
    sources = _by_type("src", hetero, src, [*src] if hetero and isinstance(src, Mapping) else [EDGE_TYPE])
    for edge_type in sources:
        is_triple = isinstance(edge_type, tuple) and len(edge_type) == 3
        if not is_triple or edge_type[0] not in numbers or edge_type[2] not in numbers:
            raise SchemaError(
                f"an edge type must be (source node type, edge type, destination node type) with the node types "
                f"{sorted(numbers)} of num_nodes, but is {shown(edge_type)}."
            )
    destinations = _by_type("dst", hetero, dst, [*sources])
    return {t: _relation(t, sources[t], destinations[t], numbers[t[0]], numbers[t[2]]) for t in sorted(sources)}


def _relation(t: EdgeType, src: Any, dst: Any, num_src: int, num_dst: int) -> Relation:
    """Check the end nodes of the edges of type `t`, and return these edges."""
    for name, ends in (("src", src), ("dst", dst)):
        _check_indices(name, ends, t, _INTEGERS)
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise SchemaError(
            f"src and dst of edge type {t!r} must have the same length and dtype, but have {src.shape[0]} {src.dtype} "
            f"and {dst.shape[0]} {dst.dtype}."
        )
    _check_are_nodes("src", src, num_src, t, t[0])
    _check_are_nodes("dst", dst, num_dst, t, t[2])
    return Relation(src, dst, num_src, num_dst)


def _checked_number(node_type: str, number: Any) -> int:
    # Torch's tracer may pass a symbol as a number; it stays a symbol.
    if isinstance(number, int | torch.SymInt) and not isinstance(number, bool) and number >= 0:
        return number  # type: ignore[return-value]
    return whole_number(f"num_nodes of node type {node_type!r}", number, 0, error=SchemaError)


def _by_type(name: str, hetero: bool, given: Any, types: Sequence[GraphType]) -> dict[Any, Any]:
    """Return an argument as a dict by type, which must have exactly these types."""
    if hetero != isinstance(given, Mapping):
        expected = "a dict by type" if hetero else "one value"
        raise SchemaError(f"num_nodes is {expected}, but {name} is {type(given).__name__}; give {expected} for both.")
    by_type = given if hetero else {types[0]: given}
    if set(by_type) != set(types):
        raise SchemaError(f"{name} has the types {[*by_type]}, but the graph has {types}; give the types of the graph.")
    return {each: by_type[each] for each in types}


def _check_are_nodes(name: str, ends: Tensor, number: int, edge_type: EdgeType, node_type: str) -> None:
    """Check that all end nodes are below the `number` of nodes, and not negative."""
    # Torch itself checks nodes that are traced, or on another device, when it uses them.
    if not is_readable(ends) or not ends.numel():
        return
    least, most = torch.aminmax(ends)
    if least < 0 or most >= number:
        edge = int(torch.nonzero((ends < 0) | (ends >= number))[0])
        allowed = f"numbers 0..{number - 1}" if number else "no edges"
        raise SchemaError(
            f"{name}[{edge}] of edge type {edge_type!r} is {int(ends[edge])}, but there are {number} nodes of type "
            f"{node_type!r}; give {allowed}."
        )


def _check_indices(name: str, values: Any, of_type: GraphType, dtypes: tuple[torch.dtype, ...]) -> None:
    """Check that end nodes, counts or graph slots are a tensor of integers with one axis."""
    if not (isinstance(values, Tensor) and values.dim() == 1 and values.dtype in dtypes):
        allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        what = f"{values.dtype} {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise SchemaError(f"{name} of type {of_type!r} must be a tensor of {allowed} with one axis, but is {what}.")


def _check_batch(
    counts: Mapping[GraphType, Tensor], slots: Mapping[GraphType, Tensor], sizes: Mapping[GraphType, int]
) -> None:
    """Check that the numbers of nodes and edges are of equally many graphs, and that graph slots fit to them."""
    lengths = [values.shape[0] for values in counts.values()]
    if any(length != lengths[0] for length in lengths):
        raise SchemaError(f"batch_num_nodes and batch_num_edges need an entry for each graph, but have {lengths}.")
    for each, values in slots.items():
        argument = "node" if isinstance(each, str) else "edge"
        if each not in counts or values.shape[0] != sizes[each]:
            raise SchemaError(
                f"{argument}_graph_slots of type {each!r} has {values.shape[0]} entries; give one for each of the "
                f"{sizes[each]} {argument}s, and batch_num_{argument}s too."
            )
