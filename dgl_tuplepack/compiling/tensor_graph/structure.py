"""The structure of a TensorGraph: types, numbers of nodes and edges, and the end nodes of the edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._core.checks import choice, shown
from dgl_tuplepack.compiling.tensor_graph.groups import Relation, groups_of
from dgl_tuplepack.errors import SchemaError, UnsupportedError
from dgl_tuplepack.graphs.blocks import EdgeType, GraphType


class Types:
    """Node types and canonical edge types of a graph, in the given order."""

    def __init__(self, node_types: Sequence[str], edge_types: Sequence[EdgeType]) -> None:
        self.node_types = list(node_types)
        self.edge_types = list(edge_types)
        sources = [source for source, _, _ in edge_types]
        destinations = [destination for _, _, destination in edge_types]
        self.is_unibipartite = bool(edge_types) and not any(each in destinations for each in sources)
        self.source_types = self.destination_types = self.node_types
        if self.is_unibipartite:
            self.destination_types = [each for each in node_types if each in destinations]
            self.source_types = [each for each in node_types if each not in destinations]

    def node_type(self, name: str | None, among: Sequence[str] | None = None) -> str:
        """Return `name` if it is in `among` (default: all node types); for None, return the only type in `among`."""
        types = self.node_types if among is None else among
        if name is not None and name in types:
            return name
        if name is not None:
            raise SchemaError(f"the node type {shown(name)} is not in {types}; name one of these.")
        if len(types) == 1:
            return types[0]
        raise SchemaError(f"the graph has the node types {types}, but no type is named; name one of them.")

    def edge_type(self, name: str | EdgeType | None) -> EdgeType:
        """Return the canonical edge type, given as a triple or by its middle name; for None, the only edge type."""
        fitting = [each for each in self.edge_types if name is None or name in (each, each[1])]
        if len(fitting) == 1:
            return fitting[0]
        if name is None:
            raise SchemaError(
                f"the graph has the edge types {self.edge_types}, but no type is named; name one of them."
            )
        if fitting:
            raise SchemaError(f"the edge type {name!r} is ambiguous; give one of {fitting}.")
        raise SchemaError(f"unknown edge type {shown(name)}; the graph has {self.edge_types}.")


class Structure:
    """The methods of a DGLGraph about its types, numbers of nodes and edges, end nodes, and the graphs of a batch."""

    is_block = False

    types: Types
    relations: dict[EdgeType, Relation]
    # By node type and by edge type: the number of nodes or edges, and their features by name.
    rows: dict[GraphType, int]
    frames: dict[GraphType, dict[str, Tensor]]
    # By type, if given: the number of nodes or edges in each graph, and the index of the graph of each node or edge.
    _counts: dict[GraphType, Tensor]
    _slots: dict[GraphType, Tensor]

    # Types.

    @property
    def ntypes(self) -> list[str]:
        """Node types."""
        return self.types.node_types

    @property
    def etypes(self) -> list[str]:
        """Middle names of the edge types."""
        return [each[1] for each in self.types.edge_types]

    @property
    def canonical_etypes(self) -> list[EdgeType]:
        """Edge types: source node type, edge type, destination node type."""
        return self.types.edge_types

    @property
    def srctypes(self) -> list[str]:
        """Node types that edges begin in, and node types without edges; all node types unless `is_unibipartite`."""
        return self.types.source_types

    @property
    def dsttypes(self) -> list[str]:
        """Node types that edges end in; all node types unless `is_unibipartite`."""
        return self.types.destination_types

    @property
    def is_unibipartite(self) -> bool:
        """Whether there are edge types, and no node type is both a source and a destination."""
        return self.types.is_unibipartite

    @property
    def is_homogeneous(self) -> bool:
        """Whether there is one node type and one edge type."""
        return len(self.types.node_types) == len(self.types.edge_types) == 1

    def to_canonical_etype(self, etype: str | EdgeType | None) -> EdgeType:
        """Return the canonical edge type, given as a triple or by its middle name."""
        return self.types.edge_type(etype)

    def get_ntype_id(self, ntype: str | None) -> int:
        """Return the position of a node type in `ntypes`."""
        return self.ntypes.index(self.types.node_type(ntype))

    get_ntype_id_from_src = get_ntype_id
    get_ntype_id_from_dst = get_ntype_id

    def get_etype_id(self, etype: str | EdgeType | None) -> int:
        """Return the position of an edge type in `canonical_etypes`."""
        return self.canonical_etypes.index(self.types.edge_type(etype))

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
        return sum(self.rows[each] for each in (among if ntype is None else [self.types.node_type(ntype, among)]))

    def num_edges(self, etype: str | EdgeType | None = None) -> int:
        """Return the number of edges of a type, or of all types."""
        types = self.types.edge_types if etype is None else [self.types.edge_type(etype)]
        return sum(self.rows[each] for each in types)

    number_of_edges = num_edges

    def in_degrees(self, v: Any = "__ALL__", etype: str | EdgeType | None = None) -> Tensor:
        """Return the number of edges that end in each node, or in each of the nodes `v`."""
        return self._of_nodes(self.relations[self.types.edge_type(etype)].by_dst.counts(), v)

    def out_degrees(self, u: Any = "__ALL__", etype: str | EdgeType | None = None) -> Tensor:
        """Return the number of edges that begin in each node, or in each of the nodes `u`."""
        return self._of_nodes(self.relations[self.types.edge_type(etype)].by_src.counts(), u)

    def _of_nodes(self, degrees: Tensor, nodes: Any) -> Tensor:
        """Return the degrees of `nodes`; of all nodes if `nodes` is a string."""
        degrees = degrees.to(self.idtype)
        return degrees if isinstance(nodes, str) else degrees[nodes]

    def node_numbers(self, node_type: str) -> Tensor:
        """Return the ids of the nodes of a type: 0..V-1."""
        return torch.arange(self.rows[node_type], dtype=self.idtype, device=self.device)

    # Batches.

    @property
    def batch_size(self) -> int:
        """Number of graphs."""
        return next(iter(self._counts.values())).shape[0] if self._counts else 1

    def batch_num_nodes(self, ntype: str | None = None) -> Tensor:
        """Return the number of nodes of each graph."""
        return self._numbers(self.types.node_type(ntype))

    def batch_num_edges(self, etype: str | EdgeType | None = None) -> Tensor:
        """Return the number of edges of each graph."""
        return self._numbers(self.types.edge_type(etype))

    def node_graph_slots(self, ntype: str | None = None) -> Tensor:
        """Return the index of the graph of each node, int64 ``[V]``."""
        return self._graph_slots(self.types.node_type(ntype))

    def edge_graph_slots(self, etype: str | EdgeType | None = None) -> Tensor:
        """Return the index of the graph of each edge, int64 ``[E]``."""
        return self._graph_slots(self.types.edge_type(etype))

    def _numbers(self, known: GraphType) -> Tensor:
        """Return the number of nodes or edges of a type in each graph; without given numbers, there is one graph."""
        given = self._counts.get(known)
        return torch.tensor([self.rows[known]], device=self.device) if given is None else given

    def _graph_slots(self, known: GraphType) -> Tensor:
        """Return the index of the graph of each node or edge of a type, as given, or else computed."""
        given = self._slots.get(known)
        return groups_of(self._numbers(known), self.rows[known]) if given is None else given

    # Edges.

    def all_edges(self, form: str = "uv", order: str = "eid", etype: str | EdgeType | None = None) -> Any:
        """Return source and destination nodes of all edges ("uv"), ids of the edges ("eid"), or all three ("all")."""
        if order not in ("eid", None):
            raise UnsupportedError(
                f"a TensorGraph returns edges only in the order of their ids, 'eid', but order is {order!r}."
            )
        choice("form of edges", form, ("uv", "eid", "all"), SchemaError)
        relation = self.relations[self.types.edge_type(etype)]
        if form == "uv":
            return relation.src, relation.dst
        return relation.numbers() if form == "eid" else (relation.src, relation.dst, relation.numbers())

    def find_edges(self, eid: Any, etype: str | EdgeType | None = None) -> tuple[Tensor, Tensor]:
        """Return source and destination nodes of the edges with the ids `eid`."""
        relation = self.relations[self.types.edge_type(etype)]
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
