"""The edges of one type: their end nodes, degrees, and what is computed along them."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_tuplepack.tensor_graph.edge_ops import gather, scatter_extreme, scatter_sum


class Relation:
    """Edges of one type.

    Parameters
    ----------
    src, dst
        Source and destination node of each edge, int32 or int64 ``[E]``.
    num_src, num_dst
        Number of nodes of the source and of the destination type.
    row_pointers
        int64 ``[V + 1]`` where edges are sorted by destination: where the edges of each destination node begin.
    """

    def __init__(
        self, src: Tensor, dst: Tensor, num_src: int, num_dst: int, row_pointers: Tensor | None = None
    ) -> None:
        self.src = src
        self.dst = dst
        self.num_src = num_src
        self.num_dst = num_dst
        self.row_pointers = row_pointers
        # Indices of rows are int64 for torch.
        self.src_rows = src.long()
        self.dst_rows = dst.long()

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.src.shape[0]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Relation:
        """The same edges on `device`."""
        src, dst = (each.to(device, non_blocking=non_blocking) for each in (self.src, self.dst))
        pointers = None if self.row_pointers is None else self.row_pointers.to(device, non_blocking=non_blocking)
        return Relation(src, dst, self.num_src, self.num_dst, pointers)

    def astype(self, idtype: torch.dtype) -> Relation:
        """The same edges with end nodes of another integer dtype."""
        return Relation(self.src.to(idtype), self.dst.to(idtype), self.num_src, self.num_dst, self.row_pointers)

    def in_degrees(self) -> Tensor:
        """Number of edges that end in each destination node, int64 ``[V]``."""
        if self.row_pointers is not None:
            return self.row_pointers[1:] - self.row_pointers[:-1]
        return self._degrees(self.dst_rows, self.num_dst)

    def out_degrees(self) -> Tensor:
        """Number of edges that begin in each source node, int64 ``[V]``."""
        return self._degrees(self.src_rows, self.num_src)

    def _degrees(self, rows: Tensor, number: int) -> Tensor:
        return rows.new_zeros(number).index_add_(0, rows, torch.ones_like(rows))

    def at_src(self, values: Tensor) -> Tensor:
        """Rows of source nodes, one for each edge."""
        return gather(values, self.src_rows)

    def at_dst(self, values: Tensor) -> Tensor:
        """Rows of destination nodes, one for each edge."""
        return gather(values, self.dst_rows)

    def reduce(self, messages: Tensor, how: str, fill: float = 0.0) -> Tensor:
        """Sum, mean, max or min of the messages ``[E, ...]`` to each node; nodes without messages get 0.

        For max and min they get `fill`.
        """
        if how in ("max", "min"):
            return scatter_extreme(messages, self.dst_rows, self.num_dst, how == "max", fill)
        return self.averaged(scatter_sum(messages, self.dst_rows, self.num_dst), how)

    def averaged(self, total: Tensor, how: str) -> Tensor:
        """Turn sums over the edges of each node into means if `how` is mean."""
        if how == "sum":
            return total
        number = self.in_degrees().clamp(min=1).to(total.dtype)
        return total / number.view(-1, *(1,) * (total.dim() - 1))
