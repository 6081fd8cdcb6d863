"""Rows in groups, such as edges by their destination node: rows of the groups at each of them, and their sums.

Each computation has two ways with equal results: by operations of torch, which compilers trace and all devices have,
and on the CPU by kernels of ours, which write out no more than the result.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.tensor_graph import kernel_groups
from dgl_tuplepack.tensor_graph.kernel_groups import Sorted


class Groups:
    """Rows 0..E-1, each of one group.

    Parameters
    ----------
    index
        Group of each row, int64 ``[E]``.
    number
        Number of groups.
    pointers
        int64 ``[number + 1]`` where rows are sorted by group: where those of each group begin.
    """

    def __init__(self, index: Tensor, number: int, pointers: Tensor | None = None) -> None:
        self.index = index.contiguous()
        self.number = number
        self.pointers = pointers
        self._sorted: Sorted | None = None

    def sorted(self) -> Sorted:
        """Rows by group, for kernels; they are sorted once."""
        if self._sorted is None or self._sorted.is_stale():
            self._sorted = Sorted.of(self.index, self.number, self.pointers)
        return self._sorted

    def counts(self) -> Tensor:
        """Number of rows in each group, int64 ``[number]``."""
        # Sorting checks pointers that were given, where they can be read.
        pointers = self.sorted().pointers if kernel_groups.is_readable(self.index) else self.pointers
        if pointers is not None:
            return pointers[1:] - pointers[:-1]
        return self.index.new_zeros(self.number).index_add_(0, self.index, torch.ones_like(self.index))

    def gather(self, values: Tensor) -> Tensor:
        """Return rows ``[E, ...]`` of values ``[number, ...]``: the one of its group for each row."""
        _check_rows(values, self.number, "groups")
        if values.requires_grad and kernel_groups.fits(self.index, values):
            return kernel_groups.gather(self, values)
        return values.index_select(0, self.index)

    def sum(self, values: Tensor) -> Tensor:
        """Return sums ``[number, ...]`` of the values ``[E, ...]`` of each group; 0 for empty groups."""
        _check_rows(values, self.index.shape[0], "rows")
        if kernel_groups.fits(self.index, values):
            return kernel_groups.group_sum(self, values)
        return values.new_zeros((self.number, *values.shape[1:])).index_add_(0, self.index, values)

    def sum_of(self, via: Groups, values: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return ``self.sum(via.gather(values) * weights)`` without writing out the summands, where that is faster.

        Weights ``[E, ...]`` have as many axes as the values ``[N, ...]``.
        """
        _check_rows(values, via.number, "groups")
        tensors: tuple[Tensor, ...] = (values,)
        if weights is not None:
            _check_rows(weights, self.index.shape[0], "rows")
            tensors = (values, weights)
        if kernel_groups.fits(self.index, *tensors) and kernel_groups.fit_together(via.index, values, weights):
            return kernel_groups.weighted_sum(self, via, values, weights)
        rows = via.gather(values)
        return self.sum(rows if weights is None else rows * weights)

    def mean(self, values: Tensor) -> Tensor:
        """Return means ``[number, ...]`` of the values of each group; 0 for empty groups."""
        return self.averaged(self.sum(values))

    def averaged(self, total: Tensor, counts: Tensor | None = None) -> Tensor:
        """Divide sums by the numbers of rows, which need not be counted where they are given."""
        counts = self.counts() if counts is None else counts
        return total / counts.clamp(min=1).to(total.dtype).view(-1, *(1,) * (total.dim() - 1))

    def reduce(self, values: Tensor, how: str, fill: float = 0.0) -> Tensor:
        """Return the sum, mean, max or min of the values ``[E, ...]`` of each group.

        For empty groups sums and means are 0, and the others are `fill`.
        """
        if how in ("max", "min"):
            return self.extreme(values, how == "max", fill)
        return self.sum(values) if how == "sum" else self.mean(values)

    def extreme(self, values: Tensor, largest: bool, fill: float = 0.0) -> Tensor:
        """Return the largest or smallest of the values ``[E, ...]`` of each group, element by element.

        Empty groups get `fill`. The gradient goes to the first row that has the extreme. NaN counts as the extreme, and
        gets no gradient.
        """
        _check_rows(values, self.index.shape[0], "rows")
        if kernel_groups.fits(self.index, values):
            return kernel_groups.extreme(self, values, largest, fill)
        result, first = self._extreme(values.detach(), largest, fill)
        if not values.requires_grad:
            return result
        number = values.shape[0]
        if number == 0:
            # Part of the graph of operations all the same.
            return result + values.sum() * 0
        return torch.where(first < number, values.gather(0, first.clamp(max=number - 1)), result)

    def _largest(self, values: Tensor, how: str = "amax", fill: float = 0.0) -> Tensor:
        result = values.new_full((self.number, *values.shape[1:]), fill)
        return result.scatter_reduce_(0, self._rows_like(values), values, how, include_self=False)

    def _rows_like(self, values: Tensor) -> Tensor:
        """The group of each value."""
        return self.index.view(-1, *(1,) * (values.dim() - 1)).expand_as(values)

    def _extreme(self, values: Tensor, largest: bool, fill: float) -> tuple[Tensor, Tensor]:
        """The extremes, and the first row that has each; the number of rows where none has."""
        number, rows = values.shape[0], self._rows_like(values)
        result = self._largest(values, "amax" if largest else "amin", fill)
        order = torch.arange(number, device=values.device).view(-1, *(1,) * (values.dim() - 1)).expand_as(values)
        candidates = torch.where(values == result.index_select(0, self.index), order, number)
        first = torch.full_like(result, number, dtype=torch.int64).scatter_reduce_(0, rows, candidates, "amin")
        return result, first

    def softmax(self, values: Tensor) -> Tensor:
        """Return the softmax ``[E, ...]`` of the values of each group."""
        _check_rows(values, self.index.shape[0], "rows")
        if kernel_groups.fits(self.index, values):
            return kernel_groups.softmax(self, values)
        powers = torch.exp(values - self._largest(values.detach()).index_select(0, self.index))
        return powers / self.gather(self.sum(powers))


def groups_of(counts: Tensor, rows: int) -> Tensor:
    """Return the group of each of `rows` rows, int64, where `counts` says how many each group has, one after the other.

    The number of rows is known, so that nothing waits for the counts, and a tracer has a shape.
    """
    if kernel_groups.is_readable(counts) and int(counts.sum()) != rows:
        raise SchemaError(
            f"numbers of rows in each graph add up to {int(counts.sum())}, but there are {rows}; give numbers of nodes "
            "or edges of each graph that add up to all of them."
        )
    groups = torch.arange(counts.shape[0], device=counts.device)
    return torch.repeat_interleave(groups, counts.long(), output_size=rows)


def _check_rows(values: Tensor, number: int, what: str) -> None:
    if values.dim() == 0 or values.shape[0] != number:
        raise SchemaError(
            f"values have shape {tuple(values.shape)}, but there are {number} {what}; give one row for each."
        )
