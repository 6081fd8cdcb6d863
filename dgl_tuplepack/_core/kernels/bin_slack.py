"""Fill packs one by one, as full as a bounded depth-first search can, and repeat each pattern found."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.fenwick import class_of, remove_graphs
from dgl_tuplepack._core.kernels.types import FloatVector, IntMatrix, IntVector

# Indices of the state of `fill_packs`: number of entries and of patterns written, work done, place in `hardest` of the
# next class to start a pack, and number of packs filled.
ENTRIES, PATTERNS, STEPS, HARD, PACKS = range(5)

# Number of classes in a block; `Classes.lows` has one row for each block.
BLOCK = 64


class Classes(NamedTuple):
    """Size classes by descending key. The key of a class is the weighted sum of the components of its size.

    `sizes` ``[C, d]`` and `keys` ``[C]`` have a row for each class. Two arrays have component-wise minima: row c of
    `smallest` ``[C, d]`` over class c and all classes after it, row b of `lows` over the classes of block b. `hardest`
    ``[C]`` has the classes in the order in which they start packs.
    """

    sizes: IntMatrix
    keys: FloatVector
    smallest: IntMatrix
    lows: IntMatrix
    hardest: IntVector


class Left(NamedTuple):
    """Graphs that are not packed yet; all arrays change.

    ``remaining[c]`` is the number of graphs of class c. ``following[c]`` is c if class c has graphs left. Otherwise
    it is a later class; these links lead to the next class with graphs left, or to C. `tree` is the Fenwick tree of
    `remaining`, updated after each pattern; a tree of length 0 turns sampling off.
    """

    remaining: IntVector
    following: IntVector
    tree: IntVector


class Goal(NamedTuple):
    """The goal of a search, and its settings.

    The weighted room of a pack is a sum over the components: the room left below `limits` ``[d]``, times the weight in
    `weights` ``[d]``. A pack with at most `tolerance` of weighted room is full. A search has about `steps` steps, and
    `walk` more to finish a descent. The first half of the search tries at most `width` choices at each level.

    A pack is expected to hold `graphs_per_pack` graphs. The search chooses at least `kept` of them, the last ones; the
    others are a sample of the remaining graphs. `turn` >= 0 decides where samples start.
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
    """Patterns as CSR arrays, with space to append more patterns; see `patterns_of` in ``histogram_fit``."""

    offsets: IntVector
    classes: IntVector
    multiplicities: IntVector
    repeats: IntVector


class Pack(NamedTuple):
    """The pack being filled, and scratch memory.

    `room` ``[d]`` is the room left in the pack. `amount` ``[C]`` is its number of graphs of each class, all 0 between
    packs. `touched` ``[C]`` begins with the classes that the pack holds.

    `best` ``[1 + 2 C]`` is the best content that a search found: the number of entries, then (class, number of graphs)
    pairs. ``least[0]`` is the weighted room that this content leaves. The rows of `stack` ``[3, C]`` have, for each
    level of the search: the class chosen, the number of its graphs, and the number of choices tried.
    """

    room: IntVector
    amount: IntVector
    touched: IntVector
    best: IntVector
    stack: IntMatrix
    least: FloatVector


