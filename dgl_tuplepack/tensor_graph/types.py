"""Names of the node and edge types of a graph, and how they are looked up."""

from __future__ import annotations

from collections.abc import Sequence

from dgl_tuplepack._checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType


class Types:
    """Node types and canonical edge types of a graph, in their order."""

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
        """Return a node type; the only one if `name` is None."""
        types = self.node_types if among is None else among
        if name is not None and name in types:
            return name
        if name is not None:
            raise SchemaError(f"unknown node type {shown(name)}; the graph has {types}.")
        if len(types) == 1:
            return types[0]
        raise SchemaError(f"the graph has the node types {types}, but no type is named; name one of them.")

    def edge_type(self, name: str | EdgeType | None) -> EdgeType:
        """Return a canonical edge type, also from its middle name; the only one if `name` is None."""
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
