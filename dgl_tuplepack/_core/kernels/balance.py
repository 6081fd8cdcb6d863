"""Assign weighted graphs to parts, one after the other."""

from __future__ import annotations

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntVector, FloatMatrix, IntVector


@jit
def place(weights: FloatMatrix, order: ConstIntVector, loads: FloatMatrix, parts: IntVector) -> None:
    """Give each graph of `order` to the part in which it raises the sum of squared loads least.

    `weights` ``[N, k]`` are the graphs' weights, `loads` ``[P, k]`` the sums of the weights in each part. Both are
    updated: `loads`, and `parts` ``[N]``, the part of each graph. The first of several equal parts is taken.
    """
    for graph in order:
        best, least = 0, 0.0
        for part in range(len(loads)):
            # The sum of squares grows by w * w, which is equal for all parts, and by twice this sum.
            growth = 0.0
            for component in range(loads.shape[1]):
                growth += weights[graph, component] * loads[part, component]
            if part == 0 or growth < least:
                best, least = part, growth
        parts[graph] = best
        loads[best] += weights[graph]
