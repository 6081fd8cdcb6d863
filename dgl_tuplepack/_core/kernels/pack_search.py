"""Find the most valuable packs by depth-first search: for packs of few graphs, with limits of any size."""

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

# Rounding errors of the few operations of a bound are much smaller than this margin.
_SAFE = 1 + 1e-12


class Classes(NamedTuple):
    """Size classes, ordered by value / (mean share of the limits), highest first.

    `sizes` ``[C, d]`` are within the limits, and none is 0 in all components. `values` ``[C]`` and `counts` ``[C]`` are
    > 0. `tails` is the result of the function `tails` for these classes.
    """

    sizes: IntMatrix
    values: IntVector
    counts: IntVector
    tails: FloatMatrix


@jit
def tails(sizes: ConstIntMatrix, values: ConstIntVector, limits: ConstIntVector) -> FloatMatrix:
    """Return bounds, float64 ``[C, 2 d + 3]``: row c is for packs of class c and all classes after it.

    A graph has d + 1 shares: size / limit in each of the d components, then their mean. Each entry is the maximum over
    the classes that its row is for. The first d + 1 columns have value / share: the value of graphs that use up one
    whole limit. The next d + 1 columns have 1 / share: the number of such graphs. The last column has the value of a
    single graph. An entry is infinite if the share is 0 for one of the classes.
    """
    classes, components = sizes.shape
    result = np.zeros((classes, 2 * components + 3))
    for row in range(classes - 1, -1, -1):
        mean_share = 0.0
        for component in range(components + 1):
            # In the last iteration, the share is the mean over all components.
            share = mean_share
            if component < components:
                share = sizes[row, component] / limits[component]
                mean_share += share / components
            result[row, component] = values[row] / share if share > 0 else np.inf
            result[row, components + 1 + component] = 1 / share if share > 0 else np.inf
        result[row, -1] = values[row]
        # A row also covers the classes after it.
        if row + 1 < classes:
            for column in range(2 * components + 3):
                result[row, column] = max(result[row, column], result[row + 1, column])
    return result


@helper
def _measure(room: ConstIntVector, limits: ConstIntVector, shares: FloatVector) -> None:
    """Write to `shares` ``[d + 1]`` the room as a share of each limit, then the mean of these shares."""
    mean_share = 0.0
    for component in range(len(room)):
        share = room[component] / limits[component]
        mean_share += share / len(room)
        shares[component] = share * _SAFE
    shares[-1] = mean_share * _SAFE


@helper
def _may_reach(tail: FloatMatrix, row: int, shares: FloatVector, value: int, goal: int) -> bool:
    """Return False only if adding graphs of class `row` or later cannot raise a pack from `value` to `goal`.

    `shares` is the room left in the pack; see `_measure`.
    """
    graphs = np.inf
    # Use the room of each component, and the mean room, to bound the value and the number of graphs that can be added.
    for component in range(len(shares) - 1, -1, -1):
        # If a class has 0 of a component, that component does not limit its graphs.
        if tail[row, component] < np.inf:
            if value + shares[component] * tail[row, component] * _SAFE < goal:
                return False
            graphs = min(graphs, shares[component] * tail[row, len(shares) + component])
    return bool(value + np.floor(graphs) * tail[row, -1] * _SAFE >= goal)


@jit
def search_packs(
    classes: Classes,
    limits: ConstIntVector,
    first: int,
    last: int,
    least: int,
    most_steps: int,
    contents: IntMatrix,
    worth: IntVector,
) -> int:
    """Find, for each class ``first..last - 1``, a best pack that begins with it and is worth more than `least`.

    A pack begins with the first class that it holds. No class appears more often than its count. `contents`
    ``[last - first, C]`` (all 0 before) and `worth` ``[last - first]`` get the pack of each class and its worth. If
    there is no such pack, its contents stay 0 and its worth is `least`. Return the number of steps, negative if a class
    needed more than `most_steps`; its pack may then not be the best.

    The search is exact: it cuts branches by upper bounds from the limit of each component, from the mean of all
    components, and from the number of graphs that fit. Time is exponential at worst; packs of n graphs have at most C^n
    contents.

    Source: Horowitz & Sahni 1974, "Computing partitions with applications to the knapsack problem", for the order;
    Martello & Toth 1990, "Knapsack Problems", chapter 2, for the bounds.
    """
    sizes, values, counts, tail = classes.sizes, classes.values, classes.counts, classes.tails
    number_classes, components = sizes.shape
    room, shares = np.empty(components, dtype=np.int64), np.empty(components + 1)
    # `path`: the class of each graph in the pack, in ascending order; `best_path`: the same for the best pack.
    # No path is longer than the most graphs that fit by the mean share, or than the steps.
    path = np.empty(2 + int(min(tail[0, 2 * components + 1], most_steps)), dtype=np.int64)
    best_path = np.empty_like(path)
    used = np.zeros(number_classes, dtype=np.int64)
    total, complete = 0, True
    for begin in range(first, last):
        for component in range(components):
            room[component] = limits[component] - sizes[begin, component]
        # `value` is the worth of the pack, `depth` its number of graphs, and `row` the next class to try.
        value, best, depth, steps, row = values[begin], least, 1, 0, begin
        best_depth = 0
        _measure(room, limits, shares)
        path[0] = begin
        used[begin] = 1
        while depth > 0:
            if value > best:
                best, best_depth = value, depth
                for level in range(depth):
                    best_path[level] = path[level]
            # Find the next class that fits; stop once no class from here on can lead to a better pack.
            found = False
            while row < number_classes:
                steps += 1
                if not _may_reach(tail, row, shares, value, best + 1):
                    break
                fits = used[row] < counts[row]
                for component in range(components):
                    fits = fits and sizes[row, component] <= room[component]
                if fits:
                    found = True
                    break
                row += 1
            # After too many steps, give up on this class: reset `used`, and keep the best pack so far.
            if steps > most_steps:
                complete = False
                for level in range(depth):
                    used[path[level]] = 0
                break
            if found:
                path[depth] = row
                depth += 1
                used[row] += 1
                value += values[row]
                for component in range(components):
                    room[component] -= sizes[row, component]
                _measure(room, limits, shares)
            else:
                # Remove the last graph, and continue with the class after it.
                depth -= 1
                row = path[depth]
                used[row] -= 1
                value -= values[row]
                for component in range(components):
                    room[component] += sizes[row, component]
                _measure(room, limits, shares)
                row += 1
        for level in range(best_depth):
            contents[begin - first, best_path[level]] += 1
        worth[begin - first] = best
        total += steps
    return total if complete else -total
