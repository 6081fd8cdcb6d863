"""A run of graphs as flat arrays: what sources deliver and a store writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dgl_tuplepack.sizes import IntArray

EdgeType = tuple[str, str, str]
# A node type or a canonical edge type.
GraphType = str | EdgeType
Array = NDArray[Any]

# The types of a homogeneous DGLGraph.
NODE_TYPE, EDGE_TYPE = "_N", ("_N", "_E", "_N")


@dataclass(frozen=True)
class GraphBlock:
    """B graphs one after the other; V_t nodes and E_t edges in all of each type.

    Attributes
    ----------
    num_nodes, num_edges
        int64 ``[B]`` for each type.
    endpoints
        Source and destination of each edge, integers ``[E_t]``, counted from 0 in each graph.
    node_features, edge_features
        ``[V_t, ...]`` and ``[E_t, ...]`` by type and name.
    labels
        ``[B, ...]`` by name; the empty name for a single label, nothing where there is none.
    """

    num_nodes: Mapping[str, IntArray]
    num_edges: Mapping[EdgeType, IntArray]
    endpoints: Mapping[EdgeType, tuple[Array, Array]]
    node_features: Mapping[str, Mapping[str, Array]]
    edge_features: Mapping[EdgeType, Mapping[str, Array]]
    labels: Mapping[str, Array]

    def __len__(self) -> int:
        return len(next(iter(self.num_nodes.values())))
