"""What a TensorGraph says of itself: types, numbers and edges."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._checks import shown
from dgl_tuplepack.errors import SchemaError, UnsupportedError
from dgl_tuplepack.graphs.blocks import EdgeType
from dgl_tuplepack.tensor_graph.degrees import traced
from dgl_tuplepack.tensor_graph.relation import Relation
from dgl_tuplepack.tensor_graph.types import Types


class Structure:
    """Types, numbers, edges and batch of a graph, as a DGLGraph tells them."""

    is_block = False

    types: Types
    node_frames: dict[str, dict[str, Tensor]]
    relations: dict[EdgeType, Relation]
    _num_nodes: dict[str, int]
    # Of each graph of a batch; None where all is one graph.
    _batch_num_nodes: dict[str, Tensor] | None
    _batch_num_edges: dict[EdgeType, Tensor] | None
    # Graph of each node and edge, where they are known.
    _node_slots: dict[str, Tensor] | None
    _edge_slots: dict[EdgeType, Tensor] | None

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
        """Node types that edges begin in; all types unless no type is both source and destination."""
        return self.types.source_types

    @property
    def dsttypes(self) -> list[str]:
        """Node types that edges end in; all types unless no type is both source and destination."""
        return self.types.destination_types

    @property
    def is_unibipartite(self) -> bool:
        """Whether no node type is both source and destination."""
        return self.types.is_unibipartite

    @property
    def is_homogeneous(self) -> bool:
        """Whether there is one node type and one edge type."""
        return len(self.types.node_types) == len(self.types.edge_types) == 1

    def to_canonical_etype(self, etype: str | EdgeType | None) -> EdgeType:
        """Return the canonical edge type of a name."""
        return self.types.edge_type(etype)

    def get_ntype_id(self, ntype: str | None) -> int:
        """Position of a node type."""
        return self.ntypes.index(self.types.node_type(ntype))

    get_ntype_id_from_src = get_ntype_id
    get_ntype_id_from_dst = get_ntype_id

    def get_etype_id(self, etype: str | EdgeType | None) -> int:
        """Position of an edge type."""
        return self.canonical_etypes.index(self.types.edge_type(etype))

    def _only_edge_type(self, key: Any) -> EdgeType:
        if not (isinstance(key, tuple) and len(key) == 3 and any(isinstance(each, slice) for each in key)):
            return self.types.edge_type(key)
        fitting = [
            each
            for each in self.canonical_etypes
            if all(isinstance(part, slice) or part == name for part, name in zip(key, each, strict=True))
        ]
        if len(fitting) != 1:
            raise UnsupportedError(
                f"graph[{shown(key)}] fits the edge types {fitting}; a TensorGraph gives the part of one edge type."
            )
        return fitting[0]

    # Numbers.

    def num_nodes(self, ntype: str | None = None) -> int:
        """Number of nodes of a type, or of all types."""
        return self._count(ntype, self.ntypes)

    def num_src_nodes(self, ntype: str | None = None) -> int:
        """Number of nodes of a type, or of all types, that edges begin in."""
        return self._count(ntype, self.srctypes)

    def num_dst_nodes(self, ntype: str | None = None) -> int:
        """Number of nodes of a type, or of all types, that edges end in."""
        return self._count(ntype, self.dsttypes)

    number_of_nodes = num_nodes
    number_of_src_nodes = num_src_nodes
    number_of_dst_nodes = num_dst_nodes

    def _count(self, ntype: str | None, among: list[str]) -> int:
        if ntype is None:
            return sum(self._num_nodes[each] for each in among)
        return self._num_nodes[self.types.node_type(ntype, among)]

    def num_edges(self, etype: str | EdgeType | None = None) -> int:
        """Number of edges of a type, or of all types."""
        if etype is None:
            return sum(relation.num_edges for relation in self.relations.values())
        return self.relations[self.types.edge_type(etype)].num_edges

    number_of_edges = num_edges

    def in_degrees(self, v: Any = "__ALL__", etype: str | EdgeType | None = None) -> Tensor:
        """Number of edges that end in each node, or in nodes `v`."""
        return self._of_nodes(self.relations[self.types.edge_type(etype)].by_dst.counts(), v)

    def out_degrees(self, u: Any = "__ALL__", etype: str | EdgeType | None = None) -> Tensor:
        """Number of edges that begin in each node, or in nodes `u`."""
        return self._of_nodes(self.relations[self.types.edge_type(etype)].by_src.counts(), u)

    def _of_nodes(self, degrees: Tensor, nodes: Any) -> Tensor:
        degrees = degrees.to(self.idtype)
        degrees = degrees if isinstance(nodes, str) else degrees[nodes]
        return traced(degrees) if torch.compiler.is_compiling() else degrees

    def node_numbers(self, node_type: str) -> Tensor:
        """Numbers of the nodes of a type: 0..V-1."""
        return torch.arange(self._num_nodes[node_type], dtype=self.idtype, device=self.device)

    # Batches.

    @property
    def batch_size(self) -> int:
        """Number of graphs."""
        if self._batch_num_nodes is None:
            return 1
        return next(iter(self._batch_num_nodes.values())).shape[0]

    def batch_num_nodes(self, ntype: str | None = None) -> Tensor:
        """Number of nodes of each graph."""
        known = self.types.node_type(ntype)
        if self._batch_num_nodes is None:
            return torch.tensor([self._num_nodes[known]], device=self.device)
        return self._batch_num_nodes[known]

    def batch_num_edges(self, etype: str | EdgeType | None = None) -> Tensor:
        """Number of edges of each graph."""
        known = self.types.edge_type(etype)
        if self._batch_num_edges is None:
            return torch.tensor([self.relations[known].num_edges], device=self.device)
        return self._batch_num_edges[known]

    def node_graph_slots(self, ntype: str | None = None) -> Tensor:
        """Graph of each node, int64 ``[V]``."""
        known = self.types.node_type(ntype)
        if self._node_slots is not None:
            return self._node_slots[known]
        return _slots(self.batch_num_nodes(known), self._num_nodes[known])

    def edge_graph_slots(self, etype: str | EdgeType | None = None) -> Tensor:
        """Graph of each edge, int64 ``[E]``."""
        known = self.types.edge_type(etype)
        if self._edge_slots is not None:
            return self._edge_slots[known]
        return _slots(self.batch_num_edges(known), self.relations[known].num_edges)

    # Edges.

    def all_edges(self, form: str = "uv", order: str = "eid", etype: str | EdgeType | None = None) -> Any:
        """Source and destination nodes of all edges ("uv"), their numbers ("eid"), or all three of them ("all")."""
        if order not in ("eid", None):
            raise UnsupportedError(f"a TensorGraph gives edges in their own order, 'eid', but was asked for {order!r}.")
        relation = self.relations[self.types.edge_type(etype)]
        if form == "uv":
            return relation.src, relation.dst
        if form == "eid":
            return relation.numbers()
        if form == "all":
            return relation.src, relation.dst, relation.numbers()
        raise SchemaError(f"unknown form {shown(form)} of edges; choose 'uv', 'eid' or 'all'.")

    def find_edges(self, eid: Any, etype: str | EdgeType | None = None) -> tuple[Tensor, Tensor]:
        """Source and destination nodes of some edges."""
        relation = self.relations[self.types.edge_type(etype)]
        numbers = torch.as_tensor(eid, device=self.device)
        return relation.src[numbers], relation.dst[numbers]

    # Where the tensors are.

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        for relation in self.relations.values():
            return relation.src.device
        for frame in self.node_frames.values():
            for tensor in frame.values():
                return tensor.device
        return torch.device("cpu")

    @property
    def idtype(self) -> torch.dtype:
        """Integer dtype of the end nodes of edges."""
        for relation in self.relations.values():
            return relation.src.dtype
        return torch.int64

    def is_pinned(self) -> bool:
        """Whether the tensors are in pinned memory."""
        return all(each.src.is_pinned() and each.dst.is_pinned() for each in self.relations.values())


def _slots(numbers: Tensor, total: int) -> Tensor:
    """Graph of each of `total` nodes or edges."""
    graphs = torch.arange(numbers.shape[0], device=numbers.device)
    return torch.repeat_interleave(graphs, numbers.long(), output_size=total)
