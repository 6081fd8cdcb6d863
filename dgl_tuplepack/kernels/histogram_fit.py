"""Best fit and first fit on a histogram: identical packs are handled as one group.

A group is one row of a table: the group it grew from, the size class it added, how many identical
packs it stands for, their graphs, and what is left of the limits. Following the parents of a group lists
its content, so nothing is ever copied.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack.kernels._jit import MATRIX, VECTOR, jit
from dgl_tuplepack.kernels.priority import priority
from dgl_tuplepack.kernels.random import random_bits

IntArray = NDArray[np.int64]

PARENT, ADDED, COUNT, GRAPHS, REMAINDER = 0, 1, 2, 3, 4


@jit(f"int64({MATRIX}, int64, int64)")
def _first_at_least(opened: IntArray, length: int, value: int) -> int:
    """Position of the first open group whose priority is >= `value`."""
    low, high = 0, length
    while low < high:
        middle = (low + high) >> 1
        if opened[middle, 0] < value:
            low = middle + 1
        else:
            high = middle
    return low


@jit(f"boolean({VECTOR}, {VECTOR})")
def _fits(size: IntArray, group: IntArray) -> bool:
    for component in range(len(size)):  # noqa: SIM110 (no generators in kernels)
        if size[component] > group[REMAINDER + component]:
            return False
    return True


@jit(f"int64({MATRIX}, int64, {MATRIX}, {VECTOR}, int64, boolean)")
def _find(opened: IntArray, length: int, groups: IntArray, size: IntArray, start: int, fullest_first: bool) -> int:
    """Position of the group to put `size` into, or -1; priorities below `start` are passed over.

    Among groups of equal priority the one that came first is taken, whichever way priorities are scanned.
    """
    lowest = _first_at_least(opened, length, start)
    if fullest_first:
        for position in range(lowest, length):
            if _fits(size, groups[opened[position, 1]]):
                return position
        return -1
    end = length
    while end > lowest:
        begin = _first_at_least(opened, length, opened[end - 1, 0])
        for position in range(begin, end):
            if _fits(size, groups[opened[position, 1]]):
                return position
        end = begin
    return -1


@jit("int64(int64[:, ::1], int64, int64, int64, boolean)")
def _insert(opened: IntArray, length: int, value: int, group: int, in_front: bool) -> int:
    """Put a group behind (or in front of) those of equal priority; return the new length."""
    position = _first_at_least(opened, length, value if in_front else value + 1)
    for row in range(length, position, -1):
        opened[row, 0] = opened[row - 1, 0]
        opened[row, 1] = opened[row - 1, 1]
    opened[position, 0] = value
    opened[position, 1] = group
    return length + 1


@jit("int64(int64[:, ::1], int64, int64)")
def _remove(opened: IntArray, length: int, position: int) -> int:
    """Take out the group at `position`; return the new length."""
    for row in range(position, length - 1):
        opened[row, 0] = opened[row + 1, 0]
        opened[row, 1] = opened[row + 1, 1]
    return length - 1


@jit("int64[:, ::1](int64[:, ::1], int64)")
def _with_room(rows: IntArray, used: int) -> IntArray:
    """The same rows, twice as many if all are used."""
    if used < len(rows):
        return rows
    larger = np.empty((2 * len(rows), rows.shape[1]), dtype=np.int64)
    larger[:used] = rows[:used]
    return larger


@jit(
    f"int64[:, ::1]({MATRIX}, {VECTOR}, {VECTOR}, {VECTOR}, int64, int64, {VECTOR}, {VECTOR}, boolean, boolean, uint64)"
)
def fit_histogram(
    sizes: IntArray,
    counts: IntArray,
    order: IntArray,
    limits: IntArray,
    cap: int,
    kind: int,
    weights: IntArray,
    table: IntArray,
    fullest_first: bool,
    random_ties: bool,
    key: np.uint64,
) -> IntArray:
    """Groups of packs, int64 ``[G, 4 + k]``, that hold every graph of the histogram once.

    `sizes` ``[C, k]`` (each within `limits` ``[k]``) and `counts` ``[C]`` are taken in `order` ``[C]``;
    `kind`, `weights` and `table` define the priority. Nothing given is changed.
    """
    k = sizes.shape[1]
    groups = np.empty((1024, REMAINDER + k), dtype=np.int64)
    opened = np.empty((1024, 2), dtype=np.int64)
    used, length = 0, 0
    for row in order:
        size, left = sizes[row], counts[row]
        start = priority(kind, weights, table, size)
        position = _find(opened, length, groups, size, start, fullest_first)
        placed = False
        while left > 0:
            groups = _with_room(groups, used)
            opened = _with_room(opened, length)
            new = groups[used]
            new[ADDED] = row
            if position >= 0:
                parent = opened[position, 1]
                old_value, old = opened[position, 0], groups[parent]
                length = _remove(opened, length, position)
                number = min(left, old[COUNT])
                old[COUNT] -= number
                new[PARENT] = parent
                new[GRAPHS] = old[GRAPHS] + 1
                for component in range(k):
                    new[REMAINDER + component] = old[REMAINDER + component] - size[component]
                if old[COUNT] > 0:
                    in_front = random_ties and random_bits(key, np.uint64(2 * used)) & np.uint64(1) == 1
                    length = _insert(opened, length, old_value, parent, in_front)
                    opened = _with_room(opened, length)
                placed = True
            else:
                number = left
                new[PARENT] = -1
                new[GRAPHS] = 1
                for component in range(k):
                    new[REMAINDER + component] = limits[component] - size[component]
            new[COUNT] = number
            left -= number
            value = priority(kind, weights, table, new[REMAINDER:])
            if value > 0 and new[GRAPHS] < cap:
                in_front = random_ties and random_bits(key, np.uint64(2 * used + 1)) & np.uint64(1) == 1
                length = _insert(opened, length, value, used, in_front)
            used += 1
            if left > 0:
                # The companion code searches on from the next higher priority once a size was placed.
                position = _find(opened, length, groups, size, start + placed, fullest_first)
    return groups[:used].copy()


@jit("UniTuple(int64[::1], 4)(int64[:, ::1])")
def patterns_of(groups: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Content of every group that still stands for packs, as CSR arrays.

    Returns offsets ``[Q + 1]``, size classes and multiplicities ``[offsets[-1]]``, repeats ``[Q]``. A group
    gets all its graphs of one size in a row, so each class stands in a pattern once.
    """
    patterns, entries = 0, 0
    for group in range(len(groups)):
        if groups[group, COUNT] > 0:
            patterns += 1
            at, last = group, -1
            while at >= 0:
                entries += groups[at, ADDED] != last
                last = groups[at, ADDED]
                at = groups[at, PARENT]
    offsets = np.zeros(patterns + 1, dtype=np.int64)
    classes = np.empty(entries, dtype=np.int64)
    multiplicities = np.zeros(entries, dtype=np.int64)
    repeats = np.empty(patterns, dtype=np.int64)
    pattern, entry = 0, -1
    for group in range(len(groups)):
        if groups[group, COUNT] > 0:
            repeats[pattern] = groups[group, COUNT]
            at, last = group, -1
            while at >= 0:
                if groups[at, ADDED] != last:
                    entry += 1
                    last = groups[at, ADDED]
                    classes[entry] = last
                multiplicities[entry] += 1
                at = groups[at, PARENT]
            pattern += 1
            offsets[pattern] = entry + 1
    return offsets, classes, multiplicities, repeats
