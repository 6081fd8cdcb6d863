"""Best fit and first fit on a histogram: identical packs are handled as one group.

A group is a row of `groups`: packs with the same content, which may get more graphs. It has only the class of the graph
added last, and its parent, the group that it was made from. A remainder is the room left in a pack, in one of the k
components; the priority of a group is computed from its remainders.

Groups are sorted by priority, in blocks. A block is a row of `pool`, with up to BLOCK entries, one for each group.
`order` holds the indices of all blocks: first the used blocks (`blocks` of them) in ascending order of priority, then
the free blocks. The position of an entry is ``BLOCK * (place of the block in order) + (place in the block)``. Inserting
or removing a group costs O(blocks + BLOCK). The layout is a B-tree (Bayer & McCreight 1972) of two levels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dgl_tuplepack._core.kernels._jit import helper, jit
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

BLOCK = 32

# Columns of `groups`, int64 [G, 4 + k]. PARENT: index of the group that the packs belonged to before each got its last
# graph; -1 if each pack has only one graph. ADDED: size class of the last graph of each pack. COUNT: number of packs.
# GRAPHS: number of graphs in each pack. From REMAINDER on: the k remainders of each pack.
PARENT, ADDED, COUNT, GRAPHS, REMAINDER = range(5)
# Columns of `pool`, int64 [blocks, 1 + 2 BLOCK + k]. ENTRIES: number of entries. From PRIORITY on: the priority of each
# entry. From GROUP on: the index of the group of each entry. From LARGEST on: for each component, the largest remainder
# of any group in the block.
ENTRIES, PRIORITY, GROUP, LARGEST = 0, 1, 1 + BLOCK, 1 + 2 * BLOCK


@helper
def first_at_least(pool: ConstIntMatrix, order: ConstIntVector, blocks: int, value: int) -> int:
    """Return the position of the first entry with priority >= `value`; ``BLOCK * blocks`` if there is none."""
    # Find the first block whose last priority is >= `value`.
    low, high = 0, blocks
    while low < high:
        middle = (low + high) >> 1
        block = order[middle]
        if pool[block, PRIORITY + pool[block, ENTRIES] - 1] < value:
            low = middle + 1
        else:
            high = middle
    if low == blocks:
        return BLOCK * blocks
    block = order[low]
    first, last = 0, pool[block, ENTRIES]
    while first < last:
        middle = (first + last) >> 1
        if pool[block, PRIORITY + middle] < value:
            first = middle + 1
        else:
            last = middle
    return BLOCK * low + int(first)


@helper
def _fits(size: ConstIntVector, rows: ConstIntMatrix, row: int, first: int) -> bool:
    """Return whether `size` ``[k]`` fits into the k remainders in ``rows[row]``, from column `first` on."""
    for component in range(len(size)):  # noqa: SIM110 (no generators in kernels)
        if size[component] > rows[row, first + component]:
            return False
    return True


@jit
def find_fullest(
    pool: ConstIntMatrix, order: ConstIntVector, blocks: int, groups: ConstIntMatrix, size: ConstIntVector, start: int
) -> tuple[int, int]:
    """Find the first group with priority >= `start` and room for `size`; return its position, or -1, and the steps."""
    position = first_at_least(pool, order, blocks, start)
    inside, steps = position % BLOCK, 0
    for place in range(position // BLOCK, blocks):
        block = order[place]
        steps += 1
        if _fits(size, pool, block, LARGEST):
            for entry in range(inside, pool[block, ENTRIES]):
                steps += 1
                if _fits(size, groups, pool[block, GROUP + entry], REMAINDER):
                    return BLOCK * place + entry, steps
        inside = 0
    return -1, steps


@jit
def find_emptiest(
    pool: ConstIntMatrix, order: ConstIntVector, blocks: int, groups: ConstIntMatrix, size: ConstIntVector, start: int
) -> tuple[int, int]:
    """Find the first group of the highest priority >= `start` with room for `size`; return as `find_fullest`."""
    steps = 0
    lowest = first_at_least(pool, order, blocks, start)
    for place in range(blocks - 1, lowest // BLOCK - 1, -1):
        block = order[place]
        steps += 1
        if _fits(size, pool, block, LARGEST):
            # Entries before the position `lowest` have a priority below `start`.
            last = lowest % BLOCK if place == lowest // BLOCK else 0
            for entry in range(pool[block, ENTRIES] - 1, last - 1, -1):
                steps += 1
                if _fits(size, groups, pool[block, GROUP + entry], REMAINDER):
                    # Earlier groups of the same priority may have room too.
                    position, more = find_fullest(pool, order, blocks, groups, size, pool[block, PRIORITY + entry])
                    return position, steps + more
    return -1, steps


@helper
def _summarise(pool: IntMatrix, block: int, components: int, groups: ConstIntMatrix) -> None:
    """Write into a block, for each component, the largest remainder of any group in the block."""
    for component in range(components):
        pool[block, LARGEST + component] = -1
    for entry in range(pool[block, ENTRIES]):
        group = pool[block, GROUP + entry]
        for component in range(components):
            room = groups[group, REMAINDER + component]
            pool[block, LARGEST + component] = max(pool[block, LARGEST + component], room)


@helper
def _split(pool: IntMatrix, order: IntVector, blocks: int, place: int) -> int:
    """Move the second half of the full block at `place` in `order` to a free block, which comes next; return its index.

    The caller must update the largest remainders of both blocks.
    """
    block, fresh = order[place], int(order[blocks])
    for other in range(blocks, place + 1, -1):
        order[other] = order[other - 1]
    order[place + 1] = fresh
    half = pool[block, ENTRIES] // 2
    moved = pool[block, ENTRIES] - half
    for first in (PRIORITY, GROUP):
        for entry in range(moved):
            pool[fresh, first + entry] = pool[block, first + half + entry]
    pool[block, ENTRIES], pool[fresh, ENTRIES] = half, moved
    return fresh


@jit
def put_in(
    pool: IntMatrix, order: IntVector, blocks: int, groups: ConstIntMatrix, value: int, group: int, in_front: bool
) -> int:
    """Insert a group after all groups of equal priority `value`, or before them if `in_front`.

    Return the new number of used blocks. The caller must ensure that there is a free block.
    """
    components = groups.shape[1] - REMAINDER
    position = first_at_least(pool, order, blocks, value if in_front else value + 1)
    place, inside = position // BLOCK, position % BLOCK
    if blocks == 0:
        blocks = 1
        pool[order[0], ENTRIES] = 0
    elif inside == 0 and place > 0:
        # Append to the previous block: the block at `place` may not exist.
        place -= 1
        inside = pool[order[place], ENTRIES]
    block = order[place]
    if pool[block, ENTRIES] == BLOCK:
        fresh = _split(pool, order, blocks, place)
        blocks += 1
        _summarise(pool, fresh, components, groups)
        _summarise(pool, block, components, groups)
        if inside > pool[block, ENTRIES]:
            inside -= pool[block, ENTRIES]
            block = fresh
    for first in (PRIORITY, GROUP):
        for entry in range(pool[block, ENTRIES], inside, -1):
            pool[block, first + entry] = pool[block, first + entry - 1]
    pool[block, PRIORITY + inside], pool[block, GROUP + inside] = value, group
    pool[block, ENTRIES] += 1
    for component in range(components):
        room = groups[group, REMAINDER + component]
        if pool[block, ENTRIES] == 1 or room > pool[block, LARGEST + component]:
            pool[block, LARGEST + component] = room
    return blocks


@jit
def take_out(pool: IntMatrix, order: IntVector, blocks: int, groups: ConstIntMatrix, position: int) -> int:
    """Remove the group at `position`; return the new number of used blocks."""
    components = groups.shape[1] - REMAINDER
    place, inside = position // BLOCK, position % BLOCK
    block = order[place]
    group = pool[block, GROUP + inside]
    had_largest = False
    for component in range(components):
        room = groups[group, REMAINDER + component]
        had_largest = had_largest or room == pool[block, LARGEST + component]
    pool[block, ENTRIES] -= 1
    for first in (PRIORITY, GROUP):
        for entry in range(inside, pool[block, ENTRIES]):
            pool[block, first + entry] = pool[block, first + entry + 1]
    if pool[block, ENTRIES] > 0:
        if had_largest:
            _summarise(pool, block, components, groups)
        return blocks
    # Make the empty block the first free block.
    for other in range(place, blocks - 1):
        order[other] = order[other + 1]
    order[blocks - 1] = block
    return blocks - 1


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

    Only groups with at least the priority of the size are searched; after its first placement, with a higher one,
    unless `by_the_text` is set. Among equal priorities a group is last, or with `random_ties`, first or last, drawn
    with `key`.
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

    For the columns see PARENT; groups whose packs have all moved to other groups have COUNT 0. Size classes are packed
    in `order`, at most `cap` graphs in a pack. `rule` computes the priority of a size, or of the room left in a pack.
    If more than about `most_steps` steps are needed, no groups are returned.
    """
    k = sizes.shape[1]
    groups = np.empty((1024, REMAINDER + k), dtype=np.int64)
    # The index over all open groups.
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
