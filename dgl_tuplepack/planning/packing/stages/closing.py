"""Close the gap of a plan whose packs hold few graphs, by the pattern LP, by dives and by subproblems."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.planning.bounds.instance import Instance, needed_packs
from dgl_tuplepack.planning.bounds.pattern_lp import Effort, PatternLP, by_search, linear_duals
from dgl_tuplepack.planning.plan import Patterns, collected, taken_packs
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

# The LP starts with at most this many patterns of the plan so far.
_MOST_COLUMNS = 2000
# A dive fixes whole packs: a fractional part of at least _NEARLY counts as one. If there are none, it fixes a pack of
# the pattern that repeats most, and of others above _LIKELY, at most one for _PACKS_PER_PATTERN packs still allowed.
_NEARLY, _LIKELY, _PACKS_PER_PATTERN = 0.95, 0.5, 32
# Each dive after the first adds random noise below _NOISE to the repeats.
_NOISE = 0.3
# A subproblem has at least _GRAPHS graphs, after failures up to _MOST_GROWTH times as many; it gets _DIVES dives.
_GRAPHS, _MOST_GROWTH, _DIVES = 60, 5, 2
# Work of choosing a subproblem, for each pattern; and entries in one unit of work, for the LP's initial patterns.
_WORK_PER_PATTERN, _CELLS_PER_WORK = 30, 4
# Purposes for `key_of`: each has its own stream of random numbers. Dive number t has the purpose _DIVE + t.
_SUBPROBLEM, _DIVE = 6, 7


def closed(
    instance: Instance, patterns: Patterns, bound: int, seed: int, dives: int, effort: Effort
) -> tuple[int, Patterns]:
    """Solve the pattern LP, then make at most `dives` dives; return a bound and patterns, no worse than the given.

    The time grows with the number of possible packs, so packs must hold few graphs. No graph may have size 0.
    """
    centre = linear_duals(instance, effort)
    columns = np.concatenate([patterns.dense(len(instance.counts), _MOST_COLUMNS), centre.found])
    effort.spend(columns.size // _CELLS_PER_WORK)
    program = PatternLP(columns, centre, by_search)
    program.solve(patterns.num_packs, effort)
    bound = max(bound, program.bound)
    for trial in range(dives):
        if bound >= patterns.num_packs or effort.exhausted:
            break
        fewer = dived(program, instance.counts, patterns.num_packs, seed, trial, effort)
        patterns = patterns if fewer is None else fewer
    return bound, patterns


def dived(program: PatternLP, counts: IntArray, packs: int, seed: int, trial: int, effort: Effort) -> Patterns | None:
    """Pack ``counts[c]`` graphs of each class c into fewer than `packs` packs; return None if this dive fails.

    Solve the LP of the remaining graphs, fix some packs of its solution (see `_fixed`), and repeat.

    Source: Sadykov et al. 2019, "Primal heuristics for branch and price: the assets of diving methods"; for cutting
    stock Belov & Scheithauer 2006, "A branch-and-cut-and-price algorithm for one-dimensional stock cutting".
    """
    # left: number of packs that the dive may still use.
    remaining = counts.copy()
    packed: list[tuple[dict[int, int], int]] = []
    left = packs - 1
    while remaining.any():
        program.restrict(remaining)
        program.solve(left + 1, effort, enough=left)
        # The value is infinite if the LP has no solution yet.
        if not program.value <= left + 1e-6:
            return None
        columns, repeats = program.solution()
        key = key_of(seed, left, _DIVE + trial)
        before = left
        for column, number in _fixed(columns, repeats, left, key, trial):
            # A pattern may hold more graphs of a class than remain.
            content = np.minimum(column, remaining)
            if content.any():
                # `taken_packs` reduces `remaining`, and takes fewer packs if graphs run out.
                packed.append(taken_packs(remaining, content, number))
                left -= packed[-1][1]
        if left < 0 or left == before:
            return None
    return collected(packed)


def _fixed(columns: IntArray, repeats: FloatArray, left: int, key: np.uint64, trial: int) -> list[tuple[IntArray, int]]:
    """Return the patterns to fix, each with its number of packs: whole packs, or else patterns that repeat most."""
    from dgl_tuplepack._core.kernels.random import random_bits

    whole = np.floor(repeats + 1 - _NEARLY).astype(np.int64)
    if whole.any():
        return [(columns[row], int(whole[row])) for row in np.flatnonzero(whole).tolist()]
    fractions = repeats.copy()
    if trial:
        # Random numbers in 0..2**24 - 1.
        noise = [int(random_bits(key, np.uint64(at)) >> np.uint64(40)) for at in range(len(fractions))]
        fractions += _NOISE * np.array(noise) / (1 << 24)
    best = np.argsort(-fractions, kind="stable")[: max(1, left // _PACKS_PER_PATTERN)]
    return [(columns[row], 1) for row in best.tolist() if row == best[0] or repeats[row] > _LIKELY]


def closed_by_subproblems(
    instance: Instance, patterns: Patterns, bound: int, seed: int, patience: int, effort: Effort
) -> Patterns:
    """Take some packs out, and pack their graphs again; repeat this until `patience` tries in a row save no pack.

    Source: Shaw 1998, "Using constraint programming and local search methods to solve vehicle routing problems" (large
    neighbourhood search). Differs from it: a subproblem has both packs with much free room and random packs.
    """
    failures, trial = 0, 0
    while failures < patience and patterns.num_packs > bound and not effort.exhausted:
        chosen = _chosen(instance, patterns, _GRAPHS * min(1 + failures // 2, _MOST_GROWTH), seed, trial)
        effort.spend(_WORK_PER_PATTERN * len(patterns))
        present = np.flatnonzero(chosen)
        taken = patterns.take(present, chosen[present])
        subproblem, classes = instance.with_counts(taken.packed(len(instance.counts)))
        target = needed_packs(subproblem)
        failures += 1
        if target < taken.num_packs:
            # The chosen packs, with the classes of the subproblem.
            inside = taken.with_classes(np.searchsorted(classes, taken.classes))
            fresh = closed(subproblem, inside, target, seed + trial, _DIVES, effort)[1]
            if fresh.num_packs < taken.num_packs:
                patterns = patterns.replaced(chosen, fresh.with_classes(classes[fresh.classes]))
                failures = 0
        trial += 1
    return patterns


def _chosen(instance: Instance, patterns: Patterns, graphs: int, seed: int, trial: int) -> IntArray:
    """Return how many packs of each pattern to take out, int64 ``[Q]``; together they hold about `graphs` graphs."""
    # packs[i]: the pattern of pack i.
    packs = np.repeat(np.arange(len(patterns)), patterns.repeats)
    room = patterns.room(instance.sizes, instance.limits).mean(axis=1)
    drawn = shuffled(np.arange(len(packs)), key_of(seed, trial, _SUBPROBLEM))
    # Only a random half of the packs may be chosen for their room, so that subproblems differ.
    roomy, others = drawn[::2], drawn[1::2]
    roomy = roomy[np.argsort(-room[packs[roomy]], kind="stable")]
    order = np.empty(len(drawn), dtype=np.int64)
    order[::2], order[1::2] = roomy, others
    number = int(np.searchsorted(np.cumsum(patterns.graphs[packs[order]]), graphs)) + 1
    return np.bincount(packs[order[:number]], minlength=len(patterns)).astype(np.int64)
