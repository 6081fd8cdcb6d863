"""Best fit and first fit on a histogram: identical packs are handled as one group.

A group has only the class of the graph added last, and its parent, the group that it was made from.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.open_packs import (
    ADDED,
    BLOCK,
    COUNT,
    GRAPHS,
    GROUP,
    LARGEST,
    PARENT,
    PRIORITY,
    REMAINDER,
    find_emptiest,
    find_fullest,
    put_in,
    take_out,
)
from dgl_tuplepack._core.kernels.random import random_bits
from dgl_tuplepack._core.kernels.types import (
    MAXIMUM,
    MINIMUM,
    PRODUCT,
    ConstIntMatrix,
    ConstIntVector,
    IntMatrix,
    IntVector,
    Rule,
)


@helper
def priority(rule: Rule, size: ConstIntVector) -> int:
    """Return the priority of `size` ``[k]``, an integer that never falls when a component of the size grows."""
    kind = rule.kind
    if kind == PRODUCT:
        value = np.int64(1)
        for component in range(len(size)):
            value *= size[component]
        return int(value)
    if kind in (MAXIMUM, MINIMUM):
        value = size[0]
        for component in range(1, len(size)):
            value = max(value, size[component]) if kind == MAXIMUM else min(value, size[component])
        return int(value)
    value = np.int64(0)
    for component in range(len(size)):
        value += rule.weights[component] * size[component]
    return int(value)


@jit
def priorities(rule: Rule, sizes: ConstIntMatrix) -> IntVector:
    """Return the priority of each of the `sizes` ``[C, k]`` as int64 ``[C]``."""
    result = np.empty(len(sizes), dtype=np.int64)
    for row in range(len(sizes)):
        result[row] = priority(rule, sizes[row])
    return result


class Placing(NamedTuple):
    """The rule for placing graphs: with `fullest_first`, into the group with room that has the lowest priority.

    Only groups with at least the priority of the size are searched; after the first placement of a size, only groups
    with a higher priority, unless `by_the_text` is set. A group is inserted after all groups of equal priority; with
    `random_ties`, before or after them at random, drawn with `key`.
    """

    fullest_first: bool
    by_the_text: bool
    random_ties: bool
    key: np.uint64


@helper
def _with_room(rows: IntMatrix, used: int) -> IntMatrix:
    """Return `rows`; if all of them are in use, append as many unused rows."""
    if used < len(rows):
        return rows
    return np.concatenate((rows, np.empty_like(rows)))


@jit
def fit_histogram(
    sizes: ConstIntMatrix, counts: ConstIntVector, order: ConstIntVector, limits: ConstIntVector, cap: int,
    rule: Rule, placing: Placing, most_steps: int
) -> tuple[IntMatrix, int]:  # fmt: skip
    """Return groups of packs, int64 ``[G, 4 + k]``, that hold every graph of the histogram once; and the steps done.

    For the columns see PARENT in `open_packs.py`. A group whose packs have all moved to other groups remains, with
    COUNT 0. Size classes are packed in `order`, at most `cap` graphs in a pack. `rule` computes the priority of a size,
    or of the room left in a pack. If more than about `most_steps` steps are needed, no groups are returned.
    """
    k = sizes.shape[1]
    groups = np.empty((1024, REMAINDER + k), dtype=np.int64)
    # The index over all open groups; see `open_packs.py`.
    pool = np.empty((16, LARGEST + k), dtype=np.int64)
    blocks_order = np.arange(len(pool))
    used, blocks, steps = 0, 0, 0
    for size_class in order:
        # `after`: the lowest priority to search from.
        size, left = sizes[size_class], counts[size_class]
        start = priority(rule, size)
        after = start
        while left > 0:
            if steps > most_steps:
                return groups[:0].copy(), steps
            if placing.fullest_first:
                position, looked = find_fullest(pool, blocks_order, blocks, groups, size, after)
            else:
                position, looked = find_emptiest(pool, blocks_order, blocks, groups, size, after)
            steps += BLOCK + looked
            groups = _with_room(groups, used)
            # Each of the two groups inserted below may need a free block.
            if blocks + 2 > len(pool):
                pool = _with_room(pool, len(pool))
                blocks_order = np.concatenate((blocks_order, np.arange(len(blocks_order), len(pool))))
            new = groups[used]
            if position >= 0:
                block, entry = pool[blocks_order[position // BLOCK]], position % BLOCK
                old_value, parent = block[PRIORITY + entry], block[GROUP + entry]
                old = groups[parent]
                blocks = take_out(pool, blocks_order, blocks, groups, position)
                number = min(left, old[COUNT])
                old[COUNT] -= number
                new[PARENT], new[GRAPHS] = parent, old[GRAPHS] + 1
                for component in range(k):
                    new[REMAINDER + component] = old[REMAINDER + component] - size[component]
                # The paper does not fix the order of groups with equal priorities. Its figures for ogbg-molhiv are
                # reproduced only if the packs that do not get a graph are inserted before the packs that get one.
                if old[COUNT] > 0:
                    in_front = placing.random_ties and random_bits(placing.key, np.uint64(2 * used)) & np.uint64(1) == 1
                    blocks = put_in(pool, blocks_order, blocks, groups, old_value, parent, in_front)
                # After a placement, the paper's code searches from the next higher priority on; its text does not.
                after = start if placing.by_the_text else start + 1
            else:
                # Each graph of this class that is not placed yet opens a pack of its own.
                number = left
                new[PARENT], new[GRAPHS] = -1, 1
                for component in range(k):
                    new[REMAINDER + component] = limits[component] - size[component]
            new[ADDED], new[COUNT] = size_class, number
            left -= number
            value = priority(rule, new[REMAINDER:])
            if value > 0 and new[GRAPHS] < cap:
                in_front = placing.random_ties and random_bits(placing.key, np.uint64(2 * used + 1)) & np.uint64(1) == 1
                blocks = put_in(pool, blocks_order, blocks, groups, value, used, in_front)
            used += 1
    return groups[:used].copy(), steps


@jit
def patterns_of(groups: IntMatrix) -> tuple[IntVector, IntVector, IntVector, IntVector]:
    """Return the patterns of all groups that still have packs, as the four arrays of `planning.plan.Patterns`."""
    # In a chain of parents, all graphs of one class are next to each other.
    patterns, entries = 0, 0
    for group in range(len(groups)):
        if groups[group, COUNT] > 0:
            patterns += 1
            ancestor, last = group, -1
            while ancestor >= 0:
                entries += groups[ancestor, ADDED] != last
                last = groups[ancestor, ADDED]
                ancestor = groups[ancestor, PARENT]
    offsets = np.zeros(patterns + 1, dtype=np.int64)
    classes = np.empty(entries, dtype=np.int64)
    multiplicities = np.zeros(entries, dtype=np.int64)
    repeats = np.empty(patterns, dtype=np.int64)
    pattern, entry = 0, -1
    for group in range(len(groups)):
        if groups[group, COUNT] > 0:
            repeats[pattern] = groups[group, COUNT]
            ancestor, last = group, -1
            while ancestor >= 0:
                if groups[ancestor, ADDED] != last:
                    entry += 1
                    last = groups[ancestor, ADDED]
                    classes[entry] = last
                multiplicities[entry] += 1
                ancestor = groups[ancestor, PARENT]
            pattern += 1
            offsets[pattern] = entry + 1
    return offsets, classes, multiplicities, repeats
