"""The most valuable content for every possible room of a pack: d-dimensional unbounded knapsack, exact."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntVector


@helper
def _liftable(table: ConstIntVector, size: ConstIntVector, limits: ConstIntVector) -> int:
    """Return the highest value of a graph of `size` so that no pack is worth more than ``table[-1]``."""
    # `graphs`: how many of these graphs fit into a pack. `cell`: how much each of them lowers the room's table index.
    graphs, cell = 1 << 62, 0
    for component in range(len(limits)):
        cell = cell * (limits[component] + 1) + size[component]
        if size[component] > 0:
            graphs = min(graphs, limits[component] // size[component])
    whole = len(table) - 1
    worth = table[whole]
    # `number` of these graphs, with the best content for the room left, must not be worth more than table[-1].
    for number in range(1, graphs + 1):
        worth = min(worth, (table[whole] - table[whole - number * cell]) // number)
    return int(worth)


@jit
def fill_table(
    table: IntVector, sizes: ConstIntMatrix, values: IntVector, limits: ConstIntVector, lift: bool, first: int,
    last: int
) -> None:  # fmt: skip
    """Add the size classes ``first..last - 1`` to the table, in time O(cells) for each class.

    `table` ``[prod(limits + 1)]`` is all 0 at first. In the end, cell (a, b, ...) in row-major order is the largest sum
    of `values`, int64 ``[C]``, of graphs that together fit into the room (a, b, ...). No size is 0 in all components.
    With `lift`, the table must already contain all classes; the values are raised in place, as `_liftable` allows.
    """
    # The cells of a row differ only in the last component. `at` has the other, leading components of the current row.
    last_component = len(limits) - 1
    width = limits[last_component] + 1
    rows = len(table) // width
    at = np.empty(len(limits), dtype=np.int64)
    for size_class in range(first, last):
        size = sizes[size_class]
        if lift:
            worth = _liftable(table, size, limits)
            if worth <= values[size_class]:
                continue
            values[size_class] = worth
        value = values[size_class]
        # After one graph of the class is added, the cell of the room left is `rows_back` rows and `step` cells earlier.
        step = size[last_component]
        rows_back, stride = np.int64(0), np.int64(1)
        for component in range(last_component - 1, -1, -1):
            at[component] = size[component]
            rows_back += size[component] * stride
            stride *= limits[component] + 1
        row = int(rows_back)
        while row < rows:
            # `without`: for each cell of `target`, the cell of the room left after the graph is added. The ascending
            # order of updates lets a pack use the class again.
            target = table[row * width + step : (row + 1) * width]
            without = table[(row - rows_back) * width : (row - rows_back + 1) * width - step]
            for cell in range(len(target)):
                target[cell] = max(target[cell], without[cell] + value)
            # Go to the next row in which every leading component is at least that of `size`. If all of them overflow,
            # this is past the last row.
            row += 1
            stride = np.int64(1)
            for component in range(last_component - 1, -1, -1):
                at[component] += 1
                if at[component] <= limits[component]:
                    break
                at[component] = size[component]
                row += size[component] * stride
                stride *= limits[component] + 1


@jit
def best_content(
    table: ConstIntVector, sizes: ConstIntMatrix, cells: ConstIntVector, values: ConstIntVector,
    limits: ConstIntVector, with_class: int, content: IntVector
) -> None:  # fmt: skip
    """Write into `content` ``[C]`` (all 0 before) a most valuable pack that holds a graph of the class `with_class`.

    `table` is finished; ``cells[c]`` is the index of a room exactly as large as a graph of class c.
    """
    content[with_class] = 1
    room = np.empty(len(limits), dtype=np.int64)
    for component in range(len(limits)):
        room[component] = limits[component] - sizes[with_class, component]
    cell = len(table) - 1 - cells[with_class]
    size_class = 0
    left = table[cell]
    # `cell` is the table index of the room left, and `left` the value of the best content for this room.
    while left > 0 and size_class < len(sizes):
        fits = values[size_class] <= left
        for component in range(len(limits)):
            fits = fits and sizes[size_class, component] <= room[component]
        if fits and table[cell - cells[size_class]] + values[size_class] == left:
            for component in range(len(limits)):
                room[component] -= sizes[size_class, component]
            cell -= cells[size_class]
            left = table[cell]
            content[size_class] += 1
        else:
            size_class += 1
