"""Index over groups of open packs: ordered by priority, in blocks that store the most room of any of their groups.

A block is one row of `pool`: the number of entries, the largest remainder of each component, then space for the
priorities and the group numbers of up to BLOCK entries. `order` holds the numbers of all blocks, first the used ones
in order, then the free ones. A position is ``BLOCK * place in order + place in block``.

A search skips a block if some component shows that none of its groups has enough room; finding, inserting and removing
cost O(blocks + BLOCK) at worst instead of O(groups). The layout is a B-tree (Bayer & McCreight 1972) of two levels.
"""

from __future__ import annotations

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntMatrix, IntVector

BLOCK = 32

# Columns of groups of identical packs, int64 [G, 4 + k]: the group it was made from, the size class added to that
# group, the number of packs, the number of graphs in each pack, and then the remainder of each limit.
PARENT, ADDED, COUNT, GRAPHS, REMAINDER = range(5)


@helper
def first_at_least(pool: ConstIntMatrix, order: ConstIntVector, blocks: int, components: int, value: int) -> int:
    """Return the position of the first group with priority >= `value`; ``BLOCK * blocks`` if there is none."""
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
    ids = 1 + components + BLOCK
    position = first_at_least(pool, order, blocks, components, start)
    inside, steps = position % BLOCK, 0
    for place in range(position // BLOCK, blocks):
        block = order[place]
        steps += 1
        if _fits(size, pool, block, 1):
            for entry in range(inside, pool[block, 0]):
                steps += 1
                if _fits(size, groups, pool[block, ids + entry], REMAINDER):
                    return BLOCK * place + entry, steps
        inside = 0
    return -1, steps


@jit
def find_emptiest(
    pool: ConstIntMatrix, order: ConstIntVector, blocks: int, groups: ConstIntMatrix, size: ConstIntVector, start: int
) -> tuple[int, int]:
    """Return the first position of the highest priority >= `start` at which `size` fits, or -1; and the steps done."""
    components = len(size)
    head, steps = 1 + components, 0
    lowest = first_at_least(pool, order, blocks, components, start)
    for place in range(blocks - 1, lowest // BLOCK - 1, -1):
        block = order[place]
        steps += 1
        if _fits(size, pool, block, 1):
            last = lowest % BLOCK if place == lowest // BLOCK else 0
            for entry in range(pool[block, 0] - 1, last - 1, -1):
                steps += 1
                if _fits(size, groups, pool[block, head + BLOCK + entry], REMAINDER):
                    position, more = find_fullest(pool, order, blocks, groups, size, pool[block, head + entry])
                    return position, steps + more
    return -1, steps


@helper
def _summarise(pool: IntMatrix, block: int, components: int, groups: ConstIntMatrix) -> None:
    """Write the largest remainders of a block's groups into the block."""
    for component in range(components):
        pool[block, 1 + component] = -1
    for entry in range(pool[block, 0]):
        group = pool[block, 1 + components + BLOCK + entry]
        for component in range(components):
            pool[block, 1 + component] = max(pool[block, 1 + component], groups[group, REMAINDER + component])


@helper
def _split(pool: IntMatrix, order: IntVector, blocks: int, components: int, place: int) -> int:
    """Move the upper half of a full block into a free block right after it; return that block."""
    block, fresh = order[place], int(order[blocks])
    for other in range(blocks, place + 1, -1):
        order[other] = order[other - 1]
    order[place + 1] = fresh
    half = pool[block, 0] // 2
    moved = pool[block, 0] - half
    for first in (1 + components, 1 + components + BLOCK):
        for entry in range(moved):
            pool[fresh, first + entry] = pool[block, first + half + entry]
    pool[block, 0], pool[fresh, 0] = half, moved
    return fresh


@jit
def put_in(
    pool: IntMatrix, order: IntVector, blocks: int, groups: ConstIntMatrix, value: int, group: int, in_front: bool
) -> int:
    """Insert a group after (or before, if `in_front`) groups of equal priority; return the number of blocks.

    The caller must ensure that there is a free block.
    """
    components = groups.shape[1] - REMAINDER
    head = 1 + components
    position = first_at_least(pool, order, blocks, components, value if in_front else value + 1)
    place, inside = position // BLOCK, position % BLOCK
    if blocks == 0:
        pool[order[0], 0] = 0
        blocks = 1
    elif inside == 0 and place > 0:
        # The end of the previous block is the same position, and that block exists.
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
    """Remove the group at a position; return the number of blocks."""
    components = groups.shape[1] - REMAINDER
    place, inside = position // BLOCK, position % BLOCK
    block = order[place]
    largest = False
    for component in range(components):
        room = groups[pool[block, 1 + components + BLOCK + inside], REMAINDER + component]
        largest = largest or room == pool[block, 1 + component]
    pool[block, 0] -= 1
    for first in (1 + components, 1 + components + BLOCK):
        for entry in range(inside, pool[block, 0]):
            pool[block, first + entry] = pool[block, first + entry + 1]
    if pool[block, 0] > 0:
        if largest:
            _summarise(pool, block, components, groups)
        return blocks
    for other in range(place, blocks - 1):
        order[other] = order[other + 1]
    order[blocks - 1] = block
    return blocks - 1
