"""Priority of a size: a monotone map to an integer, which is the sort key of best fit and first fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntVector

PRODUCT, WEIGHTED_SUM, MAXIMUM, MINIMUM = range(4)


class Rule(NamedTuple):
    """How to compute a priority from a size ``[k]``.

    `kind` is PRODUCT, WEIGHTED_SUM, MAXIMUM or MINIMUM; only WEIGHTED_SUM uses `weights` ``[k]``. The caller must check
    that nothing overflows.
    """

    kind: int
    weights: IntVector


@jit
def priority(rule: Rule, size: ConstIntVector) -> int:
    """Return the priority of one size, int64 ``[k]``."""
    kind = rule.kind
    if kind == PRODUCT:
        value = np.int64(1)
        for component in range(len(size)):
            value *= size[component]
        return int(value)
    if kind == MAXIMUM:
        return int(size.max())
    if kind == MINIMUM:
        return int(size.min())
    # WEIGHTED_SUM.
    value = np.int64(0)
    for component in range(len(size)):
        value += rule.weights[component] * size[component]
    return int(value)


@jit
def priorities(rule: Rule, sizes: ConstIntMatrix) -> IntVector:
    """Return the priorities of sizes ``[C, k]``, int64 ``[C]``."""
    result = np.empty(len(sizes), dtype=np.int64)
    for row in range(len(sizes)):
        result[row] = priority(rule, sizes[row])
    return result
