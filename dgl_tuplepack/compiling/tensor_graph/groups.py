"""Groups of rows, and sums over groups: edges by source or destination node, nodes and edges by graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.errors import SchemaError


class Groups:
    """Rows 0..E-1, each in one group. Methods use only operations of torch, so every device and compiler can run them.

    Parameters
    ----------
    index
        Group of each row, int64 ``[E]``.
    number
        Number of groups.
    """

    def __init__(self, index: Tensor, number: int) -> None:
        self.index = index
        self.number = number

    def counts(self) -> Tensor:
        """Return the number of rows in each group, int64 ``[number]``."""
        return self.sum(torch.ones_like(self.index))

    def gather(self, values: Tensor) -> Tensor:
        """Return, for each row, the value of its group: ``[E, ...]``, from `values` ``[number, ...]``."""
        _check_rows(values, self.number, "groups")
        return values.index_select(0, self.index)

    def sum(self, values: Tensor) -> Tensor:
        """Return sums ``[number, ...]`` of the values ``[E, ...]`` of each group; 0 for empty groups."""
        _check_rows(values, self.index.shape[0], "rows")
        return values.new_zeros((self.number, *values.shape[1:])).index_add_(0, self.index, values)

    def mean(self, values: Tensor, counts: Tensor | None = None) -> Tensor:
        """Return means ``[number, ...]`` of the values of each group; 0 for empty groups."""
        total, counts = self.sum(values), self.counts() if counts is None else counts
        return total / counts.clamp(min=1).to(total.dtype).view(-1, *(1,) * (total.dim() - 1))

    def reduce(self, values: Tensor, how: str, fill: float = 0.0) -> Tensor:
        """Return the sum, mean, max or min of the values ``[E, ...]`` of each group.

        For empty groups, sums and means are 0; maxima and minima are `fill`.
        """
        if how in ("max", "min"):
            return self.extreme(values, how == "max", fill)
        return self.sum(values) if how == "sum" else self.mean(values)

    def extreme(self, values: Tensor, largest: bool, fill: float = 0.0) -> Tensor:
        """Return the largest or smallest of the values ``[E, ...]`` of each group, element by element.

        Empty groups get `fill`. The gradient goes to the first row that has the extreme. NaN counts as the extreme, and
        gets no gradient.
        """
        num_rows = values.shape[0]
        result = self._extreme(values.detach(), "amax" if largest else "amin", fill)
        if not values.requires_grad:
            return result
        if num_rows == 0:
            # Without rows, add 0, so that for autograd the result still depends on the values.
            return result + values.sum() * 0
        # `candidates`: for each entry, the index of its row if the entry is the extreme of its group, else `num_rows`.
        # `first`: for each group, the index of the first row that has the extreme, or `num_rows` if no row has it.
        order = torch.arange(num_rows, device=values.device).view(-1, *(1,) * (values.dim() - 1)).expand_as(values)
        candidates = torch.where(values == result.index_select(0, self.index), order, num_rows)
        first = self._extreme(candidates, "amin", num_rows)
        return torch.where(first < num_rows, values.gather(0, first.clamp(max=num_rows - 1)), result)

    def _extreme(self, values: Tensor, how: str, fill: float) -> Tensor:
        """Return the maximum ("amax") or minimum ("amin") of each group; `fill` for empty groups."""
        _check_rows(values, self.index.shape[0], "rows")
        groups = self.index.view(-1, *(1,) * (values.dim() - 1)).expand_as(values)
        result = values.new_full((self.number, *values.shape[1:]), fill)
        return result.scatter_reduce_(0, groups, values, how, include_self=False)

    def softmax(self, values: Tensor) -> Tensor:
        """Return the softmax ``[E, ...]`` of the values of each group."""
        powers = torch.exp(values - self.gather(self._extreme(values.detach(), "amax", 0)))
        return powers / self.gather(self.sum(powers))


class Relation:
    """Edges of one type.

    Parameters
    ----------
    src, dst
        Source and destination node of each edge, int32 or int64 ``[E]``.
    num_src, num_dst
        Number of nodes of the source and of the destination type.
    """

    def __init__(self, src: Tensor, dst: Tensor, num_src: int, num_dst: int) -> None:
        self.src = src
        self.dst = dst
        # Torch indexes rows by int64.
        self.by_src = Groups(src.long(), num_src)
        self.by_dst = Groups(dst.long(), num_dst)

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.src.shape[0]

    def numbers(self) -> Tensor:
        """Return the ids of the edges: 0..E-1."""
        return torch.arange(self.num_edges, dtype=self.src.dtype, device=self.src.device)

    def mapped(self, changed: Callable[[Tensor], Tensor]) -> Relation:
        """Return the edges with `changed` applied to their source nodes and destination nodes."""
        return Relation(changed(self.src), changed(self.dst), self.by_src.number, self.by_dst.number)

    def reversed(self) -> Relation:
        """Return the edges with source and destination swapped."""
        return Relation(self.dst, self.src, self.by_dst.number, self.by_src.number)


def groups_of(counts: Tensor, rows: int) -> Tensor:
    """Return the group of each row, int64 ``[rows]``; group g has `counts[g]` consecutive rows.

    Since `rows` is given, the shape of the result is static for a tracer, and nothing waits for `counts` on a device.
    """
    if is_readable(counts) and int(counts.sum()) != rows:
        raise SchemaError(
            f"numbers of rows in each graph add up to {int(counts.sum())}, but there are {rows} rows; give numbers "
            "that add up to the number of nodes or edges."
        )
    groups = torch.arange(counts.shape[0], device=counts.device)
    return torch.repeat_interleave(groups, counts.long(), output_size=rows)


def is_readable(tensor: Tensor) -> bool:
    """Return whether values can be read without waiting for a device or breaking a trace."""
    return type(tensor) is Tensor and tensor.is_cpu and not is_traced()


def _check_rows(values: Tensor, number: int, what: str) -> None:
    if values.dim() == 0 or values.shape[0] != number:
        raise SchemaError(
            f"values have shape {tuple(values.shape)}, but there are {number} {what}; give one value for each."
        )
