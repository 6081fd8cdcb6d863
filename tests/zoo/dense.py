"""Rows of a batch as a dense tensor with a fixed number of slots for each graph, and back."""

from __future__ import annotations

from typing import Any

import dgl
import torch
from torch import Tensor


class Dense:
    """The place of each node of a batch in ``[B, most]``; nodes beyond, which only padding has, share an extra row.

    Attributes
    ----------
    real
        Bool ``[B, most]``, True for slots of nodes.
    """

    def __init__(self, graph: Any, most: int) -> None:
        counts = graph.batch_num_nodes()
        self.graphs, self.most = len(counts), most
        first = dgl.broadcast_nodes(graph, (counts.cumsum(0) - counts).unsqueeze(1))[:, 0]
        slots = dgl.broadcast_nodes(graph, torch.arange(self.graphs, device=counts.device).unsqueeze(1))[:, 0]
        place = torch.arange(len(slots), device=counts.device) - first
        self.index = torch.where(place < most, slots * most + place, self.graphs * most)
        self.real = torch.arange(most, device=counts.device) < counts.unsqueeze(1)

    def spread(self, rows: Tensor) -> Tensor:
        """Return ``[B, most, ...]``, with 0 where no node is."""
        flat = rows.new_zeros(self.graphs * self.most + 1, *rows.shape[1:]).index_add(0, self.index, rows)
        return flat[:-1].view(self.graphs, self.most, *rows.shape[1:])

    def gather(self, values: Tensor) -> Tensor:
        """Return the rows of the nodes; those beyond have that of the last slot."""
        flat = values.flatten(0, 1)
        return flat[self.index.clamp(max=len(flat) - 1)]