@helper
def _alive_from(following: IntVector, position: int) -> int:
    """Return the first class from `position` on that has graphs left, or C; shorten the links on the way."""
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
    """Return whether `room` is at least a row of `sizes` in every component."""
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

    The best content found is written to `pack`. A level of the search chooses a class and the number of its graphs; it
    gives up after `width` choices, so that choices at earlier levels change too. `room` is restored at the end.
    """
    sizes, keys, smallest, lows = classes.sizes, classes.keys, classes.smallest, classes.lows
    remaining, following = left.remaining, left.following
    weights, tolerance = goal.weights, goal.tolerance
    room, best, stack, least = pack.room, pack.best, pack.stack, pack.least
    number_classes, components = sizes.shape
    # A descent may use more than `steps` steps, but no more than `most`.
    most = 2 * steps + goal.walk
    # `position` is the next class to try at the level `depth`; `slack` is the weighted room left.
    depth, done, position = 0, 0, 0
    stack[2, 0] = 0
    slack = 0.0
    for component in range(components):
        slack += weights[component] * room[component]
    while True:
        # Go down: add the largest class that fits, as often as it fits; then the next one, and so on.
        while position < number_classes and done < most:
            # A class with a key above the slack cannot fit; the margin is for rounding errors.
            position = _alive_from(following, _not_above(keys, slack * (1 + 1e-12) + 1e-300, position))
            done += 1
            # Stop if no class from here on fits; skip the block if none of its classes fits.
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
        # Keep the best content so far.
        if slack < least[0]:
            least[0] = slack
            best[0] = depth
            for level in range(depth):
                best[1 + 2 * level] = stack[0, level]
                best[2 + 2 * level] = stack[1, level]
        if depth == 0 or least[0] <= tolerance or done >= steps:
            break
        # Go up past all levels that have tried `width` choices. Then remove one graph, and go on with the next class.
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
        # If the level still holds graphs of its class, this counts as another choice, and the next level starts again.
        if stack[1, depth - 1] == 0:
            depth -= 1
        else:
            stack[2, depth - 1] += 1
            if depth < number_classes:
                stack[2, depth] = 0
        position += 1
    # Restore the room.
    for level in range(depth):
        for component in range(components):
            room[component] += stack[1, level] * sizes[stack[0, level], component]
    return done


@helper
def _sample(sizes: IntMatrix, left: Left, pack: Pack, graphs: int, sample_size: int, turn: float) -> int:
    """Add every n-th remaining graph to the pack, as far as they fit; return the number of classes in the pack.

    `graphs` is the number of remaining graphs. The sample has `sample_size` graphs or somewhat more. The class that the
    pack already holds, ``touched[0]``, is skipped. The offset of the sample follows the golden ratio, so that the
    samples of successive turns are evenly spread.
    """
    remaining, room, amount, touched = left.remaining, pack.room, pack.amount, pack.touched
    stride = graphs // sample_size
    graph = int(stride * ((turn * 0.6180339887498949) % 1.0))
    held = 1
    while graph < graphs:
        # The class of the next sampled graph, and the index of this graph within the class.
        position, inside = class_of(left.tree, graph)
        if position >= len(remaining):
            break
        # How many sampled graphs are in this class. `amount` is added because the tree still counts the graph that the
        # pack already holds.
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
    """Append the content of `pack` as a pattern; return the number of graphs in all packs of this pattern.

    The pattern is repeated as often as the remaining graphs allow, but at most `most` times. The graphs of one such
    pack are already subtracted from `remaining`. `held` is the number of classes in the pack.
    """
    remaining, tree, amount, touched = left.remaining, left.tree, pack.amount, pack.touched
    # `more` is the number of repeats after the first pack.
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
        # A class without graphs left links to the next class.
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
    """Fill packs until no graphs are left, `work_limit` is reached, or `written` has no space for another pattern.

    Each pack starts with a graph of the hardest remaining class. If packs hold many graphs, a systematic sample of all
    remaining graphs then fills most of the room, so that the graphs left keep their mix of sizes. A search of about
    ``goal.steps`` steps fills the rest: its first half tries few choices at each level, its second half all ("iterative
    broadening", Ginsberg & Harvey 1992). The pattern found is repeated as often as the graphs allow; with a sample, at
    most for an eighth of the packs still expected. `state` ``[5]`` (see ENTRIES to PACKS) changes.
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
        # Start the pack with a graph of the hardest class that has graphs left.
        while remaining[classes.hardest[state[HARD]]] == 0:
            state[HARD] += 1
        first = classes.hardest[state[HARD]]
        touched[0], held = first, 1
        amount[first] = 1
        remaining[first] -= 1
        # The smallest share of a limit that is left, over the components that have a weight.
        share = 1.0
        for component in range(components):
            room[component] = limits[component] - sizes[first, component]
            if weights[component] > 0:
                share = min(share, room[component] / limits[component])
        # Expected number of graphs for the rest of the pack, less the graphs that the search chooses.
        sample_size = int(share * goal.graphs_per_pack - max(goal.kept, goal.graphs_per_pack / 16))
        sampled = len(left.tree) > 0 and 0 < sample_size <= graphs
        if sampled:
            held = _sample(sizes, left, pack, graphs, sample_size, goal.turn + state[PATTERNS])
        # The first half of the search, then the second half unless the pack is full enough.
        least[0] = np.inf
        done, steps, width = 0, goal.steps // 2, goal.width
        # Call `_search` in a loop, since a second call in the code would compile it into this kernel twice.
        for _ in range(2):
            done += _search(classes, left, goal, pack, steps, width)
            if least[0] <= goal.tolerance:
                break
            steps, width = goal.steps - done, number_classes
        state[STEPS] += 8 * held + done
        # Add the content that the search found.
        for entry in range(best[0]):
            position, number = best[1 + 2 * entry], best[2 + 2 * entry]
            if amount[position] == 0:
                touched[held] = position
                held += 1
            amount[position] += number
            remaining[position] -= number
        # The most packs that may have this pattern.
        most = int(1 + graphs / goal.graphs_per_pack / 8) if sampled else graphs
        graphs -= _emit(left, pack, held, most, written, state)
