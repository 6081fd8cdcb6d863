"""From a solution of the pattern LP to packs: round down, and pack what is left."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack.bounds.effort import Effort
from dgl_tuplepack.bounds.instance import Instance, needed_packs
from dgl_tuplepack.packing.minimum_bin_slack import Tuning, minimum_bin_slack
from dgl_tuplepack.packing.patterns import Patterns, collected, joined
from dgl_tuplepack.sizes import IntArray

# A fraction is rounded up from here on; above 1: never.
_THRESHOLDS = (2.0, 0.9, 0.7, 0.5)
_STEPS = 20_000


def rounded(
    instance: Instance, columns: IntArray, repeats: NDArray[np.float64], turn: float, effort: Effort
) -> Iterator[Patterns]:
    """Round the LP's patterns, ``columns`` ``[M, C]`` with fractional ``repeats`` ``[M]``, in several ways.

    Minimum bin slack packs the graphs that the rounding leaves over. A pattern is not repeated beyond the graphs that
    are left, so that differences in the last digits of the LP do not matter.

    Notes
    -----
    Time O(M C) and that of minimum bin slack on at most one pack for each pattern used.

    Source: Waescher & Gau 1996, "Heuristics for the integer one-dimensional cutting stock problem" (residual
    heuristics). Differs in the method for the rest.
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
        rest, left = instance.with_counts(remaining)
        for extra, tail in enumerate((5.0, float("inf"))):
            tuning = Tuning(steps=_STEPS, kept=tail, turn=turn + extra)
            packed = minimum_bin_slack(rest, needed_packs(rest), tuning, effort)
            if packed is None:
                return
            yield joined([kept, packed.with_classes(left[packed.classes])])


def _taken(counts: IntArray, columns: IntArray, wanted: NDArray[np.float64]) -> tuple[Patterns, IntArray]:
    """Repeat each pattern as often as wanted and as graphs allow; return the patterns, and the graphs left."""
    remaining = counts.copy()
    rows: list[tuple[dict[int, int], int]] = []
    for column, number in zip(columns, wanted.tolist(), strict=True):
        entries = np.flatnonzero(column)
        most = min(int(number), int((remaining[entries] // column[entries]).min()))
        if most > 0:
            remaining[entries] -= most * column[entries]
            rows.append((dict(zip(entries.tolist(), column[entries].tolist(), strict=True)), most))
    return collected(rows), remaining
