"""The edges of one type: their end nodes, and edges in groups by each of them."""

from __future__ import annotations

from collections.abc import Callable

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

    def mapped(self, changed: Callable[[Tensor], Tensor]) -> Relation:
        """Return the same edges with end nodes changed by a function."""
        return Relation(changed(self.src), changed(self.dst), self.by_src.number, self.by_dst.number)

    def reversed(self) -> Relation:
        """Return the same edges from their destination to their source."""
        copy = Relation.__new__(Relation)
        copy.src, copy.dst, copy.by_src, copy.by_dst = self.dst, self.src, self.by_dst, self.by_src
        return copy
