"""Best fit and first fit at many limits at once: only what a choice among limits needs is kept of each plan."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack.kernels._jit import jit
from dgl_tuplepack.kernels.groups import COUNT, GRAPHS, REMAINDER
from dgl_tuplepack.kernels.histogram_fit import Placing, fit_histogram
from dgl_tuplepack.kernels.priority import Rule
from dgl_tuplepack.kernels.types import ConstIntMatrix, ConstIntVector, IntMatrix


@jit
def count_packs(
    sizes: ConstIntMatrix,
    counts: ConstIntVector,
    order: ConstIntVector,
    limits: ConstIntMatrix,
    cap: int,
    rule: Rule,
    placing: Placing,
) -> IntMatrix:
    """Packs, most graphs of a pack, and largest content of a pack by component, int64 ``[M, 2 + k]``.

    One row for each row of `limits` ``[M, k]``; all else as in `fit_histogram`. The table of `rule` is for the largest.
    """
    k = sizes.shape[1]
    result = np.zeros((len(limits), 2 + k), dtype=np.int64)
    for row in range(len(limits)):
        groups = fit_histogram(sizes, counts, order, limits[row], cap, rule, placing)
        for group in range(len(groups)):
            if groups[group, COUNT] > 0:
                result[row, 0] += groups[group, COUNT]
                result[row, 1] = max(result[row, 1], groups[group, GRAPHS])
                for component in range(k):
                    content = limits[row, component] - groups[group, REMAINDER + component]
                    result[row, 2 + component] = max(result[row, 2 + component], content)
    return result
