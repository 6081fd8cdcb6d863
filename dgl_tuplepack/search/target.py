"""The smallest limits that reach a wanted efficiency."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._checks import INT64_MAX
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.search.evaluation import Evaluation
from dgl_tuplepack.search.exploration import explore
from dgl_tuplepack.search.result import harmonic_means
from dgl_tuplepack.search.space import Row, Space, by_component
from dgl_tuplepack.sizes import IntArray

Target = float | Mapping[str, float]

# Combinations of ranges are planned from few slots to many, so many at a time.
_WAVE = 256


def search_target(evaluation: Evaluation, space: Space, wanted: Reaching, reach: float, plans: int) -> int:
    """Search as "auto" does, but for the fewest slots that reach the target.

    Raises
    ------
    SearchError
        Nothing that was tried reaches the target; says what comes closest.
    """
    top = reach * space.scale
    lower = space.ray(space.scale / reach, space.scale, max(2, plans // 25))
    explore(evaluation, space, space.scale, top, plans, wanted, (space.rounded(space.mean), *lower))
    return _reached(evaluation, wanted, f"limits up to {reach:g} times what the largest graph needs; raise reach")


def search_target_in_ranges(evaluation: Evaluation, rows: list[Row], wanted: Reaching) -> int:
    """Plan combinations of ranges, given from few slots to many, until one reaches the target: the smallest does.

    Raises
    ------
    SearchError
        No combination reaches the target; says which comes closest.
    """
    lacking = wanted.shortfalls(evaluation.bounds(rows)).tolist()
    possible = [row for row, less in zip(rows, lacking, strict=True) if less <= 0]
    for first in range(0, len(possible), _WAVE):
        evaluation.add(possible[first : first + _WAVE])
        if (wanted.shortfalls(evaluation.efficiency) <= 0).any():
            break
    else:
        # What cannot reach the target may still come closest to it.
        evaluation.add(rows)
    return _reached(evaluation, wanted, f"{len(rows)} combinations; widen the ranges")


def _reached(evaluation: Evaluation, wanted: Reaching, tried: str) -> int:
    best = int(wanted.order(evaluation)[0])
    if wanted.shortfalls(evaluation.efficiency)[best] > 0:
        candidate = evaluation.candidate(list(evaluation.found)[best])
        reached = ", ".join(f"{name} {value:.4f}" for name, value in candidate.efficiency.items())
        raise SearchError(
            f"the target of {wanted} is out of reach: the best is {reached}, harmonic mean "
            f"{candidate.harmonic_mean:.4f}, at {candidate.limits!r} among {tried}, plan with another method or "
            "more effort, or ask for less."
        )
    return best


class Reaching:
    """The fewest slots per pack whose efficiencies are no less than wanted.

    Parameters
    ----------
    wanted
        Least harmonic mean; or component -> least efficiency.
    space
        Where to search.

    Raises
    ------
    SearchError
        The target is no fraction, or names components that the sizes do not have.
    """

    def __init__(self, wanted: Target, space: Space) -> None:
        self._space = space
        self._mean = None if isinstance(wanted, Mapping) else _fraction("the target", wanted)
        self._each = np.zeros(len(space.components))
        if isinstance(wanted, Mapping):
            for name, value in by_component("targets", wanted, space.components, every=False).items():
                self._each[space.components.index(name)] = _fraction(f"the target of {name}", value)

    def __str__(self) -> str:
        if self._mean is not None:
            return f"a harmonic mean of {self._mean:g}"
        named = zip(self._space.components, self._each.tolist(), strict=True)
        return ", ".join(f"{name} {value:g}" for name, value in named if value > 0)

    def shortfalls(self, efficiency: NDArray[np.float64]) -> NDArray[np.float64]:
        """What each row of efficiencies ``[M, k]`` lacks, float64 ``[M]``; at most 0 where the target is reached."""
        if self._mean is not None:
            return self._mean - harmonic_means(efficiency)
        return np.asarray((self._each - efficiency).max(axis=1, where=self._each > 0, initial=-math.inf))

    def order(self, evaluation: Evaluation) -> IntArray:
        """Candidates that reach the target by slots per pack, then the others by what they lack."""
        lacking = np.maximum(self.shortfalls(evaluation.efficiency), 0)
        limits = evaluation.limits
        return np.lexsort((*limits.T[::-1], -evaluation.harmonic_means, limits.sum(axis=1), lacking))

    def promising(self, evaluation: Evaluation, rows: list[Row]) -> list[Row]:
        """Limits that may reach the target by the bound on their packs, with fewer slots than those that do."""
        if not evaluation.found:
            return rows
        known = self.shortfalls(evaluation.efficiency)
        closest = max(0.0, float(known.min()))
        slots = int(evaluation.limits.sum(axis=1).min(where=known <= 0, initial=INT64_MAX))
        lacking = self.shortfalls(evaluation.bounds(rows))
        return [row for row, less in zip(rows, lacking.tolist(), strict=True) if less <= closest and sum(row) < slots]

    def proposals(self, row: Row, scale: float) -> list[Row]:
        """All neighbours."""
        return self._space.neighbours(row, scale)


def _fraction(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) <= 1:
        raise SearchError(f"{what} must be a fraction above 0 and up to 1, but is {value!r}; write 0.95 for 95 %.")
    return float(value)
