"""Best fit over a bounded number of open packs, for graphs that arrive one by one."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, FloatVector, IntMatrix, IntVector

# Indices of `state`: the number of open packs, the number of graphs in open packs, the number of graphs packed so far,
# the index of the oldest open pack; then for each component the smallest value so far.
OPEN, HELD, TAKEN, OLDEST, SMALLEST = range(5)
# Results of `offer` if no pack got the graph.
TOO_LARGE, NO_SIZE, OVERDUE = -2, -3, -4


@helper
def _weigh(
    size: ConstIntVector, limits: ConstIntVector, state: IntVector, totals: FloatVector, weights: FloatVector
) -> None:
    """Add a graph to `totals` (sums of size / limit) and to the smallest values in `state`; set the `weights`."""
    most = 0.0
    for component in range(len(size)):
        totals[component] += size[component] / limits[component]
        most = max(most, totals[component])
        state[SMALLEST + component] = min(state[SMALLEST + component], size[component])
    for component in range(len(size)):
        weight = totals[component] / most if most > 0 else 1.0
        # To the power of 64.
        for _ in range(6):
            weight *= weight
        weights[component] = weight / limits[component]


@helper
def _fullest(size: ConstIntVector, packs: ConstIntMatrix, opened: int, weights: FloatVector) -> int:
    """Return the first open pack with room for `size` and the least weighted room, or -1 if none has room."""
    fullest, least = -1, np.inf
    for pack in range(opened):
        room, fits = 0.0, True
        for component in range(len(size)):
            room += weights[component] * packs[pack, component]
            fits = fits and size[component] <= packs[pack, component]
        if fits and room < least:
            fullest, least = pack, room
    return fullest


@helper
def _put(size: ConstIntVector, pack: int, packs: IntMatrix, state: IntVector) -> bool:
    """Put a graph into an open pack; return whether the pack is full.

    A full pack has the most graphs allowed, or no room in a component that is above 0 in every graph so far.
    """
    components = len(size)
    # Column `components` of `packs` has the number of graphs that still fit under the cap.
    full: bool = packs[pack, components] == 1
    for component in range(components):
        packs[pack, component] -= size[component]
        full = full or (packs[pack, component] == 0 and state[SMALLEST + component] > 0)
    packs[pack, components] -= 1
    state[HELD] += 1
    state[TAKEN] += 1
    return full


@helper
def _close(closed: int, limits: ConstIntVector, packs: IntMatrix, state: IntVector) -> int:
    """Close the open pack `closed`, give its index to the last open pack, and find the oldest pack; return `closed`."""
    # Columns of `packs`; see `offer`.
    graphs, opening = len(limits) - 1, len(limits)
    state[HELD] -= limits[graphs] - packs[closed, graphs]
    state[OPEN] -= 1
    packs[closed] = packs[state[OPEN]]
    state[OLDEST] = 0
    for pack in range(state[OPEN]):
        if packs[pack, opening] < packs[state[OLDEST], opening]:
            state[OLDEST] = pack
    return closed


@jit
def offer(
    size: ConstIntVector, limits: ConstIntVector, lookahead: int, patience: int, packs: IntMatrix, state: IntVector,
    totals: FloatVector, weights: FloatVector
) -> tuple[int, int]:  # fmt: skip
    """Put one graph into the fullest open pack with room for it, or into a new pack; close at most one pack.

    The pack that got the graph is closed if it is full; otherwise the fullest pack, if all open packs together hold
    `lookahead` graphs. But if `patience` graphs have been packed since the oldest pack was opened, only the oldest pack
    is closed: the graph is not packed, and must be offered again.

    `limits` ``[k + 1]`` ends with the cap on graphs. These change: `packs` ``[P, k + 2]``, with an unused row, has for
    each open pack its room, the number of graphs that still fit under the cap, and the number of graphs packed when it
    was opened; `state` ``[4 + k]``, see OPEN to SMALLEST; `totals` ``[k]``; and `weights` ``[k]``.

    Return the index of the pack that got the graph (a new pack is the last), or OVERDUE; and the index of the closed
    pack, which then stands for the last open pack, or -1. For a graph that exceeds the limits, or has a component below
    0, return TOO_LARGE or NO_SIZE twice; nothing changes then.
    """
    components = len(size)
    for component in range(components):
        if size[component] < 0:
            return NO_SIZE, NO_SIZE
    for component in range(components):
        if size[component] > limits[component]:
            return TOO_LARGE, TOO_LARGE
    if state[OPEN] > 0 and state[TAKEN] - packs[state[OLDEST], components + 1] >= patience:
        return OVERDUE, _close(state[OLDEST], limits, packs, state)
    _weigh(size, limits, state, totals, weights)
    chosen = _fullest(size, packs, state[OPEN], weights)
    if chosen < 0:
        chosen = state[OPEN]
        packs[chosen, : components + 1] = limits
        packs[chosen, components + 1] = state[TAKEN]
        state[OPEN] += 1
    if _put(size, chosen, packs, state):
        return chosen, _close(chosen, limits, packs, state)
    if state[HELD] == lookahead:
        # A size of 0 fits into every pack.
        return chosen, _close(_fullest(np.zeros_like(size), packs, state[OPEN], weights), limits, packs, state)
    return chosen, -1
