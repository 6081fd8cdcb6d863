"""Diving: fix patterns of the pattern LP one after the other, and solve it again for the graphs that are left."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack.bounds.effort import Effort
from dgl_tuplepack.bounds.pattern_lp import PatternLP
from dgl_tuplepack.bounds.pricing import FloatArray
from dgl_tuplepack.kernels.random import derive_key, random_bits
from dgl_tuplepack.packing.patterns import Patterns, collected
from dgl_tuplepack.sizes import IntArray

_NEARLY, _LIKELY = 0.95, 0.5
_NOISE = 0.3
# One pattern is fixed for each 2**_AT_ONCE packs that are left.
_AT_ONCE = 5
_PURPOSE = 7


def dived(program: PatternLP, counts: IntArray, packs: int, seed: int, trial: int, effort: Effort) -> Patterns | None:
    """Pack `counts` graphs of each class into fewer than `packs` packs; None if this dive does not succeed.

    Whole numbers in the solution are fixed, else the pattern with the largest fraction; from the second trial on,
    fractions are disturbed at random.

    Notes
    -----
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
        key = derive_key(np.uint64(seed), np.uint64(left), np.uint64(_PURPOSE + trial))
        before = left
        for column, number in _fixed(columns, repeats, left, key, trial):
            # Patterns may hold more graphs than are left.
            content = np.minimum(column, remaining)
            entries = np.flatnonzero(content)
            if len(entries):
                most = min(number, int((remaining[entries] // content[entries]).min()))
                remaining -= most * content
                left -= most
                rows.append((dict(zip(entries.tolist(), content[entries].tolist(), strict=True)), most))
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
    # As long as many packs are left, several at once.
    best = np.argsort(-fractions, kind="stable")[: max(1, left >> _AT_ONCE)]
    return [(columns[row], 1) for row in best.tolist() if row == best[0] or repeats[row] > _LIKELY]
