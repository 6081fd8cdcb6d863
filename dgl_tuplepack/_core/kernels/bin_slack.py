"""Fill packs one by one, as full as a bounded depth-first search can make them, and repeat each pattern found."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.types import ConstIntVector, FloatVector, IntMatrix, IntVector

# Indices of `state`: the numbers of entries written, patterns written and steps done; the index in `hardest` of the
# class that starts the next pack; and the number of packs filled.
ENTRIES, PATTERNS, STEPS, HARD, PACKS = range(5)

# Number of consecutive classes in a block.
BLOCK = 64


class Classes(NamedTuple):
    """C size classes by descending key, the weighted sum of the d components of the size.

    Row c of `smallest` ``[C, d]`` has the minimum of each component over class c and all later classes, row b of `lows`
    the minimum over block b. `hardest` ``[C]`` has the classes in the order in which they start packs.
    """

    sizes: IntMatrix
    keys: FloatVector
    smallest: IntMatrix
    lows: IntMatrix
    hardest: IntVector


class Left(NamedTuple):
    """The graphs that are not packed yet, ``remaining[c]`` of class c; the kernel changes all three arrays.

    ``following[c]`` is c if class c has graphs left, otherwise a link towards the next such class, or to C. `tree` is
    the Fenwick tree of `remaining`; length 0 turns sampling off.
    """

    remaining: IntVector
    following: IntVector
    tree: IntVector


class Goal(NamedTuple):
    """The goal of the searches for packs, and their settings.

    The weighted room of a pack is the sum of room below `limits` ``[d]`` times `weights` ``[d]``; with at most
    `tolerance`, a pack counts as full. Each level of a search chooses a class and a number of its graphs. After about
    `steps` steps, a search begins no further descent; `walk` more steps are only for the last descent. During the first
    half of the steps, a level tries at most `width` choices. A pack is expected to hold `graphs_per_pack` graphs. A
    sample of the remaining graphs, with the offset `turn` >= 0, leaves room for about `kept` graphs for the search.
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
    """Patterns as CSR arrays (see `planning.plan.Patterns`), with space to append more patterns."""

    offsets: IntVector
    classes: IntVector
    multiplicities: IntVector
    repeats: IntVector


class Pack(NamedTuple):
    """The pack being filled, and scratch memory.

    `amount` ``[C]`` is the number of graphs of each class in the pack, all 0 between two packs; `touched` ``[C]``
    begins with the classes that it holds. `best` ``[1 + 2 C]`` has the best graphs to add: the number of entries, then
    a pair (class, number of graphs) for each; ``least[0]`` is the weighted room that they leave. Column l of `stack`
    ``[3, C]`` is for level l of the search: the class chosen, the number of its graphs, and the number of choices
    tried.
    """

    room: IntVector
    amount: IntVector
    touched: IntVector
    best: IntVector
    stack: IntMatrix
    least: FloatVector


def tree_of(counts: ConstIntVector) -> IntVector:
    """Return the Fenwick tree of `counts` ``[C]``, the number of graphs of each class, as int64 ``[C + 1]``.

    It finds the class of a graph, and removes graphs, in O(log C). Source: Fenwick 1994, "A new data structure for
    cumulative frequency tables".
    """
    sums = np.concatenate([[0], np.cumsum(counts)])
    nodes = np.arange(len(sums))
    # Tree node n is the sum of counts[m:n], where m is n without its lowest set bit.
    return sums - sums[nodes & (nodes - 1)]  # type: ignore[no-any-return]


@helper
def _remove_graphs(tree: IntVector, position: int, number: int) -> None:
    """Remove `number` graphs from the class at `position`."""
    position += 1
    while position < len(tree):
        tree[position] -= number
        position += position & -position


@helper
def _class_of(tree: ConstIntVector, graph: int) -> tuple[int, int]:
    """Return the class of the graph with the index `graph`, counted through the classes, and its index in the class.

    If there is no such graph, the class is C.
    """
    position, bit = 0, 1
    while 2 * bit < len(tree):
        bit *= 2
    while bit > 0:
        if position + bit < len(tree) and tree[position + bit] <= graph:
            position += bit
            graph -= tree[position]
        bit >>= 1
    return position, graph


@helper
def _alive_from(following: IntVector, position: int) -> int:
    """Return the first class >= `position` with graphs left, or C if there is none; shorten the links on the way."""
    while following[position] != position:
        following[position] = following[following[position]]
        position = following[position]
    return position


