"""Best fit over a bounded number of open packs, for graphs that come one by one."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import (
    ConstFloatVector,
    ConstIntMatrix,
    ConstIntVector,
    FloatVector,
    IntMatrix,
    IntVector,
)

# Where `offer` stands: open packs and graphs in them, graphs taken so far, which open pack is the oldest, then the
# smallest size so far of each component.
OPEN, HELD, TAKEN, OLDEST, SMALLEST = range(5)
# What `offer` answers instead of a pack that took the graph.
TOO_LARGE, NO_SIZE, OVERDUE = -2, -3, -4


@jit
def _weigh(
    size: ConstIntVector, limits: ConstIntVector, state: IntVector, totals: FloatVector, weights: FloatVector
) -> None:
    """Count a graph, and weigh each component by its scarcity so far.

    That is the share of the limit used up by all graphs, relative to the scarcest component, to the power of 64.
    """
    most = 0.0
    for component in range(len(size)):
        totals[component] += size[component] / limits[component]
        most = max(most, totals[component])
        state[SMALLEST + component] = min(state[SMALLEST + component], size[component])
    for component in range(len(size)):
        weight = totals[component] / most if most > 0 else 1.0
        for _ in range(6):
            weight *= weight
        weights[component] = weight / limits[component]


@jit
def _fullest(size: ConstIntVector, packs: ConstIntMatrix, opened: int, weights: ConstFloatVector) -> int:
    """Open pack with the least weighted room of those with room for `size`; of equals the first; -1 for none."""
    fullest, least = -1, np.inf
    for pack in range(opened):
        room, fits = 0.0, True
        for component in range(len(size)):
            room += weights[component] * packs[pack, component]
            fits = fits and size[component] <= packs[pack, component]
        if fits and room < least:
            fullest, least = pack, room
    return fullest


@jit
def _put(size: ConstIntVector, pack: int, packs: IntMatrix, state: IntVector) -> bool:
    """Put a graph into an open pack; return whether the pack is full.

    It then holds the most graphs allowed, or has used up a component that every graph so far had some of.
    """
    components = len(size)
    full: bool = packs[pack, components] == 1
    for component in range(components):
        packs[pack, component] -= size[component]
        full = full or (packs[pack, component] == 0 and state[SMALLEST + component] > 0)
    packs[pack, components] -= 1
    state[HELD] += 1
    state[TAKEN] += 1
    return full


@jit
def _close(going: int, limits: ConstIntVector, packs: IntMatrix, state: IntVector) -> int:
    """Close an open pack, whose number the last one takes, and find the one that is oldest now; return `going`."""
    graphs, opening = len(limits) - 1, len(limits)
    state[HELD] -= limits[graphs] - packs[going, graphs]
    state[OPEN] -= 1
    packs[going] = packs[state[OPEN]]
    state[OLDEST] = 0
    for pack in range(state[OPEN]):
        if packs[pack, opening] < packs[state[OLDEST], opening]:
            state[OLDEST] = pack
    return going


@jit
def offer(
    size: ConstIntVector,
    limits: ConstIntVector,
    lookahead: int,
    patience: int,
    packs: IntMatrix,
    state: IntVector,
    totals: FloatVector,
    weights: FloatVector,
) -> tuple[int, int]:
    """Put one graph into the open pack that it leaves the least room in; close a pack where one has to go.

    A pack goes when nothing more fits into it; else the fullest one when `lookahead` graphs are held. One that has
    been open for `patience` graphs goes first: the graph is not taken then, and has to be offered again.

    `size` ``[k]`` is that of the graph, `limits` ``[k + 1]`` the most of each component and of graphs in a pack. These
    change: `packs` ``[lookahead, k + 2]``, for each open pack its room, the graphs that it may still take, and the
    number of graphs taken when it was opened; `state` ``[4 + k]``, see OPEN to SMALLEST; and `totals` ``[k]``, the sum
    of ``size / limits`` so far. `weights` ``[k]`` is scratch.

    Returns the number of the pack that took the graph (a new pack gets the former number of open packs), or OVERDUE;
    and the number of the pack that goes, or -1: the last open pack takes its number. TOO_LARGE or NO_SIZE, twice,
    where the graph exceeds the limits alone or a number is below 0; nothing has changed then.
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
        # A size of 0 fits into every pack, so this is the fullest of all.
        return chosen, _close(_fullest(np.zeros_like(size), packs, state[OPEN], weights), limits, packs, state)
    return chosen, -1
