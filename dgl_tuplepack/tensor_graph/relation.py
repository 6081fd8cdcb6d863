"""The edges of one type: their end nodes, degrees, and what is computed along them."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_tuplepack.tensor_graph.groups import Groups


class Relation:
    """Edges of one type.

    Parameters
    ----------
    src, dst
        Source and destination node of each edge, int32 or int64 ``[E]``.
    num_src, num_dst
        Number of nodes of the source and of the destination type.

    Attributes
    ----------
    by_src, by_dst
        Edges in groups by their source and by their destination node.
    """

    def __init__(self, src: Tensor, dst: Tensor, num_src: int, num_dst: int) -> None:
        self.src = src
        self.dst = dst
        # Rows are named by int64 in torch.
        self.by_src = Groups(src.long(), num_src)
        self.by_dst = Groups(dst.long(), num_dst)

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.src.shape[0]

    def numbers(self) -> Tensor:
        """Numbers of the edges: 0..E-1."""
        return torch.arange(self.num_edges, dtype=self.src.dtype, device=self.src.device)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Relation:
        """Return the same edges on `device`."""
        src, dst = (each.to(device, non_blocking=non_blocking) for each in (self.src, self.dst))
        return Relation(src, dst, self.by_src.number, self.by_dst.number)

    def astype(self, idtype: torch.dtype) -> Relation:
        """Return the same edges with end nodes of another integer dtype."""
        return Relation(self.src.to(idtype), self.dst.to(idtype), self.by_src.number, self.by_dst.number)

    def turned_round(self) -> Relation:
        """Return the same edges from their destination to their source."""
        copy = Relation.__new__(Relation)
        copy.src, copy.dst, copy.by_src, copy.by_dst = self.dst, self.src, self.by_dst, self.by_src
        return copy

    def reduce(self, messages: Tensor, how: str, fill: float = 0.0) -> Tensor:
        """Sum, mean, max or min of the messages ``[E, ...]`` to each node; nodes without messages get 0.

        For max and min they get `fill`.
        """
        return self.by_dst.reduce(messages, how, fill)
