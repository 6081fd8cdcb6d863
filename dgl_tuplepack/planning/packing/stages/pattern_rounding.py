"""Turn a solution of the pattern LP into packs: round the repeats, and pack the remaining graphs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dgl_tuplepack.planning.bounds.effort import Effort
from dgl_tuplepack.planning.bounds.instance import Instance
from dgl_tuplepack.planning.packing.patterns import Patterns, collected, taken_packs
from dgl_tuplepack.planning.packing.stages.minimum_bin_slack import Tuning, completed
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

# Repeats are rounded up if their fractional part is at least the threshold; a threshold of 2 rounds no repeats up.
_THRESHOLDS = (2.0, 0.9, 0.7, 0.5)
# Search steps of minimum bin slack for each pattern.
_STEPS = 20_000


def rounded(
    instance: Instance, columns: IntArray, repeats: FloatArray, turn: float, effort: Effort
) -> Iterator[Patterns]:
    """Yield packings made from a solution of the LP: its patterns `columns` ``[M, C]``, with their `repeats` ``[M]``.

    No pattern repeats more often than the remaining graphs allow, so `repeats` need not be exact. For `turn`, see
    `Tuning`. If the effort is used up, stop.

    Time O(M C), plus minimum bin slack for the remaining graphs: at most about one pack of graphs for each pattern.

    Source: Waescher & Gau 1996, "Heuristics for the integer one-dimensional cutting stock problem" (residual
    heuristics). Differs from it in the method for the remaining graphs.
    """
    order = np.argsort(-repeats, kind="stable")
    columns, repeats = columns[order], repeats[order]
    whole = np.floor(repeats + 1e-6)
    fraction = repeats - whole
    for threshold in _THRESHOLDS:
        kept, remaining = _taken(instance.counts, columns, whole + (fraction >= threshold))
        if not remaining.any():
            yield kept
            continue
        # First search for at least 5 graphs of each pack and sample its other graphs; then search for all its graphs.
        for extra, searched_graphs in enumerate((5.0, float("inf"))):
            tuning = Tuning(steps=_STEPS, kept=searched_graphs, turn=turn + extra)
            patterns = completed(instance, kept, tuning, effort)
            if patterns is None:
                return
            yield patterns


def _taken(counts: IntArray, columns: IntArray, repeats: FloatArray) -> tuple[Patterns, IntArray]:
    """Repeat each pattern m up to ``repeats[m]`` times, but only as often as the remaining graphs allow.

    Return the patterns, and the number of remaining graphs of each class, int64 ``[C]``.
    """
    remaining = counts.copy()
    rows: list[tuple[dict[int, int], int]] = []
    for column, number in zip(columns, repeats.tolist(), strict=True):
        # `taken_packs` reduces `remaining`.
        content, packs = taken_packs(remaining, column, int(number))
        if packs:
            rows.append((content, packs))
    return collected(rows), remaining
