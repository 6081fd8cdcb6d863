"""An index over groups of identical open packs: ordered by priority, and divided into blocks.

A remainder is the room left in a pack, in one component. Each block is one row of `pool`, and its entries stand for
groups. The row has the number of entries, then for each component the largest remainder of any of these groups, then
space for the priorities of up to BLOCK groups, then space for their indices (rows of `groups`). `order` holds the
indices of all blocks (rows of `pool`): first the used blocks in the order of priority, then the free blocks. The
position of an entry is ``BLOCK * (place of the block in order) + (place in the block)``.

A search skips a block if there is a component in which none of its groups has enough room. So it usually looks at few
groups. Inserting and removing cost O(blocks + BLOCK). The layout is a B-tree (Bayer & McCreight 1972) of two levels.
"""

from __future__ import annotations

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntMatrix, IntVector

BLOCK = 32

# Columns of `groups`, int64 [G, 4 + k], with a row for each group of identical packs: the parent (the group that this
# group was made from; -1: none), the size class of the graph added to each pack of the parent, the number of packs, the
# number of graphs in each pack, then the k remainders of each pack.
PARENT, ADDED, COUNT, GRAPHS, REMAINDER = range(5)


@helper
def first_at_least(pool: ConstIntMatrix, order: ConstIntVector, blocks: int, components: int, value: int) -> int:
    """Return the position of the first group with priority >= `value`; ``BLOCK * blocks`` if there is none."""
    # Priorities begin at column `head` of a block, and ascend. First find the block, by its last priority.
    head = 1 + components
    low, high = 0, blocks
    while low < high:
        middle = (low + high) >> 1
        block = order[middle]
        if pool[block, head + pool[block, 0] - 1] < value:
            low = middle + 1
        else:
            high = middle
    if low == blocks:
        return BLOCK * blocks
    # Then find the entry in the block.
    block = order[low]
    first, last = 0, pool[block, 0]
    while first < last:
        middle = (first + last) >> 1
        if pool[block, head + middle] < value:
            first = middle + 1
        else:
            last = middle
    return BLOCK * low + int(first)


@helper
def _fits(size: ConstIntVector, rows: ConstIntMatrix, row: int, first: int) -> bool:
    """Return whether `size` ``[k]`` fits into the k remainders that begin at column `first` of a row."""
    for component in range(len(size)):  # noqa: SIM110 (no generators in kernels)
        if size[component] > rows[row, first + component]:
            return False
    return True


