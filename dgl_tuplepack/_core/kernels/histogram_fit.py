"""Best fit and first fit on a histogram: identical packs are handled as one group.

The content of a group is read from its chain of parents (see ``open_packs``), so nothing is ever copied.
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
    PARENT,
    REMAINDER,
    find_emptiest,
    find_fullest,
    put_in,
    take_out,
)
from dgl_tuplepack._core.kernels.priority import priority
from dgl_tuplepack._core.kernels.random import random_bits
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntMatrix, IntVector, Rule


class Placing(NamedTuple):
    """The rule for placing graphs: into the fullest group with room, or into the emptiest.

    Once a graph of a size is placed, the search continues from the next higher priority, or starts over
    (`by_the_text`). Groups of equal priority are in order of creation, or in random order by `key` (`random_ties`).
    """

    fullest_first: bool
    by_the_text: bool
    random_ties: bool
    key: np.uint64


@helper
def _with_room(rows: IntMatrix, used: int) -> IntMatrix:
    """Return the same rows, doubled in number if all are used."""
    if used < len(rows):
        return rows
    return np.concatenate((rows, np.empty_like(rows)))


@jit
def fit_histogram(
    sizes: ConstIntMatrix,
    counts: ConstIntVector,
    order: ConstIntVector,
    limits: ConstIntVector,
    cap: int,
    rule: Rule,
    placing: Placing,
    most_steps: int,
) -> tuple[IntMatrix, int]:
    """Return groups of packs, int64 ``[G, 4 + k]``, that hold every graph of the histogram once; and the steps done.

    Classes, with `sizes` ``[C, k]`` (each within `limits` ``[k]``) and `counts` ``[C]``, are packed in `order` ``[C]``.
    A step looks at a block or a group; if more than `most_steps` are needed, no groups are returned. No argument is
    changed.
    """
    k = sizes.shape[1]
    groups = np.empty((1024, REMAINDER + k), dtype=np.int64)
    pool = np.empty((16, 1 + k + 2 * BLOCK), dtype=np.int64)
    blocks_order = np.arange(len(pool))
    used, blocks, steps = 0, 0, 0
    for row in order:
        size, left = sizes[row], counts[row]
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
            new[ADDED] = row
            if position >= 0:
                at = pool[blocks_order[position // BLOCK]]
                old_value, parent = at[1 + k + position % BLOCK], at[1 + k + BLOCK + position % BLOCK]
                old = groups[parent]
                blocks = take_out(pool, blocks_order, blocks, groups, position)
                number = min(left, old[COUNT])
                old[COUNT] -= number
                new[PARENT] = parent
                new[GRAPHS] = old[GRAPHS] + 1
                for component in range(k):
                    new[REMAINDER + component] = old[REMAINDER + component] - size[component]
                # The paper does not fix the order of equal priorities. Its figures for molhiv are reproduced only if
                # the packs that stay as they are enter before the packs that grew.
                if old[COUNT] > 0:
                    in_front = placing.random_ties and random_bits(placing.key, np.uint64(2 * used)) & np.uint64(1) == 1
                    blocks = put_in(pool, blocks_order, blocks, groups, old_value, parent, in_front)
                # Once a size is placed, the paper's code continues from the next higher priority.
                after = start if placing.by_the_text else start + 1
            else:
                number = left
                new[PARENT] = -1
                new[GRAPHS] = 1
                for component in range(k):
                    new[REMAINDER + component] = limits[component] - size[component]
            new[COUNT] = number
            left -= number
            value = priority(rule, new[REMAINDER:])
            if value > 0 and new[GRAPHS] < cap:
                in_front = placing.random_ties and random_bits(placing.key, np.uint64(2 * used + 1)) & np.uint64(1) == 1
                blocks = put_in(pool, blocks_order, blocks, groups, value, used, in_front)
            used += 1
    return groups[:used].copy(), steps


@jit
def patterns_of(groups: IntMatrix) -> tuple[IntVector, IntVector, IntVector, IntVector]:
    """Return the content of every group that still has packs, as CSR arrays.

    These are offsets ``[Q + 1]``, size classes and multiplicities ``[offsets[-1]]``, and repeats ``[Q]``. A group gets
    all its graphs of one size in a row, so each class appears in a pattern once.
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
