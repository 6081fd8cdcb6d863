"""Empty some packs, and fill fewer packs exactly with their graphs: the last step of a search close to the bound."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._core.kernels.random import random_bits
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.planning.bounds.effort import Effort
from dgl_tuplepack.planning.bounds.instance import Instance
from dgl_tuplepack.planning.packing.patterns import Patterns, of_packs
from dgl_tuplepack.planning.sizes import IntArray

# With more packs or graphs, the search would not end within a usual effort.
_MOST_PACKS = 20_000
_MOST_GRAPHS = 12_000
# Random packs that are emptied together with the emptiest packs.
_OTHERS = 4
# Free graphs, for which a meet-in-the-middle search decides whether they are in the pack: fewest, most, and how many
# more after each failure.
_FEWEST_FREE = 20
_MOST_FREE = 32
_MORE_FREE = 2
# Finished packs that are emptied again after repeated failures.
_REOPENED = 3
# Most steps of a meet-in-the-middle search.
_MOST_SCANNED = 1 << 22
_WORK_PER_TRIAL, _WORK_PER_GRAPH = 10_000, 12
# _ORDERED: the purpose of all random numbers here. _REOPEN: the index, in their stream, of the random number that
# chooses the first pack to empty again.
_ORDERED, _REOPEN = 3, 4


def exactly_split(instance: Instance, patterns: Patterns, fewer: int, seed: int, effort: Effort) -> Patterns | None:
    """Pack the graphs of some packs again to save `fewer` (>= 1) packs; return None if that failed.

    These packs are the emptiest ones, just enough that their free room adds up to `fewer` whole packs, and some random
    others.

    Time O(G d) for the G graphs of these packs, at most some thousands, plus the time of `filled`.
    """
    if patterns.num_packs > _MOST_PACKS:
        return None
    # packs: one pattern for each pack. single[p]: the pattern of pack p in `patterns`.
    single = np.repeat(np.arange(len(patterns)), patterns.repeats)
    packs = patterns.take(single, np.ones(len(single), dtype=np.int64))
    chosen = _packs_to_empty(instance, packs, fewer, seed)
    if chosen is None:
        return None
    emptied = packs.take(np.flatnonzero(chosen), np.ones(int(chosen.sum()), dtype=np.int64))
    # classes[i]: size class of graph i of the emptied packs. contents[p]: indices of the graphs of new pack p.
    classes = np.repeat(emptied.classes, emptied.multiplicities)
    sizes = np.ascontiguousarray(instance.sizes[classes])
    contents = filled(sizes, instance.limits, emptied.num_packs - fewer, seed, effort)
    if contents is None:
        return None
    numbers = np.repeat(np.arange(len(contents)), [len(members) for members in contents])
    fresh = of_packs(numbers, classes[np.concatenate(contents)])
    return patterns.replaced(np.bincount(single[chosen], minlength=len(patterns)), fresh)


def _packs_to_empty(instance: Instance, packs: Patterns, fewer: int, seed: int) -> NDArray[np.bool_] | None:
    """Choose packs to empty, bool ``[P]``; return None if there is too little room, or they hold too many graphs."""
    # room[p]: free share of each limit in pack p.
    room = packs.room(instance)
    emptiest = np.argsort(-room.min(axis=1), kind="stable")
    # enough[i]: whether the i + 1 emptiest packs have the room of `fewer` packs in every component.
    enough = (np.cumsum(room[emptiest], axis=0) >= fewer - 1e-9).all(axis=1)
    if not enough.any():
        return None
    number = int(enough.argmax()) + 1
    others = shuffled(emptiest[number:].copy(), key_of(seed, 0, _ORDERED))
    chosen = np.zeros(len(packs), dtype=bool)
    chosen[emptiest[:number]] = True
    chosen[others[:_OTHERS]] = True
    return chosen if int(packs.graphs[chosen].sum()) <= _MOST_GRAPHS else None


def _within(sizes: IntArray, low: IntArray, high: IntArray, most: int) -> tuple[IntArray | None, int]:
    """Return a subset of n graphs with a total in the window ``low..high``, or None; and the work done.

    The subset is int64 ``[n]``: 1 for each graph in it, else 0. None means that there is no such subset, or that a
    search of `most` steps did not find one.
    """
    from dgl_tuplepack._core.kernels.exact_split import subset_within

    chosen = np.zeros(len(sizes), dtype=np.int64)
    if (low > high).any() or (high < 0).any():
        return None, 0
    # The kernel needs the components sorted by the width of their window, relative to the spread of their sizes.
    narrow = (high - low + 1.0) / (sizes.std(axis=0) + 1e-3) if len(sizes) else np.ones(len(high))
    order = np.argsort(narrow, kind="stable")
    # The number of steps is negative if no subset was found.
    steps = subset_within(np.ascontiguousarray(sizes[:, order]), low[order], high[order], most, chosen)
    return (chosen if steps > 0 else None), abs(steps)


def filled(sizes: IntArray, limits: IntArray, packs: int, seed: int, effort: Effort) -> list[IntArray] | None:
    """Fill at most `packs` packs with all graphs `sizes`, int64 ``[G, d]``; return the indices of each pack's graphs.

    Packs are filled one by one. Each pack may waste at most an equal share of the room that all packs together may
    waste. It always holds the hardest remaining graph, the one with the largest share of a limit, and other graphs
    drawn at random. After repeated failures, some finished packs are emptied again. For two packs and at most 33 graphs
    the search is exact, unless scanning 2^22 pairs of sums does not suffice. Return None if no packing was found, or
    the effort did not suffice.

    Time O(d 2^(n / 2)) for each try, where n <= 32 is the number of graphs to decide on; memory the same.

    Source: Gupta & Ho 1999 for filling bins one by one to an exact sum (see `minimum_bin_slack`); Horowitz & Sahni 1974
    for subsets (see `kernels.exact_split`).
    """
    hardness = (sizes / limits).max(axis=1)
    left = np.argsort(-hardness, kind="stable")
    if packs < 1 or min(_spare(sizes, limits, packs)) < 0:
        return None
    # left: graphs that are not packed yet, hardest first. done: the graphs of each finished pack.
    done: list[IntArray] = []
    failures, trial = 0, 0
    while not effort.exhausted:
        missing = packs - len(done)
        if missing == 1 or not len(left):
            # The finished packs wasted no more than their shares, so the remaining graphs fit.
            return [members for members in [*done, left] if len(members)]
        key = key_of(seed, trial, _ORDERED)
        trial += 1
        # The next pack must hold at least `low`. The search decides on `free` graphs: if few are left, on all graphs
        # but the first.
        low = _least(sizes[left], limits, missing)
        others = len(left) - 1
        free = others if others <= _MOST_FREE else min(_FEWEST_FREE + _MORE_FREE * failures, _MOST_FREE)
        members = _one_pack(sizes, left, (low, limits), free, key, effort)
        if members is not None:
            done.append(members)
            left = left[~np.isin(left, members)]
            failures = 0
        elif free < min(others, _MOST_FREE):
            # Try again with more free graphs.
            failures += 1
        elif missing == 2 and not done and free == others:
            # Every subset was tried.
            return None
        else:
            # Empty some finished packs again.
            failures = 0
            left = np.sort(np.concatenate([left, *_reopened(done, key)]))
            left = left[np.argsort(-hardness[left], kind="stable")]
    return None


def _spare(sizes: IntArray, limits: IntArray, packs: int) -> list[int]:
    """Return the room that the graphs leave in `packs` packs, as Python integers, since products may exceed int64."""
    return [packs * limit - total for limit, total in zip(limits.tolist(), sizes.sum(axis=0).tolist(), strict=True)]


def _least(sizes: IntArray, limits: IntArray, packs: int) -> IntArray:
    """Return the least content of the next pack if `packs` (>= 2) packs are not filled yet, int64 ``[d]``.

    All these packs but the last may waste equal shares of the room that the graphs leave.
    """
    shares = [spare // (packs - 1) for spare in _spare(sizes, limits, packs)]
    return np.array([max(limit - share, 0) for limit, share in zip(limits.tolist(), shares, strict=True)])


def _reopened(done: list[IntArray], key: np.uint64) -> list[IntArray]:
    """Remove some random packs from the list of finished packs, and return them."""
    return [
        done.pop(int(random_bits(key, np.uint64(_REOPEN + number)) % np.uint64(len(done))))
        for number in range(min(_REOPENED, len(done)))
    ]


def _one_pack(
    sizes: IntArray, left: IntArray, window: tuple[IntArray, IntArray], free: int, key: np.uint64, effort: Effort
) -> IntArray | None:
    """Return some of the graphs `left`, including the first, with a total in the window; None if none were found.

    `window` is (low, high), each int64 ``[d]``; `free` is the number of graphs that the search decides on.
    """
    low, high = window
    others = shuffled(left[1:].copy(), key)
    # Some random graphs go in first, so that about half of the free graphs will fill the rest of the pack. share[i] is
    # the expected fill of the pack, as shares of the limits, with i random graphs and half of the free graphs.
    mean = (sizes[left] / high).mean(axis=0)
    share = np.cumsum(np.concatenate([sizes[left[:1]], sizes[others]]) / high, axis=0) + free / 2 * mean
    fixed = min(max(int((share <= 1).all(axis=1).sum()) - 1, 0), len(others) - free)
    base = np.concatenate([left[:1], others[:fixed]])
    candidates = others[fixed : fixed + free]
    held = sizes[base].sum(axis=0)
    chosen, work = _within(sizes[candidates], np.maximum(low - held, 0), high - held, _MOST_SCANNED)
    effort.spend(_WORK_PER_TRIAL + _WORK_PER_GRAPH * len(left) + work)
    return None if chosen is None else np.concatenate([base, candidates[chosen > 0]])