@jit
def find_fullest(
    pool: ConstIntMatrix, order: ConstIntVector, blocks: int, groups: ConstIntMatrix, size: ConstIntVector, start: int
) -> tuple[int, int]:
    """Return the position of the first group with priority >= `start` and room for `size`, or -1; and the steps done.

    A step looks at a block or at a group.
    """
    components = len(size)
    # Group indices begin at this column of a block.
    numbers = 1 + components + BLOCK
    position = first_at_least(pool, order, blocks, components, start)
    # The first block is searched from the entry `inside` on, all others from their first entry.
    inside, steps = position % BLOCK, 0
    for place in range(position // BLOCK, blocks):
        block = order[place]
        steps += 1
        if _fits(size, pool, block, 1):
            for entry in range(inside, pool[block, 0]):
                steps += 1
                if _fits(size, groups, pool[block, numbers + entry], REMAINDER):
                    return BLOCK * place + entry, steps
        inside = 0
    return -1, steps


@jit
def find_emptiest(
    pool: ConstIntMatrix, order: ConstIntVector, blocks: int, groups: ConstIntMatrix, size: ConstIntVector, start: int
) -> tuple[int, int]:
    """Find the highest priority >= `start` that has a group with room for `size`.

    Return the position of the first such group of that priority, or -1; and the steps done, as in `find_fullest`.
    """
    components = len(size)
    head, steps = 1 + components, 0
    lowest = first_at_least(pool, order, blocks, components, start)
    for place in range(blocks - 1, lowest // BLOCK - 1, -1):
        block = order[place]
        steps += 1
        if _fits(size, pool, block, 1):
            # The last entry to look at: entries before `lowest` have a lower priority than `start`.
            last = lowest % BLOCK if place == lowest // BLOCK else 0
            for entry in range(pool[block, 0] - 1, last - 1, -1):
                steps += 1
                if _fits(size, groups, pool[block, head + BLOCK + entry], REMAINDER):
                    # Groups of the same priority before this one may have room too.
                    position, more = find_fullest(pool, order, blocks, groups, size, pool[block, head + entry])
                    return position, steps + more
    return -1, steps


@helper
def _summarise(pool: IntMatrix, block: int, components: int, groups: ConstIntMatrix) -> None:
    """Write the largest remainder of each component over a block's groups into the block."""
    for component in range(components):
        pool[block, 1 + component] = -1
    for entry in range(pool[block, 0]):
        group = pool[block, 1 + components + BLOCK + entry]
        for component in range(components):
            pool[block, 1 + component] = max(pool[block, 1 + component], groups[group, REMAINDER + component])


@helper
def _split(pool: IntMatrix, order: IntVector, blocks: int, components: int, place: int) -> int:
    """Move the upper half of a full block into a free block, which then follows it in `order`; return that block."""
    block, fresh = order[place], int(order[blocks])
    for other in range(blocks, place + 1, -1):
        order[other] = order[other - 1]
    order[place + 1] = fresh
    half = pool[block, 0] // 2
    moved = pool[block, 0] - half
    # Priorities and group indices begin at these columns.
    for first in (1 + components, 1 + components + BLOCK):
        for entry in range(moved):
            pool[fresh, first + entry] = pool[block, first + half + entry]
    pool[block, 0], pool[fresh, 0] = half, moved
    return fresh


@jit
def put_in(
    pool: IntMatrix, order: IntVector, blocks: int, groups: ConstIntMatrix, value: int, group: int, in_front: bool
) -> int:
    """Insert a group of priority `value` after (or before, if `in_front`) all groups of equal priority.

    Return the new number of used blocks. The caller must ensure that there is a free block.
    """
    components = groups.shape[1] - REMAINDER
    head = 1 + components
    position = first_at_least(pool, order, blocks, components, value if in_front else value + 1)
    place, inside = position // BLOCK, position % BLOCK
    if blocks == 0:
        pool[order[0], 0] = 0
        blocks = 1
    elif inside == 0 and place > 0:
        # The group belongs between two blocks: append it to the previous one, since the next one may not exist.
        place -= 1
        inside = pool[order[place], 0]
    block = order[place]
    if pool[block, 0] == BLOCK:
        fresh = _split(pool, order, blocks, components, place)
        blocks += 1
        _summarise(pool, fresh, components, groups)
        _summarise(pool, block, components, groups)
        if inside > pool[block, 0]:
            inside -= pool[block, 0]
            block = fresh
    # Make space for the priority and the group index at `inside`.
    for first in (head, head + BLOCK):
        for entry in range(pool[block, 0], inside, -1):
            pool[block, first + entry] = pool[block, first + entry - 1]
    pool[block, head + inside] = value
    pool[block, head + BLOCK + inside] = group
    pool[block, 0] += 1
    for component in range(components):
        room = groups[group, REMAINDER + component]
        if pool[block, 0] == 1 or room > pool[block, 1 + component]:
            pool[block, 1 + component] = room
    return blocks


@jit
def take_out(pool: IntMatrix, order: IntVector, blocks: int, groups: ConstIntMatrix, position: int) -> int:
    """Remove the group at a position; return the new number of used blocks."""
    components = groups.shape[1] - REMAINDER
    place, inside = position // BLOCK, position % BLOCK
    block = order[place]
    # Whether the group has the largest remainder of its block in some component.
    largest = False
    for component in range(components):
        room = groups[pool[block, 1 + components + BLOCK + inside], REMAINDER + component]
        largest = largest or room == pool[block, 1 + component]
    pool[block, 0] -= 1
    # Close the gap in the priorities and the group indices.
    for first in (1 + components, 1 + components + BLOCK):
        for entry in range(inside, pool[block, 0]):
            pool[block, first + entry] = pool[block, first + entry + 1]
    if pool[block, 0] > 0:
        if largest:
            _summarise(pool, block, components, groups)
        return blocks
    # The block is empty now: it becomes the first free one.
    for other in range(place, blocks - 1):
        order[other] = order[other + 1]
    order[blocks - 1] = block
    return blocks - 1