@helper
def _most(sizes: IntMatrix, position: int, room: IntVector, most: int) -> int:
    """Return how many graphs of the class `position` fit into `room`, at most `most`."""
    for component in range(len(room)):
        size = sizes[position, component]
        if size > room[component]:
            return 0
        if size > 0:
            most = min(most, room[component] // size)
    return most


@helper
def _all_fit(sizes: IntMatrix, row: int, room: IntVector) -> bool:
    """Return whether ``sizes[row]`` fits into `room` in every component."""
    for component in range(len(room)):  # noqa: SIM110 (no generators in kernels)
        if sizes[row, component] > room[component]:
            return False
    return True


@helper
def _not_above(keys: FloatVector, value: float, start: int) -> int:
    """Return the first class >= `start` with a key <= `value`, or C if there is none; `keys` descend."""
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
def _give_back(sizes: IntMatrix, position: int, number: int, room: IntVector) -> None:
    """Add to `room` what `number` graphs of the class `position` occupied."""
    for component in range(len(room)):
        room[component] += number * sizes[position, component]


@helper
def _search(classes: Classes, left: Left, goal: Goal, pack: Pack, steps: int, width: int) -> int:
    """Search depth-first for graphs that leave less weighted room than ``least[0]``; return the number of steps.

    The best graphs are in ``pack.best`` afterwards. A level gives up after `width` choices. ``pack.room`` is restored.
    """
    sizes, keys, smallest, lows = classes.sizes, classes.keys, classes.smallest, classes.lows
    remaining, following = left.remaining, left.following
    weights, tolerance = goal.weights, goal.tolerance
    room, best, least = pack.room, pack.best, pack.least
    chosen, numbers, tried = pack.stack[0], pack.stack[1], pack.stack[2]
    number_classes, components = sizes.shape
    most = 2 * steps + goal.walk
    # `position`: the next class to try at the level `depth`. `slack`: the weighted room left.
    depth, done, position = 0, 0, 0
    tried[0] = 0
    slack = 0.0
    for component in range(components):
        slack += weights[component] * room[component]
    while True:
        # Go down: add as many graphs of each class as fit.
        while position < number_classes and done < most:
            # A class with a key above `slack` cannot fit; the margin is for rounding errors.
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
                chosen[depth], numbers[depth] = position, number
                tried[depth] += 1
                depth += 1
                if depth < number_classes:
                    tried[depth] = 0
                slack = 0.0
                for component in range(components):
                    room[component] -= number * sizes[position, component]
                    slack += weights[component] * room[component]
            position += 1
        if slack < least[0]:
            least[0] = slack
            best[0] = depth
            for level in range(depth):
                best[1 + 2 * level], best[2 + 2 * level] = chosen[level], numbers[level]
        if depth == 0 or least[0] <= tolerance or done >= steps:
            break
        # Go up: drop levels that have tried `width` choices, then remove one graph from the deepest remaining level.
        while depth > 0 and tried[depth - 1] >= width:
            depth -= 1
            _give_back(sizes, chosen[depth], numbers[depth], room)
        if depth == 0:
            break
        deepest = depth - 1
        position = chosen[deepest]
        numbers[deepest] -= 1
        slack = 0.0
        for component in range(components):
            room[component] += sizes[position, component]
            slack += weights[component] * room[component]
        # If the level still has graphs, their smaller number is another choice of this level.
        if numbers[deepest] == 0:
            depth = deepest
        else:
            tried[deepest] += 1
            if depth < number_classes:
                tried[depth] = 0
        position += 1
    for level in range(depth):
        _give_back(sizes, chosen[level], numbers[level], room)
    return done


@helper
def _sample(sizes: IntMatrix, left: Left, pack: Pack, graphs: int, sample_size: int, turn: float) -> int:
    """Add every n-th of `graphs` remaining graphs to the pack if it fits; return the number of classes in the pack.

    With n = ``graphs // sample_size``, at least `sample_size` graphs are sampled, but none of the class ``touched[0]``.
    Successive values of `turn` spread the first one evenly (by the golden ratio).
    """
    remaining, room, amount, touched = left.remaining, pack.room, pack.amount, pack.touched
    stride = graphs // sample_size
    graph = int(stride * ((turn * 0.6180339887498949) % 1.0))
    held = 1
    while graph < graphs:
        position, inside = _class_of(left.tree, graph)
        if position >= len(remaining):
            break
        # `amount` is added because the tree still counts the graph that the pack already holds.
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
    """Append the `held` classes of `pack` to `written` as a pattern of at most `most` packs; return their graphs.

    As many packs get the pattern as graphs allow. The graphs of the first are already subtracted from `remaining`.
    """
    remaining, tree, amount, touched = left.remaining, left.tree, pack.amount, pack.touched
    # The packs after the first one.
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
            _remove_graphs(tree, position, (more + 1) * number)
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
    """Fill packs until no graphs are left, `work_limit` steps are done, or `written` has no space for another pattern.

    If packs hold many graphs, a systematic sample of all remaining graphs fills most of the room, so that the mix of
    sizes hardly changes. A search chooses the last graphs; the second half of its steps tries many more choices at each
    level ("iterative broadening", Ginsberg & Harvey 1992). As many packs get the pattern as graphs allow; after a
    sample, at most about an eighth of the packs still expected. `state` ``[5]`` is updated.
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
        # `share`: the smallest fraction of a limit that is still free.
        share = 1.0
        for component in range(components):
            room[component] = limits[component] - sizes[first, component]
            if weights[component] > 0:
                share = min(share, room[component] / limits[component])
        # The number of graphs expected to fit into this room, minus the graphs that the search will choose.
        sample_size = int(share * goal.graphs_per_pack - max(goal.kept, goal.graphs_per_pack / 16))
        sampled = len(left.tree) > 0 and 0 < sample_size <= graphs
        if sampled:
            held = _sample(sizes, left, pack, graphs, sample_size, goal.turn + state[PATTERNS])
        least[0] = np.inf
        done, steps, width = 0, goal.steps // 2, goal.width
        # In a loop, since a second call in the code would compile `_search` into this kernel twice.
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
