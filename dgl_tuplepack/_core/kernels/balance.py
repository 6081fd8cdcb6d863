"""Assign weighted graphs to parts, one after the other."""

from __future__ import annotations

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntVector, FloatMatrix, IntVector


@jit
def place(weights: FloatMatrix, order: ConstIntVector, loads: FloatMatrix, parts: IntVector) -> None:
    """Give each graph of `order` to the part in which it raises the sum of squared loads least.

    `weights` ``[N, k]`` are the graphs' weights, `loads` ``[P, k]`` the sums of the weights in each part. Update
    `loads`, and write the part of each graph to `parts` ``[N]``. If several parts are equally good, the first gets the
    graph.
    """
    for graph in order:
        best, least = 0, 0.0
        for part in range(len(loads)):
            # The sum of squares grows by the squares of the weights, equal for all parts, plus 2 * growth.
            growth = 0.0
            for component in range(loads.shape[1]):
                growth += weights[graph, component] * loads[part, component]
            if part == 0 or growth < least:
                best, least = part, growth
        parts[graph] = best
        loads[best] += weights[graph]
