"""Message passing of PyG by edges and by a sparse matrix, for `benchmark.py fusion`; needs PyG."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import spmm


class Neighbours(MessagePassing):
    """Sum of the neighbours' features."""

    def forward(self, edge_index: Any, x: Tensor) -> Tensor:
        """Send messages along the edges."""
        result: Tensor = self.propagate(edge_index, x=x)
        return result

    def message(self, x_j: Tensor) -> Tensor:
        """The features of the source node."""
        return x_j

    def message_and_aggregate(self, adj_t: Any, x: Tensor) -> Tensor:
        """What PyG does instead where the edges are a sparse matrix."""
        result: Tensor = spmm(adj_t, x)
        return result


class WithEdges(MessagePassing):
    """Sum of relu(features of the neighbour + features of the edge)."""

    def forward(self, edge_index: Any, x: Tensor, e: Tensor) -> Tensor:
        """Send messages along the edges."""
        result: Tensor = self.propagate(edge_index, x=x, e=e)
        return result

    def message(self, x_j: Tensor, e: Tensor) -> Tensor:
        """Features of the source node and of the edge."""
        return torch.relu(x_j + e)


class Weighted(MessagePassing):
    """Weighted sum of the neighbours' features, ``[V, heads, C]``."""

    def __init__(self) -> None:
        super().__init__(node_dim=0)

    def forward(self, edge_index: Any, x: Tensor, weight: Tensor) -> Tensor:
        """Send messages along the edges."""
        result: Tensor = self.propagate(edge_index, x=x, weight=weight)
        return result

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        """The features of the source node times the weight of the edge."""
        return x_j * weight
