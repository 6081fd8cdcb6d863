"""Deal graphs to packs of nearly equal load, and repair packs that exceed a limit by moving and swapping graphs."""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.random import random_bits
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntCube, IntMatrix, IntVector, array_type

ConstShortMatrix = Annotated[NDArray[np.int32], array_type(np.int32, 2, const=True)]

# The first graphs of a run of equal graphs are dealt without a heap.
_SHORT_RUN = 8
# A round of `repair` tries at most this many partners for each pack that exceeds a limit.
_TRIES = 50
# Units of work (see `Effort`) of a try, besides the compared pairs; and pairs in a unit, for each component.
_WORK_PER_TRY, _PAIRS_PER_WORK = 20, 4
# A try compares at most this many graphs of each pack.
_WINDOW = 32


class Packs(NamedTuple):
    """P packs of at most M graphs each, as `repair` changes them.

    ``members[p, :counts[p]]`` has the graphs of pack p, int64 ``[P, M]``; `loads` ``[P, d]`` their total sizes.
    """

    members: IntMatrix
    counts: IntVector
    loads: IntMatrix


@helper
def _least(values: NDArray[np.int32]) -> int:
    """Return the first position of the smallest value."""
    least = values[0]
    for position in range(len(values)):
        least = min(least, values[position])
    position = 0
    while values[position] != least:
        position += 1
    return position


@helper
def _add(
    directions: ConstShortMatrix, steps: ConstShortMatrix, size: int, pack: int,
    loads: NDArray[np.int32], products: NDArray[np.int32],
) -> None:  # fmt: skip
    """Add a graph to the load of a pack, and to the product of the pack with the graph's direction."""
    for component in range(len(loads)):
        loads[component, pack] += steps[size, component]
        products[pack] += directions[size, component] * steps[size, component]


@jit
def deal(
    directions: ConstShortMatrix, steps: ConstShortMatrix, rows: ConstIntVector, packs: int, assigned: IntVector
) -> None:
    """Deal N graphs, in order, to `packs` packs: each to the first whose load points least in the graph's direction.

    Graph i has the direction ``directions[rows[i]]``, and adds ``steps[rows[i]]`` to the load; both are int32 ``[C,
    d]``. `assigned` ``[N]`` gets the packs. Time O(P d) for each run of graphs with the same row, O(log P) per graph.
    """
    components = directions.shape[1]
    loads = np.zeros((components, packs), dtype=np.int32)
    products = np.empty(packs, dtype=np.int32)
    graph = 0
    while graph < len(rows):
        size, first = rows[graph], graph
        for pack in range(packs):
            products[pack] = directions[size, 0] * loads[0, pack]
        for component in range(1, components):
            direction, row = directions[size, component], loads[component]
            for pack in range(packs):
                products[pack] += direction * row[pack]
        while graph < len(rows) and rows[graph] == size and graph < first + _SHORT_RUN:
            assigned[graph] = _least(products)
            _add(directions, steps, size, assigned[graph], loads, products)
            graph += 1
        if graph == len(rows) or rows[graph] != size:
            continue
        # The rest of a long run: the pack with the least product is always the first of a heap.
        heap = [(products[pack], pack) for pack in range(packs)]
        heapify(heap)
        while graph < len(rows) and rows[graph] == size:
            chosen = assigned[graph] = heap[0][1]
            _add(directions, steps, size, chosen, loads, products)
            heapreplace(heap, (products[chosen], chosen))
            graph += 1


