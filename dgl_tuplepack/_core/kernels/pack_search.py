"""Find the packs of highest worth, the sum of the values of their graphs, by depth-first search; for few graphs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.types import (
    ConstIntMatrix,
    ConstIntVector,
    FloatMatrix,
    FloatVector,
    IntMatrix,
    IntVector,
)

# Upper bounds are multiplied by this factor, so that rounding cannot make them too low.
_SAFE = 1 + 1e-12


class Classes(NamedTuple):
    """Size classes, ordered by value / (mean share of the limits), highest first; see `tails` for shares.

    Each size in `sizes` ``[C, d]`` is within the limits, and not 0. `values` and `counts`, of graphs, are above 0.
    """

    sizes: IntMatrix
    values: IntVector
    counts: IntVector
    tails: FloatMatrix


@jit
def tails(sizes: ConstIntMatrix, values: ConstIntVector, limits: ConstIntVector) -> FloatMatrix:
    """Return upper bounds, float64 ``[C, 2 d + 3]``: row c is for graphs of class c and of all later classes.

    A graph has d + 1 shares: size / limit in each component, then their mean. The columns have the highest value /
    share (d + 1 columns), the highest 1 / share (d + 1 columns), and the highest value of a graph.
    """
    classes, components = sizes.shape
    result = np.zeros((classes, 2 * components + 3))
    for row in range(classes - 1, -1, -1):
        mean_share = 0.0
        for component in range(components + 1):
            share = mean_share
            if component < components:
                share = sizes[row, component] / limits[component]
                mean_share += share / components
            result[row, component] = values[row] / share if share > 0 else np.inf
            result[row, components + 1 + component] = 1 / share if share > 0 else np.inf
        result[row, -1] = values[row]
        if row + 1 < classes:
            for column in range(2 * components + 3):
                result[row, column] = max(result[row, column], result[row + 1, column])
    return result


@helper
def _measure(room: ConstIntVector, limits: ConstIntVector, shares: FloatVector) -> None:
    """Set `shares` ``[d + 1]``: for each component, ``room / limits``; then their mean; all multiplied by _SAFE."""
    mean_share = 0.0
    for component in range(len(room)):
        share = room[component] / limits[component]
        mean_share += share / len(room)
        shares[component] = share * _SAFE
    shares[-1] = mean_share * _SAFE


@helper
def _may_reach(tail: FloatMatrix, row: int, shares: FloatVector, value: int, goal: int) -> bool:
    """Return whether graphs of class `row` or later may raise a pack's worth from `value` to `goal`; False is proof.

    `shares` is the result of `_measure` for the room left in the pack.
    """
    graphs = np.inf
    for component in range(len(shares) - 1, -1, -1):
        # The entry is infinite if a class has size 0 in this component.
        if tail[row, component] < np.inf:
            if value + shares[component] * tail[row, component] * _SAFE < goal:
                return False
            graphs = min(graphs, shares[component] * tail[row, len(shares) + component])
    return bool(value + np.floor(graphs) * tail[row, -1] * _SAFE >= goal)


@helper
def _best_pack(
    classes: Classes, limits: ConstIntVector, begin: int, least: int, most_steps: int, content: IntVector
) -> tuple[int, int]:
    """Write the best pack that begins with class `begin` to `content`; return worth and steps. See `search_packs`."""
    sizes, values, counts, tail = classes.sizes, classes.values, classes.counts, classes.tails
    number_classes, components = sizes.shape
    room, shares = np.empty(components, dtype=np.int64), np.empty(components + 1)
    # `path`: the class of each graph in the current pack. The mean share in `tail` bounds its length, and so does the
    # number of steps.
    path = np.empty(2 + int(min(tail[0, 2 * components + 1], most_steps)), dtype=np.int64)
    best_path = np.empty_like(path)
    # used[c]: number of graphs of class c in the current pack.
    used = np.zeros(number_classes, dtype=np.int64)
    for component in range(components):
        room[component] = limits[component] - sizes[begin, component]
    _measure(room, limits, shares)
    path[0] = begin
    used[begin] = 1
    # `value`: the worth of the current pack. `depth`: its number of graphs. `row`: the next class to try.
    value, depth, row = values[begin], 1, begin
    best, best_depth, steps = least, 0, 0
    while depth > 0:
        if value > best:
            best, best_depth = value, depth
            for level in range(depth):
                best_path[level] = path[level]
        found = False
        while row < number_classes:
            steps += 1
            if not _may_reach(tail, row, shares, value, best + 1):
                break
            found = used[row] < counts[row]
            for component in range(components):
                found = found and sizes[row, component] <= room[component]
            if found:
                break
            row += 1
        if steps > most_steps:
            break
        # Add a graph of the class found; if there is none, remove the graph added last.
        if found:
            change = 1
            path[depth] = row
            depth += 1
        else:
            change = -1
            depth -= 1
            row = path[depth]
        used[row] += change
        value += change * values[row]
        for component in range(components):
            room[component] -= change * sizes[row, component]
        _measure(room, limits, shares)
        if not found:
            row += 1
    for level in range(best_depth):
        content[best_path[level]] += 1
    return best, steps


@jit
def search_packs(
    classes: Classes, limits: ConstIntVector, first: int, last: int, least: int, most_steps: int, contents: IntMatrix,
    worth: IntVector
) -> int:  # fmt: skip
    """Find, for each class ``first..last - 1``, a pack of the highest worth that begins with it; return the steps.

    A pack begins with the first class that it holds, and holds at most ``counts[c]`` graphs of class c. ``contents[i]``
    ``[C]``, all 0 before, and ``worth[i]`` get the content and the worth of the pack for class ``first + i``; if no
    such pack is worth more than `least`, 0 and `least`. The number of steps is negative if a search was stopped after
    `most_steps`; other searches are exact. Source: Horowitz & Sahni 1974, "Computing partitions with applications to
    the knapsack problem", for the order; Martello & Toth 1990, "Knapsack Problems", chapter 2, for the bounds.
    """
    total, complete = 0, True
    for begin in range(first, last):
        pack = begin - first
        worth[pack], steps = _best_pack(classes, limits, begin, least, most_steps, contents[pack])
        total += steps
        complete = complete and steps <= most_steps
    return total if complete else -total
