"""The most valuable packs, by depth-first search: for packs of few graphs, however large their limits are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, FloatMatrix, IntMatrix, IntVector

# Rounding errors of the bound's few operations are far smaller.
_SAFE = 1 + 1e-12


class Classes(NamedTuple):
    """Size classes, by falling value for the mean share of the limits that a graph takes.

    `sizes` ``[C, d]`` are not all 0 and within the limits, `values` ``[C]`` and `counts` ``[C]`` > 0; `tails` is what
    the function of that name returns for them.
    """

    sizes: IntMatrix
    values: IntVector
    counts: IntVector
    tails: FloatMatrix


@jit
def tails(sizes: ConstIntMatrix, values: ConstIntVector, limits: ConstIntVector) -> FloatMatrix:
    """What bounds the worth of graphs of the classes from a row on, float64 ``[C, 2 d + 3]``.

    For each component, and last for the even mixture of all: the most value for its whole limit, infinite where a
    class has nothing of it; the same number of smallest shares of the limit; and the largest value.
    """
    classes, components = sizes.shape
    result = np.zeros((classes, 2 * components + 3))
    for row in range(classes - 1, -1, -1):
        mixed = 0.0
        for component in range(components + 1):
            share = mixed
            if component < components:
                share = sizes[row, component] / limits[component]
                mixed += share / components
            result[row, component] = values[row] / share if share > 0 else np.inf
            result[row, components + 1 + component] = share
        result[row, 2 * components + 2] = values[row]
        if row + 1 < classes:
            for component in range(components + 1):
                smallest = components + 1 + component
                result[row, component] = max(result[row, component], result[row + 1, component])
                result[row, smallest] = min(result[row, smallest], result[row + 1, smallest])
            result[row, -1] = max(result[row, -1], result[row + 1, -1])
    return result


@jit
def _most(tail: FloatMatrix, row: int, room: ConstIntVector, limits: ConstIntVector) -> float:
    """What graphs of the classes from `row` on can be worth within a room, at most."""
    components = len(room)
    mixed, most, graphs = 0.0, np.inf, np.inf
    for component in range(components + 1):
        share = mixed
        if component < components:
            share = room[component] / limits[component]
            mixed += share / components
        share *= _SAFE
        # Graphs that have nothing of a component may go on for ever.
        if tail[row, component] < np.inf:
            most = min(most, share * tail[row, component])
        smallest = tail[row, components + 1 + component]
        if smallest > 0:
            graphs = min(graphs, share / smallest)
    return float(min(most, np.floor(graphs) * tail[row, -1]) * _SAFE)


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
    """For each class ``first..last - 1``, find a best pack that begins with it and is worth more than `least`.

    A pack begins with the class of its lowest row. No class comes more often than its count. `contents`
    ``[last - first, C]`` (all 0 before) and `worth` ``[last - first]`` get the packs and their worth, or nothing and
    `least`. Returns the steps taken, negative if a class took more than `most_steps`, so that its pack may not be the
    best.

    Exact: branches are cut by what the limit of each component, the mixture of all, and the number of graphs that have
    room allow at most. Exponential at worst; packs of n graphs have at most C^n contents.

    Source: Horowitz & Sahni 1974, "Computing partitions with applications to the knapsack problem", for the order;
    Martello & Toth 1990, "Knapsack Problems", chapter 2, for the bounds.
    """
    sizes, values, counts, tail = classes.sizes, classes.values, classes.counts, classes.tails
    number, components = sizes.shape
    room = np.empty(components, dtype=np.int64)
    # Each level takes a step at least.
    path = np.empty(2 + int(min(1 / tail[0, 2 * components + 1], most_steps)), dtype=np.int64)
    used = np.zeros(number, dtype=np.int64)
    total, complete = 0, True
    for begin in range(first, last):
        for component in range(components):
            room[component] = limits[component] - sizes[begin, component]
        value, best, depth, steps, at = values[begin], least, 1, 0, begin
        path[0] = begin
        used[begin] = 1
        while depth > 0:
            if value > best:
                best = value
                contents[begin - first] = 0
                for level in range(depth):
                    contents[begin - first, path[level]] += 1
            found = False
            while at < number:
                steps += 1
                if value + _most(tail, at, room, limits) < best + 1:
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
            else:
                depth -= 1
                at = path[depth]
                used[at] -= 1
                value -= values[at]
                for component in range(components):
                    room[component] += sizes[at, component]
                at += 1
        worth[begin - first] = best
        total += steps
    return total if complete else -total