@helper
def _below(bits: np.uint64, bound: int) -> int:
    """Return an integer in ``0..bound - 1`` from random bits; the bias is below ``bound * 2**-32``."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))  # type: ignore[return-value]


@helper
def _best_exchange(ours: IntMatrix, theirs: IntMatrix, above: IntMatrix) -> tuple[int, int]:
    """Return the first exchange of graphs of two packs that leaves the least excess, or -1, -1 if none reduces it.

    `ours` and `theirs` have the sizes of the graphs; `above` ``[2, d]`` has the loads minus the limits. Packs within
    the limits stay within them.
    """
    components = above.shape[1]
    least, ours_at, theirs_at = 0, -1, -1
    for component in range(components):
        least += max(above[0, component], 0) + max(above[1, component], 0)
    least = max(least, 1)
    for mine in range(len(ours)):
        for other in range(len(theirs)):
            excess = 0
            for component in range(components):
                change = ours[mine, component] - theirs[other, component]
                excess += max(above[0, component] - change, 0) + max(above[1, component] + change, 0)
            if excess < least:
                least, ours_at, theirs_at = excess, mine, other
        if least == 0:
            break
    return ours_at, theirs_at


@helper
def _candidates(
    sizes: ConstIntMatrix, packs: Packs, pack: int, moves: bool, bits: np.uint64, places: IntVector, found: IntMatrix
) -> int:
    """Write places and sizes of up to ``len(places)`` graphs in a row, from a random one on; return their number.

    With `moves`, a free place counts as a graph of size 0, the last row of `sizes`.
    """
    count = packs.counts[pack]
    most = count + 1 if moves and count < packs.members.shape[1] else count
    number: int = min(most, len(places))
    place = _below(bits, max(most, 1))
    for at in range(number):
        graph = packs.members[pack, place] if place < count else len(sizes) - 1
        places[at] = place
        for component in range(sizes.shape[1]):
            found[at, component] = sizes[graph, component]
        place = place + 1 if place + 1 < most else 0
    return number


@helper
def _exchange(sizes: ConstIntMatrix, packs: Packs, pack: int, place: int, other: int, other_place: int) -> None:
    """Exchange the graphs at two places; a graph that is exchanged with a free place moves there."""
    members, counts, loads = packs
    mine = members[pack, place] if place < counts[pack] else len(sizes) - 1
    theirs = members[other, other_place] if other_place < counts[other] else len(sizes) - 1
    for component in range(sizes.shape[1]):
        change = sizes[mine, component] - sizes[theirs, component]
        loads[pack, component] -= change
        loads[other, component] += change
    members[pack, place], members[other, other_place] = theirs, mine
    if place == counts[pack]:
        counts[pack] += 1
        counts[other] -= 1
        members[other, other_place] = members[other, counts[other]]
    elif other_place == counts[other]:
        counts[other] += 1
        counts[pack] -= 1
        members[pack, place] = members[pack, counts[pack]]


@helper
def _excess_of(packs: Packs, pack: int, limits: ConstIntVector) -> int:
    """Return by how much the load of a pack exceeds the limits, summed over the components."""
    excess = 0
    for component in range(len(limits)):
        excess += max(packs.loads[pack, component] - limits[component], 0)
    return excess


@helper
def _excess(packs: Packs, limits: ConstIntVector) -> tuple[int, int]:
    """Return the excess of all packs together, and the number of packs that exceed a limit."""
    total, exceeding = 0, 0
    for pack in range(len(packs.counts)):
        excess = _excess_of(packs, pack, limits)
        total += excess
        exceeding += excess > 0
    return total, exceeding


class _Space(NamedTuple):
    """Arrays for one try: places and sizes of the graphs of two packs; loads of the packs minus the limits."""

    places: IntMatrix
    sizes: IntCube
    above: IntMatrix


@helper
def _space(components: int) -> _Space:
    sizes, above = np.empty((2, _WINDOW, components), dtype=np.int64), np.empty((2, components), dtype=np.int64)
    return _Space(np.empty((2, _WINDOW), dtype=np.int64), sizes, above)


@helper
def _partner(packs: Packs, key: np.uint64, counter: np.uint64, drawn: int) -> int:
    """Return the emptiest of `drawn` random packs, the first of them if several are equally empty."""
    partner, least = -1, 0
    for draw in range(drawn):
        pack = _below(random_bits(key, counter + np.uint64(draw)), len(packs.counts))
        load = 0
        for component in range(packs.loads.shape[1]):
            load += packs.loads[pack, component]
        if partner < 0 or load < least:
            partner, least = pack, load
    return partner


@helper
def _try_exchange(
    sizes: ConstIntMatrix, limits: ConstIntVector, packs: Packs, moves: bool, pack: int, key: np.uint64,
    counter: np.uint64, drawn: int, space: _Space
) -> int:  # fmt: skip
    """Make the best exchange between a pack and the emptiest of some others, if any; return the units of work."""
    other = _partner(packs, key, counter, drawn)
    if other == pack:
        return _WORK_PER_TRY
    places, found, above = space
    for component in range(len(limits)):
        above[0, component] = packs.loads[pack, component] - limits[component]
        above[1, component] = packs.loads[other, component] - limits[component]
    ours = _candidates(sizes, packs, pack, moves, random_bits(key, counter + np.uint64(drawn)), places[0], found[0])
    bits = random_bits(key, counter + np.uint64(drawn + 1))
    theirs = _candidates(sizes, packs, other, moves, bits, places[1], found[1])
    mine, its = _best_exchange(found[0, :ours], found[1, :theirs], above)
    if mine >= 0:
        _exchange(sizes, packs, pack, places[0, mine], other, places[1, its])
    return ours * theirs * len(limits) // _PAIRS_PER_WORK + _WORK_PER_TRY


@jit
def repair(
    sizes: ConstIntMatrix, limits: ConstIntVector, packs: Packs, moves: bool, drawn: int, key: np.uint64, budget: int
) -> tuple[int, int]:  # fmt: skip
    """Exchange graphs between packs until no pack exceeds a limit; return the packs that still do, and the work done.

    Each pack that exceeds a limit tries other packs, each the emptiest of `drawn` random packs, and makes the exchange
    of two graphs that reduces the excess of both most, summed over the components; with `moves`, a graph may also move.
    So `sizes` ``[G + 1, d]``, whose last row is 0, and `limits` should be scaled to equal limits. The search ends as
    soon as `budget` units of work will probably not suffice. A try takes time O(W^2 d) for packs of W <= 32 graphs.
    """
    space = _space(len(limits))
    counter, work = np.uint64(0), 0
    total, exceeding = _excess(packs, limits)
    while exceeding:
        before, begun = total, work
        for pack in range(len(packs.counts)):
            for _ in range(_TRIES):
                if work > budget or _excess_of(packs, pack, limits) == 0:
                    break
                work += _try_exchange(sizes, limits, packs, moves, pack, key, counter, drawn, space)
                counter += np.uint64(drawn + 2)
        total, exceeding = _excess(packs, limits)
        # At the pace of this round, the excess would outlast the budget. Later rounds are slower.
        if float(total) * (work - begun) > float(before - total) * (budget - work):
            break
    return exceeding, work


@jit
def stir(
    sizes: ConstIntMatrix, limits: ConstIntVector, packs: Packs, chosen: ConstIntVector, key: np.uint64, rounds: int,
    budget: int
) -> int:  # fmt: skip
    """Exchange graphs between packs within the limits; return the work done. For most arguments see `repair`.

    In each round, each pack in `chosen` makes the first possible exchange with a random other pack.
    """
    space = _space(len(limits))
    counter, work = np.uint64(0), 0
    for _ in range(rounds):
        for pack in chosen:
            if work > budget:
                return work
            work += _try_exchange(sizes, limits, packs, False, pack, key, counter, 1, space)
            counter += np.uint64(3)
    return work
