"""Sums, extremes, softmax and repetition over rows that belong together: the edges of a node, the nodes of a graph."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from dgl_tuplepack.tensor_graph.edge_ops import gather, scatter_extreme, scatter_sum


def reduced(
    values: Tensor, index: Tensor, number: int, how: str, counts: Tensor | None = None, fill: float = 0.0
) -> Tensor:
    """Return the sum, mean, max or min ``[number, ...]`` of the rows that have the same `index`.

    `counts` says how many there are, for a mean. Without any the sum and the mean are 0, the others are `fill`.
    """
    if how in ("max", "min"):
        return scatter_extreme(values, index, number, how == "max", fill)
    total = scatter_sum(values, index, number)
    if how == "sum":
        return total
    if counts is None:
        counts = index.new_zeros(number).index_add_(0, index, torch.ones_like(index))
    return total / counts.clamp(min=1).to(total.dtype).view(-1, *(1,) * (total.dim() - 1))


def normalised(values: Tensor, index: Tensor, number: int) -> Tensor:
    """Return the softmax of the rows ``[E, ...]`` over those that have the same `index`, element by element."""
    return cast(Tensor, _Softmax.apply(values, index, number))  # type: ignore[no-untyped-call]


class _Softmax(torch.autograd.Function):
    """Keeps its result alone for the backward pass, as DGL does."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor, number: int) -> Tensor:
        rows = index.view(-1, *(1,) * (values.dim() - 1)).expand_as(values)
        largest = values.new_zeros((number, *values.shape[1:]))
        largest.scatter_reduce_(0, rows, values, "amax", include_self=False)
        exponentials = (values - gather(largest, index)).exp()
        result = exponentials / gather(scatter_sum(exponentials, index, number), index)
        ctx.save_for_backward(result, index)
        ctx.number = number
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        result, index = ctx.saved_tensors
        product = result * gradient
        return product - result * gather(scatter_sum(product, index, ctx.number), index), None, None


def slots_of(counts: Tensor, rows: int) -> Tensor:
    """Return to which segment each of `rows` rows belongs; `counts` says how many rows each segment has.

    The number of rows is known, so that nothing waits for the counts, and a tracer has a shape.
    """
    segments = torch.arange(counts.shape[0], device=counts.device)
    return torch.repeat_interleave(segments, counts.long(), output_size=rows)
