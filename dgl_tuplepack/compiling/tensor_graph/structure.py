"""The structure of a TensorGraph: types, numbers of nodes and edges, end nodes of edges, and views of features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dgl_tuplepack._core.checks import choice, shown
from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.errors import SchemaError, UnsupportedError
from dgl_tuplepack.graphs.blocks import EdgeType, GraphType


class Structure:
    """The methods of a DGLGraph about its types, numbers of nodes and edges, end nodes, and the graphs of a batch."""

    is_block = False

    # By node type, then by canonical edge type: the number of nodes or edges, and their features by name.
    sizes: dict[GraphType, int]
    frames: dict[GraphType, dict[str, Tensor]]
    relations: dict[EdgeType, Relation]
    # By type, if given: the number of nodes or edges in each graph, and the index of the graph of each node or edge.
    _counts: dict[GraphType, Tensor]
    _slots: dict[GraphType, Tensor]

    # Types.

    @property
    def ntypes(self) -> list[str]:
        """Node types."""
        return [each for each in self.sizes if isinstance(each, str)]

    @property
    def etypes(self) -> list[str]:
        """Middle names of the edge types."""
        return [each[1] for each in self.relations]

    @property
    def canonical_etypes(self) -> list[EdgeType]:
        """Edge types: source node type, edge type, destination node type."""
        return list(self.relations)

    @property
    def srctypes(self) -> list[str]:
        """Node types that edges begin in, and node types without edges; all node types unless `is_unibipartite`."""
        destinations = [each[2] for each in self.relations] if self.is_unibipartite else []
        return [each for each in self.ntypes if each not in destinations]

    @property
    def dsttypes(self) -> list[str]:
        """Node types that edges end in; all node types unless `is_unibipartite`."""
        destinations = [each[2] for each in self.relations] if self.is_unibipartite else self.ntypes
        return [each for each in self.ntypes if each in destinations]

    @property
    def is_unibipartite(self) -> bool:
        """Whether there are edge types, and no node type is both a source and a destination."""
        destinations = [each[2] for each in self.relations]
        return bool(destinations) and not any(each[0] in destinations for each in self.relations)

    @property
    def is_homogeneous(self) -> bool:
        """Whether there is one node type and one edge type."""
        return len(self.ntypes) == len(self.relations) == 1

    def node_type(self, name: str | None, among: Sequence[str] | None = None) -> str:
        """Return `name` if it is in `among` (default: all node types); for None, return the only type in `among`."""
        types = self.ntypes if among is None else among
        if name is not None and name in types:
            return name
        if name is not None:
            raise SchemaError(f"the node type {shown(name)} is not in {types}; name one of these.")
        if len(types) == 1:
            return types[0]
        raise SchemaError(f"the graph has the node types {types}, but no type is named; name one of them.")

    def to_canonical_etype(self, etype: str | EdgeType | None) -> EdgeType:
        """Return the canonical edge type, given as a triple or by its middle name; for None, the only edge type."""
        known = self.canonical_etypes
        fitting = [each for each in known if etype is None or etype in (each, each[1])]
        if len(fitting) == 1:
            return fitting[0]
        if etype is None:
            raise SchemaError(f"the graph has the edge types {known}, but no type is named; name one of them.")
        if fitting:
            raise SchemaError(f"the edge type {etype!r} is ambiguous; give one of {fitting}.")
        raise SchemaError(f"unknown edge type {shown(etype)}; the graph has {known}.")

    def get_ntype_id(self, ntype: str | None) -> int:
        """Return the position of a node type in `ntypes`."""
        return self.ntypes.index(self.node_type(ntype))

    get_ntype_id_from_src = get_ntype_id
    get_ntype_id_from_dst = get_ntype_id

    def get_etype_id(self, etype: str | EdgeType | None) -> int:
        """Return the position of an edge type in `canonical_etypes`."""
        return self.canonical_etypes.index(self.to_canonical_etype(etype))

    # Numbers.

    def num_nodes(self, ntype: str | None = None) -> int:
        """Return the number of nodes of a type, or of all types."""
        return self._count(ntype, self.ntypes)

    def num_src_nodes(self, ntype: str | None = None) -> int:
        """Return the number of nodes of one source type, or of all `srctypes`."""
        return self._count(ntype, self.srctypes)

    def num_dst_nodes(self, ntype: str | None = None) -> int:
        """Return the number of nodes of one destination type, or of all `dsttypes`."""
        return self._count(ntype, self.dsttypes)

    number_of_nodes = num_nodes
    number_of_src_nodes = num_src_nodes
    number_of_dst_nodes = num_dst_nodes

    def _count(self, ntype: str | None, among: list[str]) -> int:
        """Return the number of nodes of the type `ntype`, which must be in `among`; None: of all types in `among`."""
        return sum(self.sizes[each] for each in (among if ntype is None else [self.node_type(ntype, among)]))

    def num_edges(self, etype: str | EdgeType | None = None) -> int:
        """Return the number of edges of a type, or of all types."""
        types = self.canonical_etypes if etype is None else [self.to_canonical_etype(etype)]
        return sum(self.sizes[each] for each in types)

    number_of_edges = num_edges

    def in_degrees(self, v: Any = "__ALL__", etype: str | EdgeType | None = None) -> Tensor:
        """Return the number of edges that end in each node, or in each of the nodes `v`."""
        return self._of_nodes(self.relations[self.to_canonical_etype(etype)].by_dst.counts(), v)

    def out_degrees(self, u: Any = "__ALL__", etype: str | EdgeType | None = None) -> Tensor:
        """Return the number of edges that begin in each node, or in each of the nodes `u`."""
        return self._of_nodes(self.relations[self.to_canonical_etype(etype)].by_src.counts(), u)

    def _of_nodes(self, degrees: Tensor, nodes: Any) -> Tensor:
        """Return the degrees of `nodes`; of all nodes if `nodes` is a string."""
        degrees = degrees.to(self.idtype)
        return degrees if isinstance(nodes, str) else degrees[nodes]

    def node_ids(self, node_type: str) -> Tensor:
        """Return the ids of the nodes of a type: 0..V-1."""
        return torch.arange(self.sizes[node_type], dtype=self.idtype, device=self.device)

    # Batches.

    @property
    def batch_size(self) -> int:
        """Number of graphs."""
        return next(iter(self._counts.values())).shape[0] if self._counts else 1

    def batch_num_nodes(self, ntype: str | None = None) -> Tensor:
        """Return the number of nodes of each graph."""
        return self._numbers(self.node_type(ntype))

    def batch_num_edges(self, etype: str | EdgeType | None = None) -> Tensor:
        """Return the number of edges of each graph."""
        return self._numbers(self.to_canonical_etype(etype))

    def node_graph_slots(self, ntype: str | None = None) -> Tensor:
        """Return the index of the graph of each node, int64 ``[V]``."""
        return self._graph_slots(self.node_type(ntype))

    def edge_graph_slots(self, etype: str | EdgeType | None = None) -> Tensor:
        """Return the index of the graph of each edge, int64 ``[E]``."""
        return self._graph_slots(self.to_canonical_etype(etype))

    def _numbers(self, known: GraphType) -> Tensor:
        """Return the number of nodes or edges of a type in each graph; without given numbers, there is one graph."""
        given = self._counts.get(known)
        return torch.tensor([self.sizes[known]], device=self.device) if given is None else given

    def _graph_slots(self, known: GraphType) -> Tensor:
        """Return the index of the graph of each node or edge of a type, as given, or else computed."""
        given = self._slots.get(known)
        return groups_of(self._numbers(known), self.sizes[known]) if given is None else given

    def by_graph(self, known: GraphType) -> Groups:
        """Return the nodes or edges of a type as groups, one for each graph."""
        counts = self._numbers(known)
        return Groups(self._graph_slots(known), counts.shape[0], counts)

    # Edges.

    def all_edges(self, form: str = "uv", order: str = "eid", etype: str | EdgeType | None = None) -> Any:
        """Return source and destination nodes of all edges ("uv"), ids of the edges ("eid"), or all three ("all")."""
        if order not in ("eid", None):
            raise UnsupportedError(f"a TensorGraph returns edges only in the order 'eid', not {order!r}.")
        choice("form of edges", form, ("uv", "eid", "all"), SchemaError)
        relation = self.relations[self.to_canonical_etype(etype)]
        if form == "eid":
            return relation.ids()
        return (relation.src, relation.dst) if form == "uv" else (relation.src, relation.dst, relation.ids())

    def find_edges(self, eid: Any, etype: str | EdgeType | None = None) -> tuple[Tensor, Tensor]:
        """Return source and destination nodes of the edges with the ids `eid`."""
        relation = self.relations[self.to_canonical_etype(etype)]
        numbers = torch.as_tensor(eid, device=self.device)
        return relation.src[numbers], relation.dst[numbers]

    # Devices and dtypes.

    @property
    def device(self) -> torch.device:
        """Device of the tensors; all of them are on one device."""
        for relation in self.relations.values():
            return relation.src.device
        for frame in self.frames.values():
            for tensor in frame.values():
                return tensor.device
        return torch.device("cpu")

    @property
    def idtype(self) -> torch.dtype:
        """Integer dtype of the end nodes of edges, read from the first edge type; int64 if there are no edge types."""
        for relation in self.relations.values():
            return relation.src.dtype
        return torch.int64

    def is_pinned(self) -> bool:
        """Return whether the end nodes of all edges are in pinned memory."""
        return all(each.src.is_pinned() and each.dst.is_pinned() for each in self.relations.values())


class Groups:
    """Rows 0..E-1, each in one group. Methods use only operations of torch, so every device and compiler can run them.

    `index` is the group of each row, int64 ``[E]``, and `number` the number of groups.
    """

    def __init__(self, index: Tensor, number: int, counts: Tensor | None = None) -> None:
        self.index, self.number, self._counts = index, number, counts

    def counts(self) -> Tensor:
        """Return the number of rows in each group, integers ``[number]``, as given, or else computed."""
        return self.sum(torch.ones_like(self.index)) if self._counts is None else self._counts

    def gather(self, values: Tensor) -> Tensor:
        """Return, for each row, the value of its group: ``[E, ...]``, from `values` ``[number, ...]``."""
        _check_length(values, self.number, "groups")
        return values.index_select(0, self.index)

    def sum(self, values: Tensor) -> Tensor:
        """Return sums ``[number, ...]`` of the values ``[E, ...]`` of each group; 0 for empty groups."""
        _check_length(values, self.index.shape[0], "rows")
        return values.new_zeros((self.number, *values.shape[1:])).index_add_(0, self.index, values)

    def mean(self, values: Tensor) -> Tensor:
        """Return means ``[number, ...]`` of the values of each group; 0 for empty groups."""
        total = self.sum(values)
        return total / self.counts().clamp(min=1).to(total.dtype).view(-1, *(1,) * (total.dim() - 1))

    def reduce(self, values: Tensor, how: str, fill: float = 0.0) -> Tensor:
        """Return the sum, mean, max or min of the values ``[E, ...]`` of each group.

        For empty groups, sums and means are 0; maxima and minima are `fill`.
        """
        if how in ("max", "min"):
            return self.extreme(values, how == "max", fill)
        return self.sum(values) if how == "sum" else self.mean(values)

    def extreme(self, values: Tensor, largest: bool, fill: float = 0.0) -> Tensor:
        """Return the largest or smallest of the values ``[E, ...]`` of each group, element by element.

        The gradient goes to the first row that has the extreme. NaN counts as the extreme, and gets no gradient.
        """
        num_rows = values.shape[0]
        result = self._extreme(values.detach(), "amax" if largest else "amin", fill)
        if not values.requires_grad:
            return result
        if num_rows == 0:
            # Without rows, add 0, so that for autograd the result still depends on the values.
            return result + values.sum() * 0
        # `candidates`: for each entry, the index of its row if it is the extreme of its group, else `num_rows`.
        # `first`: for each group, the index of the first row that has the extreme, else `num_rows`.
        order = torch.arange(num_rows, device=values.device).view(-1, *(1,) * (values.dim() - 1)).expand_as(values)
        candidates = torch.where(values == result.index_select(0, self.index), order, num_rows)
        first = self._extreme(candidates, "amin", num_rows)
        return torch.where(first < num_rows, values.gather(0, first.clamp(max=num_rows - 1)), result)

    def _extreme(self, values: Tensor, how: str, fill: float) -> Tensor:
        """Return the maximum ("amax") or minimum ("amin") of each group; `fill` for empty groups."""
        _check_length(values, self.index.shape[0], "rows")
        groups = self.index.view(-1, *(1,) * (values.dim() - 1)).expand_as(values)
        result = values.new_full((self.number, *values.shape[1:]), fill)
        return result.scatter_reduce_(0, groups, values, how, include_self=False)

    def softmax(self, values: Tensor) -> Tensor:
        """Return the softmax ``[E, ...]`` of the values of each group."""
        powers = torch.exp(values - self.gather(self._extreme(values.detach(), "amax", 0)))
        return powers / self.gather(self.sum(powers))


class Relation:
    """Edges of one type: the end nodes of each edge, int32 or int64 ``[E]``, and the numbers of nodes of both types."""

    def __init__(self, src: Tensor, dst: Tensor, num_src: int, num_dst: int) -> None:
        self.src, self.dst = src, dst
        # Torch indexes rows by int64.
        self.by_src = Groups(src.long(), num_src)
        self.by_dst = Groups(dst.long(), num_dst)

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.src.shape[0]

    def ids(self) -> Tensor:
        """Return the ids of the edges: 0..E-1."""
        return torch.arange(self.num_edges, dtype=self.src.dtype, device=self.src.device)

    def mapped(self, changed: Callable[[Tensor], Tensor]) -> Relation:
        """Return the edges with `changed` applied to their source nodes and destination nodes."""
        return Relation(changed(self.src), changed(self.dst), self.by_src.number, self.by_dst.number)

    def reversed(self) -> Relation:
        """Return the edges with source and destination swapped."""
        return Relation(self.dst, self.src, self.by_dst.number, self.by_src.number)


def groups_of(counts: Tensor, rows: int) -> Tensor:
    """Return the group of each row, int64 ``[rows]``, a static shape; group g has `counts[g]` consecutive rows."""
    if is_readable(counts) and int(counts.sum()) != rows:
        raise SchemaError(
            f"numbers of nodes or edges in each graph must add up to {rows}, but add up to {int(counts.sum())}."
        )
    groups = torch.arange(counts.shape[0], device=counts.device)
    return torch.repeat_interleave(groups, counts.long(), output_size=rows)


def is_readable(tensor: Tensor) -> bool:
    """Return whether values can be read without waiting for a device or breaking a trace."""
    return type(tensor) is Tensor and tensor.is_cpu and not is_traced()


def _check_length(values: Tensor, number: int, what: str) -> None:
    if values.dim() == 0 or values.shape[0] != number:
        raise SchemaError(
            f"values have shape {tuple(values.shape)}, but there are {number} {what}; give one value for each."
        )


class FeatureView(MutableMapping[str, Any]):
    """Mapping from feature names to tensors or, with several node (edge) types, to dicts: type -> tensor."""

    def __init__(self, graph: Structure, types: Sequence[GraphType]) -> None:
        self._graph, self._types = graph, types

    def _frames(self) -> list[dict[str, Tensor]]:
        # Read them from the graph each time, since `local_scope` replaces the frames.
        return [self._graph.frames[each] for each in self._types]

    def __getitem__(self, name: str) -> Any:
        if len(self._types) == 1:
            return self._frames()[0][name]
        return {each: frame[name] for each, frame in zip(self._types, self._frames(), strict=True) if name in frame}

    def __setitem__(self, name: str, value: Any) -> None:
        if len(self._types) != 1 and not isinstance(value, Mapping):
            raise SchemaError(
                f"feature {name!r} of the types {self._types} must be a dict by type, but is {type(value).__name__}."
            )
        # An edge type may be given by its middle name; `known` is the full type.
        for of_type, tensor in ({self._types[0]: value} if len(self._types) == 1 else value).items():
            known = of_type if of_type in self._graph.ntypes else self._graph.to_canonical_etype(of_type)
            _check_feature(name, tensor, self._graph.sizes[known], known)
            self._graph.frames[known][name] = tensor

    def __delitem__(self, name: str) -> None:
        if len(self._types) == 1:
            del self._frames()[0][name]
        for frame in self._frames():
            frame.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for frame in self._frames() for name in frame))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return any(name in frame for frame in self._frames())

    def __repr__(self) -> str:
        return repr(dict(self))


def _check_feature(name: str, value: Any, number: int, of_type: GraphType) -> None:
    """Raise SchemaError unless a feature is a tensor with one row for each of the `number` nodes or edges."""
    owners = f"{'nodes' if isinstance(of_type, str) else 'edges'} of type {of_type!r}"
    if not isinstance(value, Tensor):
        raise SchemaError(f"feature {name!r} of the {owners} must be a tensor, but is {type(value).__name__}.")
    if value.dim() == 0 or value.shape[0] != number:
        raise SchemaError(
            f"feature {name!r} has shape {tuple(value.shape)}, but there are {number} {owners}; give one row for each."
        )


class Space(NamedTuple):
    """The value of ``graph.nodes[TYPE]`` or ``graph.edges[TYPE]``."""

    data: FeatureView


class TypeView:
    """The views ``graph.nodes`` and ``graph.edges``: ``view[TYPE].data`` has features, and ``view(...)`` is `call`."""

    def __init__(self, graph: Structure, find: Callable[[Any], GraphType], call: Callable[..., Any]) -> None:
        self._graph, self._find, self._call = graph, find, call

    def __getitem__(self, key: Any) -> Space:
        # ``[:]`` stands for the only type.
        key = None if isinstance(key, slice) and key == slice(None) else key
        if not (key is None or isinstance(key, str | tuple)):
            raise UnsupportedError(
                f"a view is indexed by a type, not by {shown(key)}; select rows of a feature: graph.ndata['x'][ids]."
            )
        return Space(FeatureView(self._graph, [self._find(key)]))

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        """Return ids of nodes, or end nodes of edges."""
        return self._call(*arguments, **settings)


class GatheredFeatures(Mapping[str, Tensor]):
    """Features of the source (destination) nodes of edges, one row for each edge, gathered when they are first read."""

    def __init__(self, frame: Mapping[str, Tensor], gather: Callable[[Tensor], Tensor]) -> None:
        self._frame, self._gather = frame, gather
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
