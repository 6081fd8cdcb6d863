"""Blocks: consecutive graphs as flat arrays, which sources yield and stores write. Also the types of graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dgl_tuplepack.planning.sizes import HOMOGENEOUS, IntArray, edge_component, node_component

EdgeType = tuple[str, str, str]
# A node type or a canonical edge type.
GraphType = str | EdgeType
Array = NDArray[Any]

# Contents of columns for the two endpoints of edges, in stores and batches.
ENDS = ("sources", "destinations")
# The types of a homogeneous DGLGraph.
NODE_TYPE, EDGE_TYPE = "_N", ("_N", "_E", "_N")
# Separates the name of a named graph from one of its types, see `graphs.named`.
SEPARATOR = "/"


def public_type(t: Any) -> Any:
    """Return the public name of a type of named graphs. If a graph is homogeneous, its edges have its name, too."""
    return t[0] if isinstance(t, tuple) and SEPARATOR not in t[0] else t


def components_of(node_types: Sequence[str], edge_types: Sequence[GraphType], named: bool = False) -> tuple[str, ...]:
    """Return the names of the components of a size: node types, then edge types; ("nodes", "edges") for one of each.

    Set `named` if the types belong to named graphs.
    """
    if named:
        return (*map(node_component, node_types), *(edge_component(public_type(e)) for e in edge_types))
    if len(node_types) == len(edge_types) == 1:
        return HOMOGENEOUS
    return (*map(node_component, node_types), *map(edge_component, edge_types))


@dataclass(frozen=True)
class GraphBlock:
    """B consecutive graphs with V_t nodes and E_t edges in total of each type t."""

    # int64 [B] for each type.
    num_nodes: Mapping[str, IntArray]
    num_edges: Mapping[EdgeType, IntArray]
    # Source and destination node of each edge, integers [E_t]; nodes count from 0 in each graph.
    endpoints: Mapping[EdgeType, tuple[Array, Array]]
    # [V_t, ...] and [E_t, ...] by type and name.
    node_features: Mapping[str, Mapping[str, Array]]
    edge_features: Mapping[EdgeType, Mapping[str, Array]]
    # [B, ...] by name. A single label has the empty name; a block without labels has an empty dict.
    labels: Mapping[str, Array]

    def __len__(self) -> int:
        return len(next(iter(self.num_nodes.values())))

    def column(self, column: tuple[str, Any, str]) -> Array:
        """Return a feature or label by its content, type and name."""
        content, t, name = column
        by_type: Any = self.node_features if content == "node_feature" else self.edge_features
        values: Array = self.labels[name] if content == "label" else by_type[t][name]
        return values
