"""Subproblems: packs that are taken out of a plan and packed again as an instance of their own."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._random import key_of, shuffled
from dgl_tuplepack.bounds.effort import Effort
from dgl_tuplepack.bounds.instance import Instance, needed_packs
from dgl_tuplepack.packing.closing import closed
from dgl_tuplepack.packing.patterns import Patterns
from dgl_tuplepack.sizes import IntArray

# Least graphs of a subproblem; they grow with each failure, up to a factor.
_GRAPHS = 60
_MOST_GROWTH = 5
_DIVES = 2
_PURPOSE = 6
_WORK_PER_PATTERN = 30


def closed_by_subproblems(
    instance: Instance, patterns: Patterns, bound: int, seed: int, patience: int, effort: Effort
) -> Patterns:
    """Packs that are at most as many as those of `patterns`; ends after `patience` failures in a row.

    Time: that of `closed` for some 60 to 300 graphs, each time.

    Source: Shaw 1998, "Using constraint programming and local search methods to solve vehicle routing problems" (large
    neighbourhood search). Differs from it: packs with much room are drawn with others at random.
    """
    failures, trial = 0, 0
    while failures < patience and patterns.num_packs > bound and not effort.exhausted:
        chosen = _chosen(instance, patterns, _GRAPHS * min(1 + failures // 2, _MOST_GROWTH), seed, trial)
        effort.spend(_WORK_PER_PATTERN * len(patterns))
        fewer = _closed_again(instance, patterns, chosen, seed + trial, effort)
        failures += 1
        if fewer is not None:
            patterns, failures = fewer, 0
        trial += 1
    return patterns


def _closed_again(
    instance: Instance, patterns: Patterns, chosen: IntArray, seed: int, effort: Effort
) -> Patterns | None:
    """Pack `chosen` packs of each pattern, int64 ``[Q]``, into fewer; None if that fails."""
    rows = np.flatnonzero(chosen)
    taken = patterns.take(rows, chosen[rows])
    subproblem, classes = instance.with_counts(taken.packed(len(instance.counts)))
    target = needed_packs(subproblem)
    if target >= taken.num_packs:
        return None
    inside = taken.with_classes(np.searchsorted(classes, taken.classes))
    fresh = closed(subproblem, inside, target, seed, _DIVES, effort)[1]
    if fresh.num_packs >= taken.num_packs:
        return None
    return patterns.replaced(chosen, fresh.with_classes(classes[fresh.classes]))


def _chosen(instance: Instance, patterns: Patterns, graphs: int, seed: int, trial: int) -> IntArray:
    """Packs of each pattern to take out, int64 ``[Q]``: in turn one at random, and one of those with most room."""
    packs = np.repeat(np.arange(len(patterns)), patterns.repeats)
    room = patterns.room(instance).mean(axis=1)
    drawn = shuffled(np.arange(len(packs)), key_of(seed, trial, _PURPOSE))
    # Every other pack may come because of its room, so that subproblems differ.
    roomy, others = drawn[::2], drawn[1::2]
    roomy = roomy[np.argsort(-room[packs[roomy]], kind="stable")]
    order = np.empty(len(drawn), dtype=np.int64)
    order[::2], order[1::2] = roomy, others
    number = int(np.searchsorted(np.cumsum(patterns.graphs[packs[order]]), graphs)) + 1
    return np.bincount(packs[order[:number]], minlength=len(patterns)).astype(np.int64)
