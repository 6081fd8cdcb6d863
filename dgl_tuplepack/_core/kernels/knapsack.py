"""The most valuable content for every possible room of a pack: d-dimensional unbounded knapsack, exact."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntVector


@jit
def fill_table(
    table: IntVector, sizes: ConstIntMatrix, values: ConstIntVector, limits: ConstIntVector, first: int, last: int
) -> None:
    """Add classes ``first..last - 1`` to the table.

    `table` ``[prod(limits + 1)]`` starts at 0. In the end, cell (a, b, ...) in row-major order is the largest sum of
    values (int64 ``[C]``, > 0) of graphs that together fit into the room (a, b, ...), each class any number of times.
    No row of `sizes` ``[C, d]`` is all 0. Dynamic programming, time O(cells) for each class.
    """
    components = len(limits)
    width = limits[components - 1] + 1
    rows = len(table) // width
    # Leading coordinates of the current row of cells; without one graph of the class, a cell is `back + step` earlier.
    at = np.empty(components, dtype=np.int64)
    for row_class in range(first, last):
        value = values[row_class]
        step = sizes[row_class, components - 1]
        back = np.int64(0)
        stride = width
        for component in range(components - 2, -1, -1):
            at[component] = sizes[row_class, component]
            back += sizes[row_class, component] * stride
            stride *= limits[component] + 1
        row = back // width
        while row < rows:
            target = table[row * width + step : (row + 1) * width]
            without = table[row * width - back : (row + 1) * width - back - step]
            for cell in range(len(target)):
                target[cell] = max(target[cell], without[cell] + value)
            # Go to the next row in which every leading component is large enough.
            row += 1
            component = components - 2
            stride = 1
            while component >= 0:
                at[component] += 1
                if at[component] <= limits[component]:
                    break
                at[component] = sizes[row_class, component]
                row += sizes[row_class, component] * stride
                stride *= limits[component] + 1
                component -= 1
            if component < 0:
                break


@jit
def cell_of(room: ConstIntVector, limits: ConstIntVector) -> int:
    """Return the index of a room in the table."""
    cell = 0
    for component in range(len(limits)):
        cell = cell * (limits[component] + 1) + room[component]
    return cell


@jit
def _cell_beside(room: ConstIntVector, sizes: ConstIntMatrix, row: int, limits: ConstIntVector) -> int:
    """Return the index of the room that is left next to a graph of the class `row`."""
    cell = 0
    for component in range(len(limits)):
        cell = cell * (limits[component] + 1) + room[component] - sizes[row, component]
    return cell


@jit
def values_with(
    table: ConstIntVector, sizes: ConstIntMatrix, values: ConstIntVector, limits: ConstIntVector
) -> IntVector:
    """Return, for each class, the largest value of a pack with at least one graph of it, int64 ``[C]``."""
    result = np.empty(len(sizes), dtype=np.int64)
    for row in range(len(sizes)):
        result[row] = values[row] + table[_cell_beside(limits, sizes, row, limits)]
    return result


@jit
def best_content(
    table: ConstIntVector,
    sizes: ConstIntMatrix,
    values: ConstIntVector,
    limits: ConstIntVector,
    with_class: int,
    content: IntVector,
) -> None:
    """Write a most valuable pack with at least one graph of a class into `content` ``[C]`` (all 0 before)."""
    content[with_class] = 1
    room = np.empty(len(limits), dtype=np.int64)
    for component in range(len(limits)):
        room[component] = limits[component] - sizes[with_class, component]
    left = table[cell_of(room, limits)]
    row = 0
    while left > 0 and row < len(sizes):
        fits = values[row] <= left
        for component in range(len(limits)):
            fits = fits and sizes[row, component] <= room[component]
        if fits and table[_cell_beside(room, sizes, row, limits)] + values[row] == left:
            for component in range(len(limits)):
                room[component] -= sizes[row, component]
            left -= values[row]
            content[row] += 1
        else:
            row += 1


@jit
def lift_values(
    table: IntVector,
    sizes: ConstIntMatrix,
    values: IntVector,
    limits: ConstIntVector,
    order: ConstIntVector,
    first: int,
    last: int,
) -> None:
    """Raise the values of classes ``order[first:last]`` one by one, as long as no pack becomes worth more.

    `table` holds the best packs for `values` ``[C]``; both change. The last cell of the table, the worth of the best
    pack, stays the same.
    """
    most = table[-1]
    room = np.empty(len(limits), dtype=np.int64)
    for at in range(first, last):
        row = order[at]
        worth = np.int64(-1)
        number = 0
        fits = False
        for component in range(len(limits)):
            room[component] = limits[component]
            fits = fits or sizes[row, component] > 0
        while fits:
            for component in range(len(limits)):
                room[component] -= sizes[row, component]
                fits = fits and room[component] >= 0
            # `number` graphs, with the best content of the room that they leave, may be worth at most `most`.
            if fits:
                number += 1
                share = (most - table[cell_of(room, limits)]) // number
                worth = share if worth < 0 else min(worth, share)
        if worth > values[row]:
            values[row] = worth
            fill_table(table, sizes, values, limits, row, row + 1)
