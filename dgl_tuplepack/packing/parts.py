"""Close the gap part by part: some packs are taken apart, and their graphs packed anew as well as can be."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack.bounds.effort import Effort
from dgl_tuplepack.bounds.instance import Instance, needed_packs
from dgl_tuplepack.kernels.random import derive_key, shuffle_segments
from dgl_tuplepack.packing.closing import closed
from dgl_tuplepack.packing.patterns import Patterns, joined
from dgl_tuplepack.sizes import IntArray

# Graphs of a part, at least; parts grow with each failure, up to a factor.
_GRAPHS = 60
_MOST_GROWTH = 5
_DIVES = 2
_PURPOSE = 6
_WORK_PER_PATTERN = 30


def closed_by_parts(
    instance: Instance, patterns: Patterns, bound: int, seed: int, patience: int, effort: Effort
) -> Patterns:
    """Packs that are at most as many as those of `patterns`; ends after `patience` parts in a row that save none.

    Notes
    -----
    Time: that of `closed` for some 60 to 300 graphs, each time.

    Source: Shaw 1998, "Using constraint programming and local search methods to solve vehicle routing problems" (large
    neighbourhood search). Differs from it: packs of much room are drawn with others at random.
    """
    failures, trial = 0, 0
    while failures < patience and patterns.num_packs > bound and not effort.exhausted:
        chosen = _chosen(instance, patterns, _GRAPHS * min(1 + failures // 2, _MOST_GROWTH), seed, trial)
        effort.spend(_WORK_PER_PATTERN * len(patterns))
        found = _anew(instance, patterns, chosen, seed + trial, effort)
        failures = failures + 1 if found is None else 0
        patterns = patterns if found is None else found
        trial += 1
    return patterns


def _anew(instance: Instance, patterns: Patterns, chosen: IntArray, seed: int, effort: Effort) -> Patterns | None:
    """The patterns with `chosen` packs of each packed anew, fewer packs in all; None if that failed."""
    rows = np.flatnonzero(chosen)
    taken = patterns.take(rows, chosen[rows])
    counts = taken.packed(len(instance.counts))
    classes = np.flatnonzero(counts)
    part = Instance(np.ascontiguousarray(instance.sizes[classes]), counts[classes], instance.limits)
    needed = needed_packs(part)
    if needed >= taken.num_packs:
        return None
    inside = Patterns(taken.offsets, np.searchsorted(classes, taken.classes), taken.multiplicities, taken.repeats)
    _, found = closed(part, inside, needed, seed, _DIVES, effort)
    if found.num_packs >= taken.num_packs:
        return None
    left = patterns.repeats - chosen
    kept = np.flatnonzero(left)
    fresh = Patterns(found.offsets, classes[found.classes], found.multiplicities, found.repeats)
    return joined([patterns.take(kept, left[kept]), fresh])


def _chosen(instance: Instance, patterns: Patterns, graphs: int, seed: int, trial: int) -> IntArray:
    """Packs of each pattern to take apart, int64 ``[Q]``: in turn one at random, and one of those with most room."""
    packs = np.repeat(np.arange(len(patterns)), patterns.repeats)
    held = np.add.reduceat(
        instance.sizes[patterns.classes] * patterns.multiplicities[:, None], patterns.offsets[:-1], axis=0
    )
    numbers = np.add.reduceat(patterns.multiplicities, patterns.offsets[:-1])
    room = ((instance.limits - held) / instance.limits).mean(axis=1)
    drawn = np.arange(len(packs))
    shuffle_segments(
        drawn, np.array([0, len(drawn)]), derive_key(np.uint64(seed), np.uint64(trial), np.uint64(_PURPOSE))
    )
    # Every other pack may come because of its room, so that parts differ.
    roomy = drawn[::2][np.argsort(-room[packs[drawn[::2]]], kind="stable")]
    order = np.empty(len(drawn), dtype=np.int64)
    order[: 2 * len(drawn[1::2]) : 2], order[1::2] = roomy[: len(drawn[1::2])], drawn[1::2]
    order[2 * len(drawn[1::2]) :] = roomy[len(drawn[1::2]) :]
    number = int(np.searchsorted(np.cumsum(numbers[packs[order]]), graphs)) + 1
    return np.bincount(packs[order[:number]], minlength=len(patterns)).astype(np.int64)
