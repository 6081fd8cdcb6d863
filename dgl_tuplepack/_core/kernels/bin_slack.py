"""Fill packs one by one, as full as a bounded depth-first search can, and repeat each pattern found."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.fenwick import class_of, remove_graphs
from dgl_tuplepack._core.kernels.types import FloatVector, IntMatrix, IntVector

# Indices of the state of `fill_packs`: entries and patterns written, work done, next hard class, packs filled.
ENTRIES, PATTERNS, STEPS, HARD, PACKS = range(5)

# Classes of a block.
BLOCK = 64


class Classes(NamedTuple):
    """Size classes by descending key, the weighted sum of their components.

    `sizes` ``[C, d]`` and `keys` ``[C]``. Component-wise minima: `smallest` ``[C, d]`` of each class and all after it,
    and `lows` of each BLOCK of classes. `hardest` ``[C]``: classes in the order in which they start packs.
    """

    sizes: IntMatrix
    keys: FloatVector
    smallest: IntMatrix
    lows: IntMatrix
    hardest: IntVector


class Left(NamedTuple):
    """Graphs that are not packed yet; all arrays change.

    `remaining` ``[C]`` graphs of each class; `following` ``[C + 1]``, links to the next class with graphs left; and
    `tree`, the Fenwick tree of `remaining`. A tree of length 0 turns sampling off.
    """

    remaining: IntVector
    following: IntVector
    tree: IntVector


class Goal(NamedTuple):
    """The goal of a search, and its settings.

    Room below `limits` ``[d]`` is weighted by `weights` ``[d]``; a pack with at most `tolerance` of weighted room is
    full. A search has about `steps` steps; `walk` lets it visit more classes to finish a descent. Its first half
    tries at most `width` choices at each level. Of the `graphs_per_pack` expected in a pack, the search chooses the
    last `kept`; the others are a sample. `turn` >= 0 sets the start of samples.
    """

    limits: IntVector
    weights: FloatVector
    tolerance: float
    steps: int
    walk: int
    width: int
    graphs_per_pack: float
    kept: float
    turn: float


class Written(NamedTuple):
    """Patterns as CSR arrays, with space to append more; see `patterns_of` in ``histogram_fit``."""

    offsets: IntVector
    classes: IntVector
    multiplicities: IntVector
    repeats: IntVector


class Pack(NamedTuple):
    """The pack being filled, and scratch memory.

    Its `room` ``[d]``; its graphs of each class, `amount` ``[C]`` (0 at first); and its classes, `touched` ``[C]``.
    `best` ``[1 + 2 C]`` is the result of the search: the number of entries, then (class, number) pairs, which leave
    ``least[0]`` of weighted room. `stack` ``[3, C]``: class, number and tries at each level of the search.
    """

    room: IntVector
    amount: IntVector
    touched: IntVector
    best: IntVector
    stack: IntMatrix
    least: FloatVector


@helper
def _alive_from(following: IntVector, position: int) -> int:
    """Return the first class from `position` on with graphs left, or C; shorten the links on the way."""
    while following[position] != position:
        following[position] = following[following[position]]
        position = following[position]
    return position


@helper
def _most(sizes: IntMatrix, position: int, room: IntVector, most: int) -> int:
    """Return how many graphs of one class fit into `room`, at most `most`."""
    for component in range(len(room)):
        size = sizes[position, component]
        if size > room[component]:
            return 0
        if size > 0:
            most = min(most, room[component] // size)
    return most


@helper
def _all_fit(sizes: IntMatrix, row: int, room: IntVector) -> bool:
    for component in range(len(room)):  # noqa: SIM110 (no generators in kernels)
        if sizes[row, component] > room[component]:
            return False
    return True


@helper
def _not_above(keys: FloatVector, value: float, start: int) -> int:
    """Return the first position >= `start` whose key is <= `value`; keys descend."""
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


@helper
def _search(classes: Classes, left: Left, goal: Goal, pack: Pack, steps: int, width: int) -> int:
    """Search depth-first for content that leaves less weighted room than ``least[0]``; return the number of steps.

    A level gives up after `width` tries, so that earlier choices change too. `room` is restored at the end.
    """
    sizes, keys, smallest, lows = classes.sizes, classes.keys, classes.smallest, classes.lows
    remaining, following = left.remaining, left.following
    weights, tolerance = goal.weights, goal.tolerance
    room, best, stack, least = pack.room, pack.best, pack.stack, pack.least
    number_classes, components = sizes.shape
    most = 2 * steps + goal.walk
    depth, done, position = 0, 0, 0
    stack[2, 0] = 0
    slack = 0.0
    for component in range(components):
        slack += weights[component] * room[component]
    while True:
        # Go down: add the largest class that fits, as often as it fits. Skip blocks in which no class fits.
        while position < number_classes and done < most:
            position = _alive_from(following, _not_above(keys, slack * (1 + 1e-12) + 1e-300, position))
            done += 1
            if position >= number_classes or not _all_fit(smallest, position, room):
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
                if depth < number_classes:
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
        if depth == 0 or least[0] <= tolerance or done >= steps:
            break
        # Go up past levels that used all their tries; remove one graph, then continue with the classes after it.
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
            if depth < number_classes:
                stack[2, depth] = 0
        position += 1
    for level in range(depth):
        for component in range(components):
            room[component] += stack[1, level] * sizes[stack[0, level], component]
    return done


@helper
def _sample(sizes: IntMatrix, left: Left, pack: Pack, graphs: int, sample_size: int, turn: float) -> int:
    """Add every n-th of the remaining `graphs`, up to `sample_size`, as far as they fit; return the classes held.

    `touched` starts with the class that the pack already holds, which is skipped. The offset follows the golden ratio,
    so that the samples of successive turns are evenly spread.
    """
    remaining, room, amount, touched = left.remaining, pack.room, pack.amount, pack.touched
    stride = graphs // sample_size
    graph = int(stride * ((turn * 0.6180339887498949) % 1.0))
    held = 1
    while graph < graphs:
        position, inside = class_of(left.tree, graph)
        if position >= len(remaining):
            break
        number = (remaining[position] + amount[position] - 1 - inside) // stride + 1
        graph += number * stride
        if position != touched[0]:
            number = _most(sizes, position, room, number)
            if number > 0:
                touched[held] = position
                held += 1
                amount[position] = number
                remaining[position] -= number
                for component in range(len(room)):
                    room[component] -= number * sizes[position, component]
    return held


@helper
def _emit(left: Left, pack: Pack, held: int, most: int, written: Written, state: IntVector) -> int:
    """Append the pattern, repeated as often as graphs allow but at most `most` times; return its number of graphs.

    One pack of it is already subtracted from `remaining`.
    """
    remaining, tree, amount, touched = left.remaining, left.tree, pack.amount, pack.touched
    more = most - 1
    for entry in range(held):
        more = min(more, remaining[touched[entry]] // amount[touched[entry]])
    graphs = 0
    at = state[ENTRIES]
    for entry in range(held):
        position = touched[entry]
        number = amount[position]
        remaining[position] -= more * number
        graphs += (more + 1) * number
        if remaining[position] == 0:
            left.following[position] = position + 1
        if len(tree) > 0:
            remove_graphs(tree, position, (more + 1) * number)
        written.classes[at + entry] = position
        written.multiplicities[at + entry] = number
        amount[position] = 0
    state[ENTRIES] += held
    written.repeats[state[PATTERNS]] = more + 1
    state[PATTERNS] += 1
    written.offsets[state[PATTERNS]] = state[ENTRIES]
    state[PACKS] += more + 1
    return graphs


@jit
def fill_packs(
    classes: Classes, left: Left, goal: Goal, pack: Pack, written: Written, work_limit: int, state: IntVector
) -> None:
    """Fill packs until no graphs, no work or no space for patterns is left.

    Each pack starts with the hardest remaining class. If packs hold many graphs, a systematic sample of all remaining
    graphs then fills most of the room, so that their mix stays the same. A search of at most `steps` steps fills the
    rest: its first half tries few choices at each level, the second half all ("iterative broadening", Ginsberg & Harvey
    1992). The pattern is repeated as often as the graphs allow, but a pattern with a sample at most for an eighth of
    the packs still expected. `state` ``[5]`` (see ENTRIES to PACKS) changes.
    """
    sizes, limits, weights, remaining = classes.sizes, goal.limits, goal.weights, left.remaining
    number_classes, components = sizes.shape
    room, amount, touched, best, least = pack.room, pack.amount, pack.touched, pack.best, pack.least
    graphs = 0
    for number in remaining:
        graphs += number
    while graphs > 0 and state[STEPS] < work_limit:
        if state[ENTRIES] + number_classes > len(written.classes) or state[PATTERNS] + 1 >= len(written.offsets):
            break
        while remaining[classes.hardest[state[HARD]]] == 0:
            state[HARD] += 1
        first = classes.hardest[state[HARD]]
        touched[0], held = first, 1
        amount[first] = 1
        remaining[first] -= 1
        share = 1.0
        for component in range(components):
            room[component] = limits[component] - sizes[first, component]
            if weights[component] > 0:
                share = min(share, room[component] / limits[component])
        sample_size = int(share * goal.graphs_per_pack - max(goal.kept, goal.graphs_per_pack / 16))
        sampled = len(left.tree) > 0 and 0 < sample_size <= graphs
        if sampled:
            held = _sample(sizes, left, pack, graphs, sample_size, goal.turn + state[PATTERNS])
        least[0] = np.inf
        done, steps, width = 0, goal.steps // 2, goal.width
        # A second call of `_search` would compile it into this kernel twice.
        for _ in range(2):
            done += _search(classes, left, goal, pack, steps, width)
            if least[0] <= goal.tolerance:
                break
            steps, width = goal.steps - done, number_classes
        state[STEPS] += 8 * held + done
        for entry in range(best[0]):
            position, number = best[1 + 2 * entry], best[2 + 2 * entry]
            if amount[position] == 0:
                touched[held] = position
                held += 1
            amount[position] += number
            remaining[position] -= number
        most = int(1 + graphs / goal.graphs_per_pack / 8) if sampled else graphs
        graphs -= _emit(left, pack, held, most, written, state)
