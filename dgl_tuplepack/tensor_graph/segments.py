"""Sums, extremes, softmax and repetition over rows that belong together: the edges of a node, the nodes of a graph."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_tuplepack.tensor_graph.groups import Groups


def reduced(
    values: Tensor, index: Tensor, number: int, how: str, counts: Tensor | None = None, fill: float = 0.0
) -> Tensor:
    """Return the sum, mean, max or min ``[number, ...]`` of the rows that have the same `index`.

    `counts` says how many there are, for a mean. Without any the sum and the mean are 0, the others are `fill`.
    """
    groups = Groups(index.long(), number)
    if how in ("max", "min"):
        return groups.extreme(values, how == "max", fill)
    total = groups.sum(values)
    return total if how == "sum" else groups.averaged(total, counts)


def normalised(values: Tensor, index: Tensor, number: int) -> Tensor:
    """Return the softmax of the rows ``[E, ...]`` over those that have the same `index`, element by element."""
    return Groups(index.long(), number).softmax(values)


def slots_of(counts: Tensor, rows: int) -> Tensor:
    """Return to which segment each of `rows` rows belongs; `counts` says how many rows each segment has.

    The number of rows is known, so that nothing waits for the counts, and a tracer has a shape.
    """
    segments = torch.arange(counts.shape[0], device=counts.device)
    return torch.repeat_interleave(segments, counts.long(), output_size=rows)
