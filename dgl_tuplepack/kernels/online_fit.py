"""Best fit over a bounded number of open packs, for graphs that come one by one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack.kernels._jit import MATRIX, VECTOR, jit

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

REALS = "Array(float64, 1, 'C', readonly=True)"

# Where `offer` stands: open packs and graphs in them, then the smallest size so far of each component.
OPEN, HELD, SMALLEST = range(3)
# What `offer` answers instead of a pack.
TOO_LARGE, NO_SIZE = -2, -3


@jit(f"int64({MATRIX}, int64, {REALS})")
def _fullest(packs: IntArray, opened: int, weights: FloatArray) -> int:
    """Open pack with the least weighted room; of equals the first."""
    fullest, least = 0, np.inf
    for pack in range(opened):
        room = 0.0
        for component in range(len(weights)):
            room += weights[component] * packs[pack, component]
        if room < least:
            fullest, least = pack, room
    return fullest


@jit(f"UniTuple(int64, 2)({VECTOR}, {VECTOR}, int64, int64[:, ::1], int64[::1], float64[::1], float64[::1])")
def offer(
    size: IntArray,
    limits: IntArray,
    lookahead: int,
    packs: IntArray,
    state: IntArray,
    totals: FloatArray,
    weights: FloatArray,
) -> tuple[int, int]:
    """Put one graph into the open pack that it leaves the least room in; close a pack where one has to go.

    Room counts by how scarce each component was so far (share of the limit used up by all graphs, relative to the
    scarcest, to the power of 64). A pack goes when it may hold no more graphs, or has used up a component that every
    graph so far had some of; else the fullest one when `lookahead` graphs are held.

    Parameters
    ----------
    size
        Of the graph, int64 ``[k]``.
    limits
        Most of each component and most graphs of a pack, int64 ``[k + 1]``.
    packs
        ``[lookahead, k + 1]``: room of each open pack and graphs that it may still take. Changes.
    state
        ``[2 + k]``: see OPEN to SMALLEST. Changes.
    totals
        Sum of ``size / limits`` so far, ``[k]``. Changes.
    weights
        Scratch, ``[k]``.

    Returns
    -------
    tuple
        Number of the pack that took the graph, which is the former number of open packs where it opened one, and
        number of the pack that goes, or -1; the last open pack takes the number of the one that went. TOO_LARGE
        or NO_SIZE, twice, where the graph exceeds the limits alone or a number is below 0: nothing has changed then.
    """
    components = len(size)
    for component in range(components):
        if size[component] < 0:
            return NO_SIZE, NO_SIZE
    for component in range(components):
        if size[component] > limits[component]:
            return TOO_LARGE, TOO_LARGE
    most = 0.0
    for component in range(components):
        totals[component] += size[component] / limits[component]
        most = max(most, totals[component])
        state[SMALLEST + component] = min(state[SMALLEST + component], size[component])
    for component in range(components):
        weight = totals[component] / most if most > 0 else 1.0
        for _ in range(6):
            weight *= weight
        weights[component] = weight / limits[component]

    chosen, least = state[OPEN], np.inf
    for pack in range(state[OPEN]):
        room, fits = 0.0, True
        for component in range(components):
            room += weights[component] * packs[pack, component]
            fits = fits and size[component] <= packs[pack, component]
        if fits and room < least:
            chosen, least = pack, room
    if chosen == state[OPEN]:
        packs[chosen] = limits
        state[OPEN] += 1
    full = packs[chosen, components] == 1
    for component in range(components):
        packs[chosen, component] -= size[component]
        full = full or (packs[chosen, component] == 0 and state[SMALLEST + component] > 0)
    packs[chosen, components] -= 1
    state[HELD] += 1

    going = -1
    if full:
        going = chosen
    elif state[HELD] == lookahead:
        going = _fullest(packs, state[OPEN], weights)
    if going >= 0:
        state[HELD] -= limits[components] - packs[going, components]
        state[OPEN] -= 1
        packs[going] = packs[state[OPEN]]
    return chosen, going
