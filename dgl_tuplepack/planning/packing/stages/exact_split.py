"""Empty some packs of a plan, and pack their graphs into fewer packs, which must be almost completely full."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.planning.bounds.instance import Instance
from dgl_tuplepack.planning.bounds.pattern_lp import Effort
from dgl_tuplepack.planning.plan import Patterns, of_packs
from dgl_tuplepack.planning.sizes import IntArray

# With more packs in the plan, or more graphs in the emptied packs, the search would not end within a usual effort.
_MOST_PACKS, _MOST_GRAPHS = 20_000, 12_000
# Random packs that are emptied with the emptiest packs; and finished packs that are emptied again after failures.
_OTHERS, _REOPENED = 4, 3
# A meet-in-the-middle search decides for each *free* graph whether it goes into the pack, in _MOST_SCANNED steps.
_FEWEST_FREE, _MOST_FREE, _MORE_FREE = 20, 32, 2
_MOST_SCANNED = 1 << 22
# Units of work (see `Effort`) for each try to fill a pack, and for each unpacked graph.
_WORK_PER_TRIAL, _WORK_PER_GRAPH = 10_000, 12
# The purpose (see `key_of`) of all random numbers here; the counter (see `random_bits`) of the first in `_reopened`.
_ORDERED, _REOPEN = 3, 4


def exactly_split(instance: Instance, patterns: Patterns, fewer: int, seed: int, effort: Effort) -> Patterns | None:
    """Save at least `fewer` packs by repacking some packs, of at most 12,000 graphs; return None if that fails."""
    if patterns.num_packs > _MOST_PACKS:
        return None
    # packs: a pattern for each pack. single[p]: the index in `patterns` of pack p's pattern.
    single = np.repeat(np.arange(len(patterns)), patterns.repeats)
    packs = patterns.take(single, np.ones(len(single), dtype=np.int64))
    chosen = _packs_to_empty(instance, packs, fewer, seed)
    if chosen is None:
        return None
    emptied = packs.take(np.flatnonzero(chosen), np.ones(int(chosen.sum()), dtype=np.int64))
    # classes[i]: size class of graph i of the emptied packs.
    classes = np.repeat(emptied.classes, emptied.multiplicities)
    sizes = np.ascontiguousarray(instance.sizes[classes])
    contents = filled(sizes, instance.limits, emptied.num_packs - fewer, seed, effort)
    if contents is None:
        return None
    # numbers[j]: the new pack of the j-th graph in `contents`.
    numbers = np.repeat(np.arange(len(contents)), [len(members) for members in contents])
    fresh = of_packs(numbers, classes[np.concatenate(contents)])
    return patterns.replaced(np.bincount(single[chosen], minlength=len(patterns)), fresh)


def _packs_to_empty(instance: Instance, packs: Patterns, fewer: int, seed: int) -> NDArray[np.bool_] | None:
    """Choose packs to empty, bool ``[P]``; None if there is too little free room, or if they hold too many graphs."""
    # room[p]: free share of each limit in pack p.
    room = packs.room(instance.sizes, instance.limits)
    emptiest = np.argsort(-room.min(axis=1), kind="stable")
    # enough[i]: whether the free room of the i + 1 emptiest packs adds up to `fewer` whole packs in every component.
    enough = (np.cumsum(room[emptiest], axis=0) >= fewer - 1e-9).all(axis=1)
    if not enough.any():
        return None
    number = int(enough.argmax()) + 1
    others = shuffled(emptiest[number:].copy(), key_of(seed, 0, _ORDERED))
    chosen = np.zeros(len(packs), dtype=bool)
    chosen[emptiest[:number]] = True
    chosen[others[:_OTHERS]] = True
    return chosen if int(packs.graphs[chosen].sum()) <= _MOST_GRAPHS else None


def filled(sizes: IntArray, limits: IntArray, packs: int, seed: int, effort: Effort) -> list[IntArray] | None:
    """Pack graphs of `sizes` ``[G, d]`` into at most `packs` packs; return each pack's graphs, or None on failure.

    Packs are filled one by one; each gets the hardest remaining graph, which has the largest share of a limit. A try
    with n <= 32 free graphs takes time and memory O(d 2^(n / 2)), plus at most 2^22 steps. Sources: Gupta & Ho 1999
    (see `minimum_bin_slack`) for filling bins to an exact sum; Horowitz & Sahni 1974 (see `kernels.subset`) for
    subsets.
    """
    hardest_first = np.argsort(-(sizes / limits).max(axis=1), kind="stable")
    if packs < 1 or min(_spare(sizes, limits, packs)) < 0:
        return None
    # left: graphs that are not packed yet, hardest first.
    left = hardest_first
    done: list[IntArray] = []
    failures, trial = 0, 0
    while not effort.exhausted:
        packs_left = packs - len(done)
        if packs_left == 1 or not len(left):
            # No finished pack leaves more room free than `least` allows, so all graphs in `left` fit into one pack.
            return [members for members in [*done, left] if len(members)]
        key = key_of(seed, trial, _ORDERED)
        trial += 1
        # The hardest graph is always in the pack. If few others are left, all of them are free.
        others = len(left) - 1
        all_free = others <= _MOST_FREE
        free = others if all_free else min(_FEWEST_FREE + _MORE_FREE * failures, _MOST_FREE)
        # All packs but the last share the free room.
        room = zip(limits.tolist(), _spare(sizes[left], limits, packs_left), strict=True)
        least = np.array([max(limit - spare // (packs_left - 1), 0) for limit, spare in room])
        members = _one_pack(sizes, left, (least, limits), free, key, effort)
        if members is not None:
            done.append(members)
            left = left[~np.isin(left, members)]
            failures = 0
        elif not all_free and free < _MOST_FREE:
            failures += 1
        elif all_free and packs == 2:
            # The search has tried every subset of the graphs, or as many as it may.
            return None
        else:
            # The next try draws other random graphs.
            failures = 0
            unpacked = np.concatenate([left, *_reopened(done, key)])
            left = hardest_first[np.isin(hardest_first, unpacked)]
    return None


def _spare(sizes: IntArray, limits: IntArray, packs: int) -> list[int]:
    """Return the room that the graphs leave free in `packs` packs, in each component, as Python integers."""
    return [packs * limit - total for limit, total in zip(limits.tolist(), sizes.sum(axis=0).tolist(), strict=True)]


def _reopened(done: list[IntArray], key: np.uint64) -> list[IntArray]:
    """Remove some random packs from `done`, the list of finished packs, and return these packs."""
    from dgl_tuplepack._core.kernels.random import random_bits

    return [
        done.pop(int(random_bits(key, np.uint64(_REOPEN + number)) % np.uint64(len(done))))
        for number in range(min(_REOPENED, len(done)))
    ]


def _one_pack(
    sizes: IntArray, left: IntArray, window: tuple[IntArray, IntArray], free: int, key: np.uint64, effort: Effort
) -> IntArray | None:
    """Return the graphs of one pack, of which the first is ``left[0]``; its total is within `window`; or None."""
    from dgl_tuplepack._core.kernels.subset import subset_within

    low, high = window
    others = shuffled(left[1:].copy(), key)
    # First put `fixed` random graphs into the pack, so many that about half of the free graphs will fill the pack up.
    # share[i]: expected content with i random graphs and half of the free graphs, divided by the limits.
    mean = (sizes[left] / high).mean(axis=0)
    share = np.cumsum(np.concatenate([sizes[left[:1]], sizes[others]]) / high, axis=0) + free / 2 * mean
    fixed = min(max(int((share <= 1).all(axis=1).sum()) - 1, 0), len(others) - free)
    base = np.concatenate([left[:1], others[:fixed]])
    candidates = others[fixed : fixed + free]
    held = sizes[base].sum(axis=0)
    effort.spend(_WORK_PER_TRIAL + _WORK_PER_GRAPH * len(left))
    low, high, free_sizes = np.maximum(low - held, 0), high - held, sizes[candidates]
    if (low > high).any() or (high < 0).any():
        return None
    # The kernel is fastest if the component with the narrowest window comes first.
    narrow = (high - low + 1.0) / (free_sizes.std(axis=0) + 1e-3) if len(candidates) else np.ones(len(high))
    order = np.argsort(narrow, kind="stable")
    chosen = np.zeros(len(candidates), dtype=np.int64)
    # The number of steps is negative if no subset was found.
    steps = subset_within(np.ascontiguousarray(free_sizes[:, order]), low[order], high[order], _MOST_SCANNED, chosen)
    effort.spend(abs(steps))
    return np.concatenate([base, candidates[chosen > 0]]) if steps > 0 else None
