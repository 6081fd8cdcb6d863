"""Rows in the order of their groups, by counting: edges by their destination node, for instance."""

from __future__ import annotations

from typing import Any

from dgl_tuplepack.kernels._jit import helper


@helper
def order_by_group(group: Any, number: int, pointers: Any, order: Any) -> int:
    """Write where each group begins to `pointers` ``[number + 1]`` and the rows by group to `order` ``[rows]``.

    `group` ``[rows]`` holds integers. Rows of a group keep their order. Returns the first row whose group is not in
    0..number-1, or -1. Time O(rows + number).
    """
    pointers[:] = 0
    for row in range(len(group)):
        if group[row] < 0 or group[row] >= number:
            return row
        pointers[group[row] + 1] += 1
    for g in range(number):
        pointers[g + 1] += pointers[g]
    for row in range(len(group)):
        order[pointers[group[row]]] = row
        pointers[group[row]] += 1
    # Each entry has moved to where the next group begins.
    for g in range(number, 0, -1):
        pointers[g] = pointers[g - 1]
    pointers[0] = 0
    return -1
