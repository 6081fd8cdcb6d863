"""Blocks: consecutive graphs as flat arrays. Sources yield blocks, and stores write blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    """B graphs of one schema, joined; they have V_t nodes of each node type t, and E_t edges of each edge type t.

    A source yields blocks of arrays. `joined` makes blocks of tensors on one device: the graphs of a batch.
    """

    # Number of nodes (edges) of each graph, int64 [B] for each type; node types come first.
    lengths: Mapping[Any, Any]
    # Source and destination node of each edge, integers [E_t]. In arrays, nodes are counted from 0 in each graph; in
    # tensors, across all graphs.
    endpoints: Mapping[EdgeType, tuple[Any, Any]]
    # Features [V_t, ...] and [E_t, ...], by type and name. Indices in them, and in labels, count from 0 in each graph.
    features: Mapping[Any, Mapping[str, Any]]
    # Labels [B, ...] by name. A single label has the empty name.
    labels: Mapping[str, Any]
    # The `Schema`, if earlier graphs may not have shown the features of all types.
    schema: Any = None
    # Only with tensors: the number of nodes (edges) of each type, and, with the key None, B. They are known on the CPU.
    totals: Mapping[Any, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.lengths.values())))

    @property
    def device(self) -> Any:
        """The device of the tensors."""
        return next(iter(self.lengths.values())).device

    def column(self, column: tuple[str, Any, str]) -> Any:
        """Return a feature or label. `column` is (content, type, name), such as ("node_feature", "_N", "x")."""
        _, t, name = column
        return self.labels[name] if t is None else self.features[t][name]

    def shifted(self, column: tuple[str, Any, str], target: GraphType | None) -> Any:
        """Return a column of tensors, with its indices counted across all graphs instead of in each graph.

        `target` is the type of the nodes (edges) that the column indexes; None for a column without indices.
        """
        values, t = self.column(column), column[1]
        if target is None:
            return values
        # The number of nodes (edges) of type `target` in earlier graphs.
        first = self.lengths[target].cumsum(0) - self.lengths[target]
        if t is not None:
            first = first.repeat_interleave(self.lengths[t], output_size=len(values))
        return values + first.to(values.dtype).reshape(-1, *[1] * (values.dim() - 1))
