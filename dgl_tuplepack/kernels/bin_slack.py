"""Fill one pack after another as full as a bounded depth-first search finds, and repeat the pattern found."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack.kernels._jit import jit
from dgl_tuplepack.kernels.fenwick import holder, reduce
from dgl_tuplepack.kernels.types import (
    ConstFloatVector,
    ConstIntMatrix,
    ConstIntVector,
    FloatVector,
    IntMatrix,
    IntVector,
)

# Where `fill_packs` stands: entries and patterns written, work done, next hard class, graphs and packs packed.
ENTRIES, PATTERNS, WORK, HARD, PACKS = range(5)

# Classes of a block, and the classes a search may look at beyond its steps to come to an end.
BLOCK = 64
LONGEST_WALK = 400


@jit
def _alive_from(following: IntVector, position: int) -> int:
    """First class at or behind `position` with graphs left, or C; halves the paths it walks."""
    while following[position] != position:
        following[position] = following[following[position]]
        position = following[position]
    return position


@jit
def _most(sizes: ConstIntMatrix, position: int, room: ConstIntVector, most: int) -> int:
    """Graphs of one class that fit into `room`, at most `most`."""
    for component in range(len(room)):
        size = sizes[position, component]
        if size > room[component]:
            return 0
        if size > 0:
            most = min(most, room[component] // size)
    return most


@jit
def _all_fit(sizes: ConstIntMatrix, row: int, room: ConstIntVector) -> bool:
    for component in range(len(room)):  # noqa: SIM110 (no generators in kernels)
        if sizes[row, component] > room[component]:
            return False
    return True


@jit
def _not_above(keys: ConstFloatVector, value: float, start: int) -> int:
    """First position >= `start` whose key (falling) is <= `value`."""
    low, high = start, len(keys)
    if low < high and keys[low] <= value:
        return low
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] > value:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def _search(
    sizes: ConstIntMatrix,
    keys: ConstFloatVector,
    smallest: ConstIntMatrix,
    lows: ConstIntMatrix,
    remaining: ConstIntVector,
    following: IntVector,
    room: IntVector,
    weights: ConstFloatVector,
    tolerance: float,
    steps: int,
    width: int,
    best: IntVector,
    stack: IntMatrix,
    least: FloatVector,
) -> int:
    """Depth-first search for content that leaves less weighted room than ``least[0]``; returns the steps taken.

    `best` ``[1 + 2 C]`` gets the number of entries, then (class, number) pairs; `stack` ``[3, C]`` is scratch:
    class, number and tries of each level. A level gives up after `width` tries, so that earlier choices change
    too. `room` comes back as it was.
    """
    classes, components = sizes.shape
    most = 2 * steps + LONGEST_WALK
    depth, taken, position = 0, 0, 0
    stack[2, 0] = 0
    slack = 0.0
    for component in range(components):
        slack += weights[component] * room[component]
    while True:
        # Downwards: the largest class that fits, as often as it fits. Classes of a block that has none are passed over.
        while position < classes and taken < most:
            position = _not_above(keys, slack * (1 + 1e-12) + 1e-300, position)
            if position < classes:
                position = _alive_from(following, position)
            taken += 1
            if position >= classes or not _all_fit(smallest, position, room):
                break
            block = position // BLOCK
            if not _all_fit(lows, block, room):
                position = (block + 1) * BLOCK
                continue
            number = _most(sizes, position, room, remaining[position])
            if number > 0:
                stack[0, depth] = position
                stack[1, depth] = number
                stack[2, depth] += 1
                depth += 1
                if depth < classes:
                    stack[2, depth] = 0
                slack = 0.0
                for component in range(components):
                    room[component] -= number * sizes[position, component]
                    slack += weights[component] * room[component]
            position += 1
        if slack < least[0]:
            least[0] = slack
            best[0] = depth
            for level in range(depth):
                best[1 + 2 * level] = stack[0, level]
                best[2 + 2 * level] = stack[1, level]
        if depth == 0 or least[0] <= tolerance or taken >= steps:
            break
        # Upwards, past levels that had their share of tries: one graph less, then on with the classes behind.
        while depth > 0 and stack[2, depth - 1] >= width:
            depth -= 1
            for component in range(components):
                room[component] += stack[1, depth] * sizes[stack[0, depth], component]
        if depth == 0:
            break
        position = stack[0, depth - 1]
        stack[1, depth - 1] -= 1
        slack = 0.0
        for component in range(components):
            room[component] += sizes[position, component]
            slack += weights[component] * room[component]
        if stack[1, depth - 1] == 0:
            depth -= 1
        else:
            stack[2, depth - 1] += 1
            if depth < classes:
                stack[2, depth] = 0
        position += 1
    for level in range(depth):
        for component in range(components):
            room[component] += stack[1, level] * sizes[stack[0, level], component]
    return taken


@jit
def _sample(
    sizes: ConstIntMatrix,
    remaining: IntVector,
    tree: ConstIntVector,
    room: IntVector,
    amount: IntVector,
    touched: IntVector,
    graphs: int,
    wanted: int,
    turn: float,
) -> int:
    """Take every n-th of the `graphs` left, `wanted` of them, as far as they fit; return the classes taken.

    `touched` starts with the class that the pack holds already, which is passed over; `amount` ``[C]``,
    `remaining` and `room` change by what was taken. The offset follows the golden ratio, so that the samples of
    successive turns are evenly spread.
    """
    stride = graphs // wanted
    graph = int(stride * ((turn * 0.6180339887498949) % 1.0))
    taken = 1
    while graph < graphs:
        position, inside = holder(tree, graph)
        if position >= len(remaining):
            break
        number = (remaining[position] + amount[position] - 1 - inside) // stride + 1
        graph += number * stride
        if position != touched[0]:
            number = _most(sizes, position, room, number)
            if number > 0:
                touched[taken] = position
                taken += 1
                amount[position] = number
                remaining[position] -= number
                for component in range(len(room)):
                    room[component] -= number * sizes[position, component]
    return taken


@jit
def _emit(
    remaining: IntVector,
    following: IntVector,
    tree: IntVector,
    amount: IntVector,
    touched: IntVector,
    taken: int,
    most: int,
    offsets: IntVector,
    classes: IntVector,
    multiplicities: IntVector,
    repeats: IntVector,
    state: IntVector,
) -> int:
    """Append one pattern, repeated as often as graphs allow but at most `most` times; return its graphs.

    One pack of it is taken off `remaining` already.
    """
    more = most - 1
    for entry in range(taken):
        more = min(more, remaining[touched[entry]] // amount[touched[entry]])
    graphs = 0
    at = state[ENTRIES]
    for entry in range(taken):
        position = touched[entry]
        number = amount[position]
        remaining[position] -= more * number
        graphs += (more + 1) * number
        if remaining[position] == 0:
            following[position] = position + 1
        if len(tree) > 0:
            reduce(tree, position, (more + 1) * number)
        classes[at + entry] = position
        multiplicities[at + entry] = number
        amount[position] = 0
    state[ENTRIES] += taken
    repeats[state[PATTERNS]] = more + 1
    state[PATTERNS] += 1
    offsets[state[PATTERNS]] = state[ENTRIES]
    state[PACKS] += more + 1
    return graphs


@jit
def fill_packs(
    sizes: ConstIntMatrix,
    keys: ConstFloatVector,
    smallest: ConstIntMatrix,
    lows: ConstIntMatrix,
    hardest: ConstIntVector,
    remaining: IntVector,
    following: IntVector,
    tree: IntVector,
    limits: ConstIntVector,
    weights: ConstFloatVector,
    tolerance: float,
    steps: int,
    width: int,
    graphs_per_pack: float,
    kept: float,
    turn: float,
    work_limit: int,
    offsets: IntVector,
    classes: IntVector,
    multiplicities: IntVector,
    repeats: IntVector,
    state: IntVector,
) -> None:
    """Fill packs until no graph, no work or no space for patterns is left.

    Each pack starts with the hardest class left. Where packs hold many graphs, most of the room is then filled
    by a systematic sample of all graphs left, so that the mix stays; a search of at most `steps` steps fills
    the rest: first one that tries few choices at each level, then a full one ("iterative broadening", Ginsberg &
    Harvey 1992). The pattern is repeated as often as the graphs allow, a sampled one for an eighth of the packs
    still expected at most.

    Parameters
    ----------
    sizes, keys, smallest, lows
        Classes by falling key (weighted sum of components): int64 ``[C, d]``, float64 ``[C]``; component-wise
        minima of each class and those behind it, int64 ``[C, d]``, and of each BLOCK of classes.
    hardest
        Classes in the order in which they start packs, int64 ``[C]``.
    remaining, following
        Graphs left of each class ``[C]``, and ``[C + 1]`` the next class with graphs left. Both change.
    tree
        Fenwick tree of `remaining`, or length 0: then nothing is sampled. Changes.
    weights, tolerance
        Room counts by these weights ``[d]``; a pack with no more than `tolerance` is full.
    graphs_per_pack
        Graphs that a pack is expected to hold.
    kept
        Graphs of a pack that are not sampled, but left to the search.
    turn
        Where samples start: number of the turn, any number >= 0.
    offsets, classes, multiplicities, repeats
        Patterns are appended to these.
    state
        ``[5]``: see ENTRIES to PACKS. Changes.
    """
    number_classes, components = sizes.shape
    amount = np.zeros(number_classes, dtype=np.int64)
    touched = np.empty(number_classes, dtype=np.int64)
    best = np.empty(1 + 2 * number_classes, dtype=np.int64)
    stack = np.empty((3, number_classes), dtype=np.int64)
    room = np.empty(components, dtype=np.int64)
    least = np.empty(1)
    graphs = remaining.sum()
    while graphs > 0 and state[WORK] < work_limit:
        if state[ENTRIES] + number_classes > len(classes) or state[PATTERNS] + 1 >= len(offsets):
            break
        while remaining[hardest[state[HARD]]] == 0:
            state[HARD] += 1
        first = hardest[state[HARD]]
        touched[0], taken = first, 1
        amount[first] = 1
        remaining[first] -= 1
        share = 1.0
        for component in range(components):
            room[component] = limits[component] - sizes[first, component]
            if weights[component] > 0:
                share = min(share, room[component] / limits[component])
        wanted = int(share * graphs_per_pack - max(kept, graphs_per_pack / 16))
        sampled = len(tree) > 0 and 0 < wanted <= graphs
        if sampled:
            taken = _sample(sizes, remaining, tree, room, amount, touched, graphs, wanted, turn + state[PATTERNS])
        best[0], least[0] = 0, np.inf
        done = _search(
            sizes,
            keys,
            smallest,
            lows,
            remaining,
            following,
            room,
            weights,
            tolerance,
            steps // 2,
            width,
            best,
            stack,
            least,
        )
        if least[0] > tolerance:
            done += _search(
                sizes, keys, smallest, lows, remaining, following, room, weights, tolerance, steps - done,
                number_classes, best, stack, least,
            )  # fmt: skip
        state[WORK] += 8 * taken + done
        for entry in range(best[0]):
            position, number = best[1 + 2 * entry], best[2 + 2 * entry]
            if amount[position] == 0:
                touched[taken] = position
                taken += 1
            amount[position] += number
            remaining[position] -= number
        most = int(1 + graphs / graphs_per_pack / 8) if sampled else graphs
        graphs -= _emit(
            remaining, following, tree, amount, touched, taken, most, offsets, classes, multiplicities, repeats, state
        )
