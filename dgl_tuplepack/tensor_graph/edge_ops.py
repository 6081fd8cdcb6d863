"""Rows of nodes seen from edges, and sums and extremes over the edges of each node, all differentiable."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor


def gather(values: Tensor, index: Tensor) -> Tensor:
    """Return ``values[index]``: of values ``[N, ...]`` one row for each edge."""
    return values.index_select(0, index)


def scatter_sum(values: Tensor, index: Tensor, number: int) -> Tensor:
    """Return sums ``[number, ...]`` of the rows of `values` ``[E, ...]`` that have the same `index`; 0 without any."""
    return values.new_zeros((number, *values.shape[1:])).index_add_(0, index, values)


def scatter_extreme(values: Tensor, index: Tensor, number: int, largest: bool, fill: float = 0.0) -> Tensor:
    """Return the largest or smallest of the rows with the same `index`, element by element; `fill` without any.

    The gradient goes to the first row that has the extreme. NaN counts as the extreme, and gets no gradient.
    """
    return cast(Tensor, _ScatterExtreme.apply(values, index, number, largest, fill))  # type: ignore[no-untyped-call]


class _ScatterExtreme(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor, number: int, largest: bool, fill: float) -> Tensor:
        edges, width = values.shape[0], values.shape[1:]
        rows = index.view(-1, *(1,) * len(width)).expand_as(values)
        result = values.new_full((number, *width), fill)
        result.scatter_reduce_(0, rows, values, "amax" if largest else "amin", include_self=False)
        # The first edge that has the extreme; their number where there is none.
        order = torch.arange(edges, device=values.device).view(-1, *(1,) * len(width)).expand_as(values)
        candidates = torch.where(values == result.index_select(0, index), order, edges)
        first = torch.full_like(result, edges, dtype=torch.int64).scatter_reduce_(0, rows, candidates, "amin")
        ctx.save_for_backward(first)
        ctx.edges = edges
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (first,) = ctx.saved_tensors
        # One more row takes the gradients of nodes without edges.
        padded = gradient.new_zeros((ctx.edges + 1, *gradient.shape[1:])).scatter_add(0, first, gradient)
        return padded[: ctx.edges], None, None, None, None
