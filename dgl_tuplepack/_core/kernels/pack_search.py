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
    """Size classes, by value / (mean share of the limits), descending.

    `sizes` ``[C, d]`` are within the limits, and none is 0 in all components; `values` ``[C]`` and `counts` ``[C]`` are
    > 0; `tails` is the result of the function `tails`.
    """

    sizes: IntMatrix
    values: IntVector
    counts: IntVector
    tails: FloatMatrix


@jit
def tails(sizes: ConstIntMatrix, values: ConstIntVector, limits: ConstIntVector) -> FloatMatrix:
    """Return bounds for packs of each class and all after it, float64 ``[C, 2 d + 3]``.

    Columns: the most value per whole limit of each of d components and of their mean; the most graphs per the same
    d + 1; the largest value. A number is infinite if one of these classes has 0 of the component.
    """
    classes, components = sizes.shape
    result = np.zeros((classes, 2 * components + 3))
    for row in range(classes - 1, -1, -1):
        mixed = 0.0
        for component in range(components + 1):
            # The last turn: the mean of all components.
            share = mixed
            if component < components:
                share = sizes[row, component] / limits[component]
                mixed += share / components
            result[row, component] = values[row] / share if share > 0 else np.inf
            result[row, components + 1 + component] = 1 / share if share > 0 else np.inf
        result[row, -1] = values[row]
        if row + 1 < classes:
            for at in range(2 * components + 3):
                result[row, at] = max(result[row, at], result[row + 1, at])
    return result


@helper
def _measure(room: ConstIntVector, limits: ConstIntVector, shares: FloatVector) -> None:
    """Write the room as a share of the limit of each of d components, then of their even mixture, to ``[d + 1]``."""
    mixed = 0.0
    for component in range(len(room)):
        share = room[component] / limits[component]
        mixed += share / len(room)
        shares[component] = share * _SAFE
    shares[-1] = mixed * _SAFE


@helper
def _may_reach(tail: FloatMatrix, row: int, shares: FloatVector, value: int, goal: int) -> bool:
    """Return False only if `value` and any graphs from `row` on that fit into the room are worth less than `goal`."""
    graphs = np.inf
    for at in range(len(shares) - 1, -1, -1):
        # If a class has 0 of a component, that component does not limit its graphs.
        if tail[row, at] < np.inf:
            if value + shares[at] * tail[row, at] * _SAFE < goal:
                return False
            graphs = min(graphs, shares[at] * tail[row, len(shares) + at])
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

    A pack begins with the class of its lowest row. No class appears more often than its count. `contents`
    ``[last - first, C]`` (all 0 before) and `worth` ``[last - first]`` get the packs and their worth; without such a
    pack, `contents` stay 0 and the worth is `least`. Return the number of steps, negative if a class needed more than
    `most_steps`, so that its pack may not be the best.

    Exact: branches are cut by upper bounds from the limit of each component, from the mixture of all, and from the
    number of graphs that fit. Exponential at worst; packs of n graphs have at most C^n contents.

    Source: Horowitz & Sahni 1974, "Computing partitions with applications to the knapsack problem", for the order;
    Martello & Toth 1990, "Knapsack Problems", chapter 2, for the bounds.
    """
    sizes, values, counts, tail = classes.sizes, classes.values, classes.counts, classes.tails
    number, components = sizes.shape
    room, shares = np.empty(components, dtype=np.int64), np.empty(components + 1)
    # Rows of the graphs in the pack, and in the best, with repeats; `at` is the next row to try. No path is
    # longer than the most graphs that fit by the mean share, or than the steps.
    path = np.empty(2 + int(min(tail[0, 2 * components + 1], most_steps)), dtype=np.int64)
    best_path = np.empty_like(path)
    used = np.zeros(number, dtype=np.int64)
    total, complete = 0, True
    for begin in range(first, last):
        for component in range(components):
            room[component] = limits[component] - sizes[begin, component]
        value, best, depth, steps, at = values[begin], least, 1, 0, begin
        best_depth = 0
        _measure(room, limits, shares)
        path[0] = begin
        used[begin] = 1
        while depth > 0:
            if value > best:
                best, best_depth = value, depth
                for level in range(depth):
                    best_path[level] = path[level]
            found = False
            while at < number:
                steps += 1
                if not _may_reach(tail, at, shares, value, best + 1):
                    break
                fits = used[at] < counts[at]
                for component in range(components):
                    fits = fits and sizes[at, component] <= room[component]
                if fits:
                    found = True
                    break
                at += 1
            if steps > most_steps:
                complete = False
                for level in range(depth):
                    used[path[level]] = 0
                break
            if found:
                path[depth] = at
                depth += 1
                used[at] += 1
                value += values[at]
                for component in range(components):
                    room[component] -= sizes[at, component]
                _measure(room, limits, shares)
            else:
                depth -= 1
                at = path[depth]
                used[at] -= 1
                value -= values[at]
                for component in range(components):
                    room[component] += sizes[at, component]
                _measure(room, limits, shares)
                at += 1
        for level in range(best_depth):
            contents[begin - first, best_path[level]] += 1
        worth[begin - first] = best
        total += steps
    return total if complete else -total
