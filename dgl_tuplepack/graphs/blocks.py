"""Blocks: consecutive graphs as flat arrays. Sources yield blocks, and stores write blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack.planning.sizes import HOMOGENEOUS, IntArray, edge_component, node_component

EdgeType = tuple[str, str, str]
GraphType = str | EdgeType
Array = NDArray[Any]

# Names of the two columns that hold the endpoints of edges, in stores and batches.
ENDS = ("sources", "destinations")
# The types of a homogeneous DGLGraph.
NODE_TYPE, EDGE_TYPE = "_N", ("_N", "_E", "_N")
# Stands between the name of a graph and one of its types, as in "mol/C"; see `graphs.named`.
SEPARATOR = "/"


def public_type(t: Any) -> Any:
    """Return a type of named graphs as users write it: an edge type of a homogeneous graph becomes the graph's name."""
    return t[0] if isinstance(t, tuple) and SEPARATOR not in t[0] else t


def components_of(node_types: Sequence[str], edge_types: Sequence[GraphType], named: bool = False) -> tuple[str, ...]:
    """Return the names of the components of a size: node types, then edge types.

    Set `named` if the types belong to named graphs.
    """
    if named:
        return (*map(node_component, node_types), *(edge_component(public_type(e)) for e in edge_types))
    if len(node_types) == len(edge_types) == 1:
        return HOMOGENEOUS
    return (*map(node_component, node_types), *map(edge_component, edge_types))


def rows_of_spans(first: IntArray, lengths: IntArray) -> IntArray:
    """Return the integers of all spans, one span after the other; span i is ``first[i]:first[i] + lengths[i]``."""
    return np.repeat(first - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())


@dataclass(frozen=True)
class GraphBlock:
    """B consecutive graphs. Together they have V_t nodes of each node type t, and E_t edges of each edge type t."""

    # Number of nodes (edges) of each graph, int64 [B] for each type.
    num_nodes: Mapping[str, IntArray]
    num_edges: Mapping[EdgeType, IntArray]
    # Source and destination node of each edge, integers [E_t]; nodes are counted from 0 in each graph.
    endpoints: Mapping[EdgeType, tuple[Array, Array]]
    # Features [V_t, ...] and [E_t, ...], by type and name.
    node_features: Mapping[str, Mapping[str, Array]]
    edge_features: Mapping[EdgeType, Mapping[str, Array]]
    # Labels [B, ...] by name. A single label has the empty name.
    labels: Mapping[str, Array]
    # The `Schema`, if earlier graphs may not have shown the features of all types.
    schema: Any = None

    def __len__(self) -> int:
        return len(next(iter(self.num_nodes.values())))

    def column(self, column: tuple[str, Any, str]) -> Array:
        """Return a feature or label. `column` is (content, type, name), such as ("node_feature", "_N", "x")."""
        content, t, name = column
        by_type: Any = self.node_features if content == "node_feature" else self.edge_features
        values: Array = self.labels[name] if content == "label" else by_type[t][name]
        return values
