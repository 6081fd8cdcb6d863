"""Priority of a size: a monotone map to an integer, the sort key of the histogram packers."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack.kernels._jit import jit
from dgl_tuplepack.kernels.types import ConstIntMatrix, ConstIntVector, IntVector

# Kinds; a table has one entry for each size inside the limits.
PRODUCT, WEIGHTED_SUM, MAXIMUM, MINIMUM, TABLE = range(5)


@jit
def priority(kind: int, weights: ConstIntVector, table: ConstIntVector, size: ConstIntVector) -> int:
    """Priority of one size, int64 ``[k]``.

    `weights` int64 ``[k]`` are the factors of the weighted sum, or the strides of `table`. The caller
    has checked that nothing overflows and that the table covers the size.
    """
    if kind == PRODUCT:
        value = np.int64(1)
        for component in range(len(size)):
            value *= size[component]
        return int(value)
    if kind == MAXIMUM:
        return int(size.max())
    if kind == MINIMUM:
        return int(size.min())
    value = np.int64(0)
    for component in range(len(size)):
        value += weights[component] * size[component]
    return int(table[value] if kind == TABLE else value)


@jit
def priorities(kind: int, weights: ConstIntVector, table: ConstIntVector, sizes: ConstIntMatrix) -> IntVector:
    """Priorities of sizes ``[C, k]``, int64 ``[C]``."""
    result = np.empty(len(sizes), dtype=np.int64)
    for row in range(len(sizes)):
        result[row] = priority(kind, weights, table, sizes[row])
    return result
