"""Close the gap if packs hold few graphs: the pattern LP with searched packs, dives from it, and subproblems.

A dive fixes packs of the LP's solution, solves the LP of the graphs that remain, and so on.
"""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels.random import random_bits
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.planning.bounds.effort import Effort
from dgl_tuplepack.planning.bounds.instance import Instance, needed_packs
from dgl_tuplepack.planning.bounds.pack_search import by_search, linear_duals
from dgl_tuplepack.planning.bounds.pattern_lp import PatternLP
from dgl_tuplepack.planning.packing.patterns import Patterns, collected, taken_packs
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

# Most patterns of the plan so far that start the LP.
_MOST_COLUMNS = 2000
# For dives: repeats are rounded up if their fraction is at least _NEARLY. If several patterns are fixed at once, all
# but the first must have a fraction above _LIKELY.
_NEARLY, _LIKELY = 0.95, 0.5
# Most noise that later dives add to a fraction. At most one pattern for every _PACKS_PER_PATTERN packs that are left is
# fixed at once, but at least one.
_NOISE = 0.3
_PACKS_PER_PATTERN = 32
# Least number of graphs of a subproblem; after failures, it is larger, at most _MOST_GROWTH times as large.
_GRAPHS = 60
_MOST_GROWTH = 5
# Most dives for a subproblem.
_DIVES = 2
# Work of choosing a subproblem, for each pattern.
_WORK_PER_PATTERN = 30
# How many entries of the columns that start the LP cost one unit of work.
_CELLS_PER_WORK = 4
# Purposes of random numbers: each purpose has its own stream.
_SUBPROBLEM, _DIVE = 6, 7


