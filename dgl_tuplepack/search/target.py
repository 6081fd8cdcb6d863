"""The smallest limits that reach a wanted efficiency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import compress

import numpy as np

from dgl_tuplepack._checks import INT64_MAX
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.search.evaluation import Evaluation
from dgl_tuplepack.search.exploration import explore_to_reach
from dgl_tuplepack.search.grid import columns, combinations
from dgl_tuplepack.search.result import harmonic_means
from dgl_tuplepack.search.settings import Ranges
from dgl_tuplepack.search.space import Row, Space
from dgl_tuplepack.search.way import PLANS, REACH, Way
from dgl_tuplepack.sizes import FloatArray, IntArray

# Combinations of ranges are planned from few slots to many, this many at a time.
_WAVE = 256


@dataclass(frozen=True, kw_only=True)
class Target(Way):
    """Advise the fewest slots per pack whose efficiencies reach a target.

    With ranges, these are the fewest of all combinations; without, of limits that are tried as by "auto".
    """

    name = "target"
    # Lowest harmonic mean of the efficiencies, in (0, 1]; or component -> lowest efficiency.
    target: float | Mapping[str, float]
    # Component -> limits to try.
    ranges: Ranges | None = None
    # Without effect if there are ranges.
    reach: float = REACH
    plans: int = PLANS

    def smallest(self, space: Space, drop: bool) -> Row | None:
        """Return the smallest combination of the ranges."""
        return None if self.ranges is None else tuple(column[0] for column in columns(self.ranges, space))

    def search(self, evaluation: Evaluation, space: Space) -> None:
        """Explore the space, or plan combinations of the ranges."""
        if self.ranges is None:
            explore_to_reach(evaluation, space, self, self.reach, self.plans)
            tried = f"limits up to {self.reach:g} times what the largest graph needs; raise reach"
        else:
            rows = combinations(self.ranges, space)
            self._plan_until_reached(evaluation, rows)
            tried = f"{len(rows)} combinations; widen the ranges"
        best = int(self.order(evaluation)[0])
        if self._lacking(evaluation, evaluation.efficiency)[best] > 0:
            candidate = evaluation.candidate(list(evaluation.results)[best])
            each = self.target if isinstance(self.target, Mapping) else {"a harmonic mean of": self.target}
            wanted = ", ".join(f"{name} {value:g}" for name, value in each.items())
            reached = ", ".join(f"{name} {value:.4f}" for name, value in candidate.efficiency.items())
            raise SearchError(
                f"the target of {wanted} is out of reach: the best is {reached}, harmonic mean "
                f"{candidate.harmonic_mean:.4f}, at {candidate.limits!r} among {tried}, plan with another method or "
                "more effort, or lower the target."
            )

    def _plan_until_reached(self, evaluation: Evaluation, rows: list[Row]) -> None:
        """Plan limits, which come from few slots to many, until some reach the target; the smallest is among them."""
        possible = list(compress(rows, self._lacking(evaluation, evaluation.bounds(rows)) <= 0))
        for first in range(0, len(possible), _WAVE):
            evaluation.add(possible[first : first + _WAVE])
            if (self._lacking(evaluation, evaluation.efficiency) <= 0).any():
                return
        # Limits that cannot reach the target may still come closest to it.
        evaluation.add(rows)

    def _lacking(self, evaluation: Evaluation, efficiency: FloatArray) -> FloatArray:
        """Return how far rows of efficiencies ``[M, k]`` are below the target, ``[M]``; <= 0 if they reach it."""
        if not isinstance(self.target, Mapping):
            return self.target - harmonic_means(efficiency)
        least = np.array([self.target.get(name, 0.0) for name in evaluation.histogram.components])
        return np.asarray((least - efficiency).max(axis=1, where=least > 0, initial=-math.inf))

    def order(self, evaluation: Evaluation) -> IntArray:
        """Sort candidates that reach the target by slots per pack; then the others, the closest first."""
        lacking = np.maximum(self._lacking(evaluation, evaluation.efficiency), 0)
        return evaluation.sorted_by(lacking, evaluation.slots, -evaluation.harmonic_means)

    def may_improve(self, evaluation: Evaluation, rows: list[Row]) -> Iterable[bool]:
        """Return whether limits can reach the target with fewer slots than the candidates that do."""
        known = self._lacking(evaluation, evaluation.efficiency)
        closest = max(0.0, float(known.min()))
        slots = int(evaluation.slots.min(where=known <= 0, initial=INT64_MAX))
        lacking = self._lacking(evaluation, evaluation.bounds(rows)).tolist()
        return [less <= closest and sum(row) < slots for row, less in zip(rows, lacking, strict=True)]
