"""A graph of plain tensors with the interface of a DGLGraph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from dgl_tuplepack._core.checks import shown, whole_number
from dgl_tuplepack.compiling.tensor_graph.dispatch import install_if_dgl_is_imported
from dgl_tuplepack.compiling.tensor_graph.messages import Apply, applied, messages_of, propagate, propagate_each
from dgl_tuplepack.compiling.tensor_graph.structure import (
    EdgeView,
    FeatureView,
    NodeView,
    Relation,
    Structure,
    Types,
    check_rows,
    is_readable,
)
from dgl_tuplepack.errors import SchemaError, UnsupportedError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType

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


_STRUCTURE = (
    "its structure does not change: in compiled code, shapes must not depend on data. Change the DGLGraphs "
    "before they are packed, as with dgl.add_self_loop(graph) or a transform of the dataset."
)
_SUBGRAPH = (
    "it has no samples or subgraphs: their shapes depend on data, which compiled code forbids. Make them from the "
    "DGLGraphs before they are packed."
)
_QUERY = (
    "the shape of the result depends on data, which compiled code forbids. Compute the result from graph.edges(), or "
    "call the method of the DGLGraphs before they are packed."
)
_SOME = "it sends messages along all edges at once. Use update_all or apply_edges, with weight 0 for unwanted edges."
_REVERSE = "dgl.reverse(graph) returns the graph with all edges reversed."
_FORMAT = "it has one format, the end nodes of its edges. Use graph.edges()."
_FEATURES = "its features are tensors. Read their dtype and shape, as in graph.ndata['x'].shape."
_BATCH = "a TensorGraph gets these numbers when it is made: TensorGraph(..., batch_num_nodes=..., batch_num_edges=...)."
_MEMORY = "it is made of plain tensors. Move or pin these, as batch.to(device) and batch.pin_memory() do."

_FREE = (
    "a TensorGraph is accepted by the functions of dgl.ops, edge_softmax, dgl.reverse, and the readouts and broadcasts "
    "of nodes and edges. If your function is one of them, DGL was imported after the graph was made: call "
    "dgl_tuplepack.tensor_graph.install(). If not, call your function before graphs are packed."
)
# Private attributes of a DGLGraph that functions of DGL read.
_INSIDE = {"_graph", "_node_frames", "_edge_frames", "_idtype_str"}

# Remedy -> names of the methods that it replaces.
_INSTEAD = {
    _STRUCTURE: "add_nodes add_edges remove_nodes remove_edges add_self_loop remove_self_loop reorder_graph "
    "set_n_initializer set_e_initializer",
    _SUBGRAPH: (
        "subgraph node_subgraph edge_subgraph in_subgraph out_subgraph khop_in_subgraph khop_out_subgraph "
        "sample_neighbors sample_neighbors_biased sample_neighbors_fused sample_labors "
        "sample_etype_neighbors select_topk node_type_subgraph edge_type_subgraph line_graph "
        "to_simple global_uniform_negative_sampling random_walk_states get_node_storage get_edge_storage"
    ),
    _QUERY: (
        "has_node has_nodes has_edge_between has_edges_between predecessors successors edge_id edge_ids in_edges "
        "out_edges filter_nodes filter_edges is_multigraph incidence_matrix inc adj adjacency_matrix adj_external "
        "adjacency_matrix_scipy metagraph to_networkx to_cugraph"
    ),
    _REVERSE: "reverse",
    _SOME: "send_and_recv pull push prop_nodes prop_edges group_apply_edges group_apply",
    _FORMAT: "adj_tensors formats create_formats_ shared_memory",
    _FEATURES: "node_attr_schemes edge_attr_schemes",
    _BATCH: "set_batch_num_nodes set_batch_num_edges",
    _MEMORY: "pin_memory_ unpin_memory_ record_stream",
}
INSTEAD = {name: remedy for remedy, names in _INSTEAD.items() for name in names.split()}


def refusal(name: str) -> AttributeError:
    """Return the error for an attribute that a TensorGraph does not have."""
    if name in _INSIDE:
        return UnsupportedError(f"a function of DGL reads {name!r} of a DGLGraph, which a TensorGraph lacks: {_FREE}")
    if name in INSTEAD:
        return UnsupportedError(f"a TensorGraph does not offer {name!r}: {INSTEAD[name]}")
    return AttributeError(
        f"a TensorGraph has no attribute {name!r}; it offers features, message passing and counts of a DGLGraph, "
        "listed in docs/explain/compile.md."
    )


_INTEGERS = (torch.int32, torch.int64)


def relations(hetero: bool, src: Any, dst: Any, numbers: Mapping[str, int]) -> dict[EdgeType, Relation]:
    """Return the edges of each type, sorted by type; `numbers`: node type -> number of nodes."""
    sources, destinations = (_by_type(name, hetero, each, EDGE_TYPE) for name, each in (("src", src), ("dst", dst)))
    for edge_type in sources:
        is_triple = isinstance(edge_type, tuple) and len(edge_type) == 3
        if not is_triple or edge_type[0] not in numbers or edge_type[2] not in numbers:
            raise SchemaError(
                f"an edge type must be (source node type, edge type, destination node type) with the node types "
                f"{sorted(numbers)} of num_nodes, but is {shown(edge_type)}."
            )
    if set(sources) != set(destinations):
        raise SchemaError(
            f"src has the edge types {sorted(sources)}, but dst has {sorted(destinations)}; give both the same types."
        )
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


def numbers_of_nodes(given: Any) -> dict[str, int]:
    """Return the number of nodes by type."""
    by_type: Mapping[str, Any] = given if isinstance(given, Mapping) else {NODE_TYPE: given}
    return {node_type: _checked_number(node_type, number) for node_type, number in by_type.items()}


def _checked_number(node_type: str, number: Any) -> int:
    # Torch's tracer may pass a symbol as a number; it stays a symbol.
    if isinstance(number, int | torch.SymInt) and not isinstance(number, bool) and number >= 0:
        return number  # type: ignore[return-value]
    return whole_number(f"num_nodes of node type {node_type!r}", number, 0, error=SchemaError)


def _by_type(name: str, hetero: bool, given: Any, only_type: GraphType) -> dict[Any, Any]:
    """Return an argument as a dict by type."""
    if hetero != isinstance(given, Mapping):
        expected = "a dict by type" if hetero else "one value"
        raise SchemaError(f"num_nodes is {expected}, but {name} is {type(given).__name__}; give {expected} for both.")
    return dict(given) if hetero else {only_type: given}


def _check_are_nodes(name: str, ends: Tensor, number: int, edge_type: EdgeType, node_type: str) -> None:
    """Check that all end nodes in `ends` are below the `number` of nodes, and not negative.

    If `ends` is not on the CPU, or if it is traced, skip the check; torch checks the nodes when it uses them.
    """
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


def _check_indices(
    name: str, values: Any, of_type: Any, dtypes: tuple[torch.dtype, ...], number: int | None = None
) -> None:
    """Check the dtype and the length (`number`; None: any) of end nodes, counts or graph slots."""
    fits = isinstance(values, Tensor) and values.dim() == 1 and values.dtype in dtypes
    if not fits or (number is not None and values.shape[0] != number):
        allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        length = "" if number is None else f" of {number} entries"
        what = f"{values.dtype} {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise SchemaError(
            f"{name} of type {of_type!r} must be a tensor of {allowed} with one axis{length}, but is {what}."
        )


def frames(
    hetero: bool, given: Mapping[str, Mapping[Any, Any] | None], rows: Mapping[GraphType, int]
) -> dict[GraphType, dict[str, Tensor]]:
    """Return a dict of features for each type.

    `given`: argument name -> features, first of nodes, then of edges.
    """
    made: dict[GraphType, dict[str, Tensor]] = {each: {} for each in rows}
    for (argument, features), only_type in zip(given.items(), (NODE_TYPE, EDGE_TYPE), strict=True):
        by_type = {} if features is None else features if hetero else {only_type: features}
        for of_type, frame in by_type.items():
            if of_type not in made:
                raise SchemaError(f"{argument} has the type {of_type!r}, but the graph has {list(made)}.")
            if not isinstance(frame, Mapping):
                raise SchemaError(
                    f"{argument} of type {of_type!r} must be a dict of tensors, but is {type(frame).__name__}."
                )
            for name, value in frame.items():
                check_rows(name, value, rows[of_type], of_type)
                made[of_type][name] = value
    return made


def batch_numbers(hetero: bool, given: Mapping[str, Any], rows: Mapping[GraphType, int]) -> dict[GraphType, Tensor]:
    """Return the number of nodes or edges of each graph, by type; types without given numbers are left out."""
    counts: dict[GraphType, Tensor] = {}
    for argument, of_type, values in _of_all_types(hetero, given, rows):
        # The first type decides the number of graphs: all types must have the same number.
        num_graphs = next(iter(counts.values())).shape[0] if counts else None
        _check_indices(argument, values, of_type, _INTEGERS, num_graphs)
        counts[of_type] = values
    return counts


def graph_slots(
    hetero: bool, given: Mapping[str, Any], rows: Mapping[GraphType, int], counts: Mapping[GraphType, Tensor]
) -> dict[GraphType, Tensor]:
    """Return the index of the graph of each node or edge, by type; types without given values are left out."""
    slots: dict[GraphType, Tensor] = {}
    for argument, of_type, values in _of_all_types(hetero, given, rows):
        if of_type not in counts:
            raise SchemaError(
                f"{argument} is given without the numbers of nodes or edges in each graph; give batch_num_nodes and "
                "batch_num_edges too."
            )
        _check_indices(argument, values, of_type, (torch.int64,), rows[of_type])
        slots[of_type] = values
    return slots


def _of_all_types(
    hetero: bool, given: Mapping[str, Any], rows: Mapping[GraphType, int]
) -> list[tuple[str, GraphType, Any]]:
    """Return (argument name, type, value of that type) for all types of each argument that is not None.

    `given`: argument name -> values, first of nodes, then of edges.
    """
    listed = []
    default_types: tuple[GraphType, GraphType] = (NODE_TYPE, EDGE_TYPE)
    for (argument, values), only_type in zip(given.items(), default_types, strict=True):
        if values is None:
            continue
        # All node types, or all edge types: node types are strings, and edge types are tuples.
        types = [each for each in rows if isinstance(each, type(only_type))]
        by_type = _by_type(argument, hetero, values, only_type)
        if set(by_type) != set(types):
            raise SchemaError(
                f"{argument} has the types {sorted(by_type)}, but the graph has {types}; give the types of the graph."
            )
        listed += [(argument, each, by_type[each]) for each in types]
    return listed
