"""The most valuable content for every possible room of a pack: d-dimensional unbounded knapsack, exact."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntVector


@helper
def _liftable(table: ConstIntVector, size: ConstIntVector, limits: ConstIntVector) -> int:
    """Return the most that a graph may be worth so that no pack is worth more than the best one."""
    graphs, cell = 1 << 62, 0
    for component in range(len(limits)):
        cell = cell * (limits[component] + 1) + size[component]
        if size[component] > 0:
            graphs = min(graphs, limits[component] // size[component])
    # Any number of the graphs, with the best content of the room that they leave, counts.
    best = len(table) - 1
    worth = table[best]
    for number in range(1, graphs + 1):
        worth = min(worth, (table[best] - table[best - number * cell]) // number)
    return int(worth)


@jit
def fill_table(
    table: IntVector,
    sizes: ConstIntMatrix,
    values: IntVector,
    limits: ConstIntVector,
    lift: bool,
    first: int,
    last: int,
) -> None:
    """Add classes ``first..last - 1`` to the table.

    `table` ``[prod(limits + 1)]`` starts at 0. In the end, cell (a, b, ...) in row-major order is the largest sum of
    values (int64 ``[C]``, > 0) of graphs that together fit into the room (a, b, ...), each class any number of times.
    No row of `sizes` ``[C, d]`` is all 0. Dynamic programming, time O(cells) for each class.

    With `lift`, the table already holds the classes. Their values are then raised one by one, as long as no pack
    becomes worth more than the best pack.
    """
    components = len(limits)
    width = limits[components - 1] + 1
    rows = len(table) // width
    # Leading coordinates of the current row of cells; without one graph of the class, a cell is `back + step` earlier.
    at = np.empty(components, dtype=np.int64)
    for row_class in range(first, last):
        if lift:
            worth = _liftable(table, sizes[row_class], limits)
            if worth <= values[row_class]:
                continue
            values[row_class] = worth
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
def best_content(
    table: ConstIntVector,
    sizes: ConstIntMatrix,
    cells: ConstIntVector,
    values: ConstIntVector,
    limits: ConstIntVector,
    with_class: int,
    content: IntVector,
) -> None:
    """Write a most valuable pack with at least one graph of a class into `content` ``[C]`` (all 0 before).

    `cells` ``[C]`` are the indices of `sizes` in the table.
    """
    content[with_class] = 1
    room = np.empty(len(limits), dtype=np.int64)
    for component in range(len(limits)):
        room[component] = limits[component] - sizes[with_class, component]
    cell = len(table) - 1 - cells[with_class]
    row = 0
    left = table[cell]
    while left > 0 and row < len(sizes):
        fits = values[row] <= left
        for component in range(len(limits)):
            fits = fits and sizes[row, component] <= room[component]
        if fits and table[cell - cells[row]] + values[row] == left:
            for component in range(len(limits)):
                room[component] -= sizes[row, component]
            cell -= cells[row]
            left = table[cell]
            content[row] += 1
        else:
            row += 1
