"""Diving: fix patterns of the pattern LP one after the other, and solve it again for the graphs that are left."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._random import key_of
from dgl_tuplepack.bounds.effort import Effort
from dgl_tuplepack.bounds.pattern_lp import PatternLP
from dgl_tuplepack.kernels.random import random_bits
from dgl_tuplepack.packing.patterns import Patterns, collected, taken_packs
from dgl_tuplepack.sizes import FloatArray, IntArray

_NEARLY, _LIKELY = 0.95, 0.5
_NOISE = 0.3
_PACKS_PER_PATTERN = 32
_PURPOSE = 7


def dived(program: PatternLP, counts: IntArray, packs: int, seed: int, trial: int, effort: Effort) -> Patterns | None:
    """Pack `counts` graphs of each class into fewer than `packs` packs; None if this dive does not succeed.

    Whole numbers in the solution are fixed, else the pattern with the largest fraction; from the second trial on,
    fractions are disturbed at random.

    Columns are generated for each LP, but only until the graphs that are left may fit into the packs that are left.
    There is at most one LP for each pack.

    Source: Sadykov et al. 2019, "Primal heuristics for branch and price: the assets of diving methods"; for cutting
    stock Belov & Scheithauer 2006, "A branch-and-cut-and-price algorithm for one-dimensional stock cutting".
    """
    remaining = counts.copy()
    rows: list[tuple[dict[int, int], int]] = []
    left = packs - 1
    while remaining.any():
        program.restrict(remaining)
        program.solve(left + 1, effort, enough=left)
        if not program.value <= left + 1e-6:
            return None
        columns, repeats = program.solution()
        key = key_of(seed, left, _PURPOSE + trial)
        before = left
        for column, number in _fixed(columns, repeats, left, key, trial):
            # Patterns may hold more graphs than are left.
            content = np.minimum(column, remaining)
            if content.any():
                rows.append(taken_packs(remaining, content, number))
                left -= rows[-1][1]
        if left < 0 or left == before:
            return None
    return collected(rows)


def _fixed(columns: IntArray, repeats: FloatArray, left: int, key: np.uint64, trial: int) -> list[tuple[IntArray, int]]:
    """Choose patterns to fix, each with a number of packs: nearly whole ones, else those with the largest fractions."""
    whole = np.floor(repeats + 1 - _NEARLY).astype(np.int64)
    rows = np.flatnonzero(whole)
    if len(rows):
        return [(columns[row], int(whole[row])) for row in rows.tolist()]
    fractions = repeats.copy()
    if trial:
        noise = [int(random_bits(key, np.uint64(at)) >> np.uint64(40)) for at in range(len(fractions))]
        fractions += _NOISE * np.array(noise) / (1 << 24)
    # While many packs are left, fix one pattern for every 32 of them.
    best = np.argsort(-fractions, kind="stable")[: max(1, left // _PACKS_PER_PATTERN)]
    return [(columns[row], 1) for row in best.tolist() if row == best[0] or repeats[row] > _LIKELY]
