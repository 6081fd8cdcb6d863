"""Assign weighted graphs to parts, one after the other."""

from __future__ import annotations

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntVector, FloatMatrix, IntVector


@jit
def place(weights: FloatMatrix, order: ConstIntVector, loads: FloatMatrix, parts: IntVector) -> None:
    """Give each graph in `order` to the part in which the graph raises the sum of squared loads least.

    `order` has indices of graphs. `weights` ``[N, k]`` has the k weights of each graph; `loads` ``[P, k]`` has the sums
    of these weights over the graphs of each part. Update `loads`, and write the part of each graph to `parts` ``[N]``.
    If several parts are equally good, the first of these parts gets the graph.
    """
    for graph in order:
        best, least = 0, 0.0
        for part in range(len(loads)):
            # The sum of squared loads grows by 2 * growth, plus the graph's squared weights. These are the same for
            # every part.
            growth = 0.0
            for component in range(loads.shape[1]):
                growth += weights[graph, component] * loads[part, component]
            if part == 0 or growth < least:
                best, least = part, growth
        parts[graph] = best
        loads[best] += weights[graph]