def closed(
    instance: Instance, patterns: Patterns, bound: int, seed: int, dives: int, effort: Effort
) -> tuple[int, Patterns]:
    """Solve the pattern LP, then dive; return a bound of at least `bound`, and patterns with at most as many packs.

    The instance must be small, or have few graphs in a pack, and no graph may have size 0. At most `dives` dives are
    made.

    Time: the time of the pattern LP with searched packs, which grows with the number of possible packs, and of the
    dives.

    Source: see `bounds.pattern_lp`, `bounds.pack_search` and `dived`.
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
    """Pack `counts` graphs of each class into fewer than `packs` packs; return None if this dive fails.

    Solve the LP of the remaining graphs, fix some packs of its solution, and repeat until no graphs remain. All whole
    packs in a solution are fixed; if there are none, one pack of each of the patterns with the largest fractions is
    fixed (see `_fixed`). From the second trial on, fractions get random noise.

    Columns are generated for each LP, but only until its solution needs no more packs (fractions included) than the
    dive has left. There is at most one LP for each pack.

    Source: Sadykov et al. 2019, "Primal heuristics for branch and price: the assets of diving methods"; for cutting
    stock Belov & Scheithauer 2006, "A branch-and-cut-and-price algorithm for one-dimensional stock cutting".
    """
    remaining = counts.copy()
    rows: list[tuple[dict[int, int], int]] = []
    left = packs - 1
    while remaining.any():
        program.restrict(remaining)
        program.solve(left + 1, effort, enough=left)
        # More packs are needed than are left, even as fractions (or the value is unknown): the dive fails.
        if not program.value <= left + 1e-6:
            return None
        columns, repeats = program.solution()
        key = key_of(seed, left, _DIVE + trial)
        before = left
        for column, number in _fixed(columns, repeats, left, key, trial):
            # A pattern may hold more graphs than remain.
            content = np.minimum(column, remaining)
            if content.any():
                rows.append(taken_packs(remaining, content, number))
                left -= rows[-1][1]
        if left < 0 or left == before:
            return None
    return collected(rows)


def _fixed(columns: IntArray, repeats: FloatArray, left: int, key: np.uint64, trial: int) -> list[tuple[IntArray, int]]:
    """Return patterns to fix, each with its number of packs: all whole packs, else patterns with the largest fractions.

    `left` is the number of packs left; it limits how many patterns without whole packs are fixed at once.
    """
    # whole[m]: whole packs of pattern m; a fraction of at least _NEARLY counts as a pack.
    whole = np.floor(repeats + 1 - _NEARLY).astype(np.int64)
    rows = np.flatnonzero(whole)
    if len(rows):
        return [(columns[row], int(whole[row])) for row in rows.tolist()]
    fractions = repeats.copy()
    if trial:
        # Random numbers in 0..2**24 - 1.
        noise = [int(random_bits(key, np.uint64(at)) >> np.uint64(40)) for at in range(len(fractions))]
        fractions += _NOISE * np.array(noise) / (1 << 24)
    # While many packs are left, fix one pattern for every _PACKS_PER_PATTERN of them.
    best = np.argsort(-fractions, kind="stable")[: max(1, left // _PACKS_PER_PATTERN)]
    return [(columns[row], 1) for row in best.tolist() if row == best[0] or repeats[row] > _LIKELY]


def closed_by_subproblems(
    instance: Instance, patterns: Patterns, bound: int, seed: int, patience: int, effort: Effort
) -> Patterns:
    """Take some packs out as a subproblem, and pack their graphs again; repeat this with other packs.

    Return patterns with at most as many packs as before. The search ends after `patience` failures in a row.

    Time: one call of `closed` with some 60 to 300 graphs, for each subproblem.

    Source: Shaw 1998, "Using constraint programming and local search methods to solve vehicle routing problems" (large
    neighbourhood search). Differs from it: a subproblem mixes packs with much room and random packs.
    """
    failures, trial = 0, 0
    while failures < patience and patterns.num_packs > bound and not effort.exhausted:
        # chosen[q]: packs of pattern q in this subproblem.
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
    """Pack the graphs of ``chosen[q]`` packs of each pattern q into fewer packs.

    Return all patterns with the new packs in place of the chosen ones, or None if no pack was saved.
    """
    rows = np.flatnonzero(chosen)
    taken = patterns.take(rows, chosen[rows])
    subproblem, classes = instance.with_counts(taken.packed(len(instance.counts)))
    target = needed_packs(subproblem)
    if target >= taken.num_packs:
        return None
    # The chosen packs, with classes numbered as in the subproblem: class i of the subproblem is classes[i].
    inside = taken.with_classes(np.searchsorted(classes, taken.classes))
    fresh = closed(subproblem, inside, target, seed, _DIVES, effort)[1]
    if fresh.num_packs >= taken.num_packs:
        return None
    return patterns.replaced(chosen, fresh.with_classes(classes[fresh.classes]))


def _chosen(instance: Instance, patterns: Patterns, graphs: int, seed: int, trial: int) -> IntArray:
    """Return how many packs of each pattern to take out, int64 ``[Q]``: alternately roomy packs and random packs.

    Together they have at least `graphs` graphs, if there are that many.
    """
    # packs[i]: the pattern of pack i. room[q]: mean share of the limits that is free in a pack of pattern q.
    packs = np.repeat(np.arange(len(patterns)), patterns.repeats)
    room = patterns.room(instance).mean(axis=1)
    drawn = shuffled(np.arange(len(packs)), key_of(seed, trial, _SUBPROBLEM))
    # Only a random half of the packs may be chosen for their room, so that subproblems differ.
    roomy, others = drawn[::2], drawn[1::2]
    roomy = roomy[np.argsort(-room[packs[roomy]], kind="stable")]
    order = np.empty(len(drawn), dtype=np.int64)
    order[::2], order[1::2] = roomy, others
    # Take packs in this order until they have enough graphs.
    number = int(np.searchsorted(np.cumsum(patterns.graphs[packs[order]]), graphs)) + 1
    return np.bincount(packs[order[:number]], minlength=len(patterns)).astype(np.int64)
