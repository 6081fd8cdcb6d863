"""Priority of a size: a monotone map to an integer, the sort key of the histogram packers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack.kernels._jit import MATRIX, VECTOR, jit

IntArray = NDArray[np.int64]

# Kinds; a table has one entry for each size inside the limits.
PRODUCT, WEIGHTED_SUM, MAXIMUM, MINIMUM, TABLE = range(5)


@jit(f"int64(int64, {VECTOR}, {VECTOR}, {VECTOR})")
def priority(kind: int, weights: IntArray, table: IntArray, size: IntArray) -> Any:
    """Priority of one size, int64 ``[k]``.

    `weights` int64 ``[k]`` are the factors of the weighted sum, or the strides of `table`. The caller
    has checked that nothing overflows and that the table covers the size.
    """
    if kind == PRODUCT:
        value = np.int64(1)
        for component in range(len(size)):
            value *= size[component]
        return value
    if kind == MAXIMUM:
        return size.max()
    if kind == MINIMUM:
        return size.min()
    value = np.int64(0)
    for component in range(len(size)):
        value += weights[component] * size[component]
    return table[value] if kind == TABLE else value


@jit(f"int64[::1](int64, {VECTOR}, {VECTOR}, {MATRIX})")
def priorities(kind: int, weights: IntArray, table: IntArray, sizes: IntArray) -> IntArray:
    """Priorities of sizes ``[C, k]``, int64 ``[C]``."""
    result = np.empty(len(sizes), dtype=np.int64)
    for row in range(len(sizes)):
        result[row] = priority(kind, weights, table, sizes[row])
    return result
