"""Find a subset of graphs whose total is within a window in every component, by the "meet in the middle" method."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntMatrix, IntVector


@jit
def subset_sums(sizes: ConstIntMatrix, first: int, last: int) -> tuple[IntMatrix, IntVector]:
    """Return the total and the mask of each subset of graphs ``first..last - 1``, int64 ``[2^n, d]`` and ``[2^n]``.

    Totals ascend in the first component. Bit i of a mask is set if the subset holds graph ``first + i``.
    """
    components = sizes.shape[1]
    subsets = 1 << (last - first)
    sums, masks = np.zeros((subsets, components), dtype=np.int64), np.zeros(subsets, dtype=np.int64)
    merged, merged_masks = np.zeros((subsets, components), dtype=np.int64), np.zeros(subsets, dtype=np.int64)
    for graph in range(first, last):
        # sums[:known]: the totals of all subsets of the graphs before `graph`.
        known = 1 << (graph - first)
        size = sizes[graph, 0]
        # `without`: the next row to merge as it is. `including`: the next row to merge with `graph` added.
        without, including = 0, 0
        for at in range(2 * known):
            # `including` reaches its end last, because sizes are not negative.
            if without < known and sums[without, 0] <= sums[including, 0] + size:
                for component in range(components):
                    merged[at, component] = sums[without, component]
                merged_masks[at] = masks[without]
                without += 1
            else:
                for component in range(components):
                    merged[at, component] = sums[including, component] + sizes[graph, component]
                merged_masks[at] = masks[including] | known
                including += 1
        sums, merged = merged, sums
        masks, merged_masks = merged_masks, masks
    return sums, masks


@helper
def window_pair(
    left: ConstIntMatrix, right: ConstIntMatrix, low: ConstIntVector, high: ConstIntVector, most: int
) -> tuple[int, int, int]:
    """Find a row of `left` and a row of `right`, both sorted, whose sum is within ``low..high`` in every component.

    Return both indices, or -1 and -1; and the number of steps, about `most` at most.
    """
    components = len(low)
    begin, steps = len(right), 0
    for left_row in range(len(left)):
        # right[begin:]: the rows that reach low[0] together with this row of `left`.
        while begin > 0 and right[begin - 1, 0] >= low[0] - left[left_row, 0]:
            begin -= 1
            steps += 1
        right_row = begin
        while right_row < len(right) and right[right_row, 0] <= high[0] - left[left_row, 0]:
            component = 1
            while component < components:
                total = left[left_row, component] + right[right_row, component]
                if total < low[component] or total > high[component]:
                    break
                component += 1
            steps += 1
            if component == components:
                return left_row, right_row, steps
            right_row += 1
        steps += 1
        if steps > most:
            break
    return -1, -1, steps


@jit
def subset_within(
    sizes: ConstIntMatrix, low: ConstIntVector, high: ConstIntVector, most: int, chosen: IntVector
) -> int:
    """Find a subset of n graphs, `sizes` ``[n, d]``, with a total within ``low..high`` in every component.

    Return the number of steps, negative if no subset was found; else `chosen` ``[n]`` gets 1 for each graph of it. The
    first component should have the narrowest window. After about `most` steps, the scan of pairs gives up. Time and
    memory O(d 2^(n / 2)), plus the pairs scanned.

    Source: Horowitz & Sahni 1974, "Computing partitions with applications to the knapsack problem". Differs from it: a
    window instead of the largest sum; and further components, which are checked for each pair.
    """
    graphs = len(sizes)
    middle = graphs // 2
    left, left_masks = subset_sums(sizes, 0, middle)
    right, right_masks = subset_sums(sizes, middle, graphs)
    left_row, right_row, steps = window_pair(left, right, low, high, most)
    steps += len(low) * (len(left) + len(right))
    if left_row < 0:
        return -steps
    for graph in range(middle):
        chosen[graph] = (left_masks[left_row] >> graph) & 1
    for graph in range(middle, graphs):
        chosen[graph] = (right_masks[right_row] >> (graph - middle)) & 1
    return steps
