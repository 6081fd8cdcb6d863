"""Find a set of graphs whose total is within a window in every component: meet in the middle, exact."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntMatrix, IntVector


@jit
def subset_sums(sizes: ConstIntMatrix, first: int, last: int) -> tuple[IntMatrix, IntVector]:
    """Return the totals of all subsets of graphs ``first..last - 1``, int64 ``[2^n, d]``, and their masks ``[2^n]``.

    Totals ascend in the first component. Bit i of a mask is set for graph ``first + i``. For each graph, the sums
    without it and with it are merged, so that nothing must be sorted: time O(d 2^n), n = last - first.
    """
    components = sizes.shape[1]
    subsets = 1 << (last - first)
    sums, masks = np.zeros((subsets, components), dtype=np.int64), np.zeros(subsets, dtype=np.int64)
    merged, merged_masks = np.zeros((subsets, components), dtype=np.int64), np.zeros(subsets, dtype=np.int64)
    for graph in range(first, last):
        known = 1 << (graph - first)
        size = sizes[graph, 0]
        out, within = 0, 0
        for at in range(2 * known):
            # Sums with the graph are never smaller than the same sums without it, so `within` reaches its end last.
            if out < known and sums[out, 0] <= sums[within, 0] + size:
                for component in range(components):
                    merged[at, component] = sums[out, component]
                merged_masks[at] = masks[out]
                out += 1
            else:
                for component in range(components):
                    merged[at, component] = sums[within, component] + sizes[graph, component]
                merged_masks[at] = masks[within] | known
                within += 1
        sums, merged = merged, sums
        masks, merged_masks = merged_masks, masks
    return sums, masks


@helper
def window_pair(
    left: ConstIntMatrix, right: ConstIntMatrix, low: ConstIntVector, high: ConstIntVector, most: int
) -> tuple[int, int, int]:
    """Return rows of `left` and `right` whose sum is within ``low..high``, or -1, -1; and the number of steps.

    The first component ascends in both. The search gives up after `most` steps.
    """
    components = len(low)
    begin, steps = len(right), 0
    for row in range(len(left)):
        # right[begin:] is large enough for this row; `begin` decreases as `left` increases.
        while begin > 0 and right[begin - 1, 0] >= low[0] - left[row, 0]:
            begin -= 1
            steps += 1
        at = begin
        while at < len(right) and right[at, 0] <= high[0] - left[row, 0]:
            component = 1
            while component < components:
                total = left[row, component] + right[at, component]
                if total < low[component] or total > high[component]:
                    break
                component += 1
            steps += 1
            if component == components:
                return row, at, steps
            at += 1
        steps += 1
        if steps > most:
            break
    return -1, -1, steps


@jit
def subset_within(
    sizes: ConstIntMatrix, low: ConstIntVector, high: ConstIntVector, most: int, chosen: IntVector
) -> int:
    """Mark a subset of the graphs whose total is within ``low..high``; return the steps, negative if none was found.

    `chosen` ``[n]`` gets 1 for each graph of the subset, else 0. The first component should have the narrowest window.
    If the scan gives up after `most` steps, a subset may still exist.

    Time O(d 2^(n / 2)) and the pairs scanned, memory O(d 2^(n / 2)).

    Source: Horowitz & Sahni 1974, "Computing partitions with applications to the knapsack problem". Differs from it:
    a window instead of the largest sum, and further components, which are checked for each pair within the window of
    the first one.
    """
    graphs = len(sizes)
    middle = graphs // 2
    left, left_masks = subset_sums(sizes, 0, middle)
    right, right_masks = subset_sums(sizes, middle, graphs)
    row, at, steps = window_pair(left, right, low, high, most)
    steps += len(low) * (len(left) + len(right))
    if row < 0:
        return -steps
    for graph in range(middle):
        chosen[graph] = (left_masks[row] >> graph) & 1
    for graph in range(middle, graphs):
        chosen[graph] = (right_masks[at] >> (graph - middle)) & 1
    return steps
