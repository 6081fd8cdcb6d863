"""Assign weighted graphs to parts, one after the other."""

from __future__ import annotations

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntVector, FloatMatrix, IntVector


@jit
def place(weights: FloatMatrix, order: ConstIntVector, loads: FloatMatrix, parts: IntVector) -> None:
    """Give each graph in `order` to the first part in which it raises the sum of squared loads least.

    `weights` is ``[N, k]``. Update `loads` ``[P, k]``, and write the part of each graph to `parts` ``[N]``.
    """
    for graph in order:
        best, least = 0, 0.0
        for part in range(len(loads)):
            # The sum of squared loads grows by 2 * growth, plus a number that is the same for every part.
            growth = 0.0
            for component in range(loads.shape[1]):
                growth += weights[graph, component] * loads[part, component]
            if part == 0 or growth < least:
                best, least = part, growth
        parts[graph] = best
        loads[best] += weights[graph]
