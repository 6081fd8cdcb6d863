"""Graphs of one schema joined into tensors, from which padded batches and blocks are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack.graphs.blocks import EdgeType, GraphType
from dgl_tuplepack.graphs.relations import Column


@dataclass(frozen=True)
class JoinedGraphs:
    """B graphs of one schema, joined, with their labels, on one device.

    Endpoints are counted from 0 across all graphs. Indices in columns (features and labels) are counted from 0 in each
    graph.
    """

    # Number of nodes or edges of each type; the key None has the number of graphs.
    numbers: dict[Any, int]
    # Number of nodes or edges of each type in each graph, int64 [B].
    lengths: dict[GraphType, Tensor]
    # Source and destination node of each edge, [E].
    ends: dict[EdgeType, tuple[Tensor, Tensor]]
    # Features [V, ...] and [E, ...], and labels [B, ...]. A key is (content, type, name); a label has the type None.
    columns: dict[Column, Tensor]

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return next(iter(self.lengths.values())).device

    def shifted(self, column: Column, target: GraphType | None) -> Tensor:
        """Return a column, with its indices counted across all graphs instead of in each graph.

        `target` is the type of the nodes (edges) that the column indexes; None for a column without indices.
        """
        values, t = self.columns[column], column[1]
        if target is None:
            return values
        # The number of nodes (edges) of type `target` in earlier graphs.
        first = torch.cumsum(self.lengths[target], 0) - self.lengths[target]
        if t is not None:
            first = torch.repeat_interleave(first, self.lengths[t], output_size=len(values))
        return values + first.to(values.dtype).reshape(-1, *[1] * (values.dim() - 1))
