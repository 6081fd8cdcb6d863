"""Compute the priority of a size: an integer that never falls when a component of the size grows."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.types import MAXIMUM, MINIMUM, PRODUCT, ConstIntMatrix, ConstIntVector, IntVector, Rule


@helper
def priority(rule: Rule, size: ConstIntVector) -> int:
    """Return the priority of `size` ``[k]``."""
    kind = rule.kind
    if kind == PRODUCT:
        value = np.int64(1)
        for component in range(len(size)):
            value *= size[component]
        return int(value)
    if kind in (MAXIMUM, MINIMUM):
        value = size[0]
        for component in range(1, len(size)):
            value = max(value, size[component]) if kind == MAXIMUM else min(value, size[component])
        return int(value)
    value = np.int64(0)
    for component in range(len(size)):
        value += rule.weights[component] * size[component]
    return int(value)


@jit
def priorities(rule: Rule, sizes: ConstIntMatrix) -> IntVector:
    """Return the priority of each of the `sizes` ``[C, k]`` as int64 ``[C]``."""
    result = np.empty(len(sizes), dtype=np.int64)
    for row in range(len(sizes)):
        result[row] = priority(rule, sizes[row])
    return result
