"""The smallest limits that reach a wanted efficiency."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._checks import INT64_MAX, real_number
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.search.evaluation import Evaluation
from dgl_tuplepack.search.exploration import explore_to_reach
from dgl_tuplepack.search.grid import Ranges, checked_ranges, columns, combinations
from dgl_tuplepack.search.result import harmonic_means
from dgl_tuplepack.search.space import Row, Space
from dgl_tuplepack.search.way import PLANS, REACH, Way, by_component, checked_plans, checked_reach, in_order
from dgl_tuplepack.sizes import IntArray

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

    def __post_init__(self) -> None:
        if isinstance(self.target, Mapping):
            self._keep(target=by_component("targets", self.target, _fraction))
        else:
            self._keep(target=_fraction("", self.target))
        if self.ranges is not None:
            self._keep(ranges=checked_ranges(self.ranges))
        self._keep(reach=checked_reach(self.reach), plans=checked_plans(self.plans))

    def for_histogram(self, histogram: SizeHistogram) -> Target:
        """Return the way with targets and ranges in the order of the components."""
        target, ranges, components = self.target, self.ranges, histogram.components
        if isinstance(target, Mapping):
            target = in_order("targets", target, components, every=False)
        if ranges is not None:
            ranges = in_order("ranges", ranges, components, every=True)
        return replace(self, target=target, ranges=ranges)

    def smallest(self, space: Space, drop: bool) -> Row | None:
        """Return the smallest combination of the ranges."""
        return None if self.ranges is None else tuple(column[0] for column in columns(self.ranges, space))

    def search(self, evaluation: Evaluation, space: Space) -> int:
        """Explore the space, or plan combinations of the ranges; return the index of the candidate to advise."""
        if self.ranges is None:
            explore_to_reach(evaluation, space, self, self.reach, self.plans)
            tried = f"limits up to {self.reach:g} times what the largest graph needs; raise reach"
        else:
            rows = combinations(self.ranges, space)
            self._plan_until_reached(evaluation, rows)
            tried = f"{len(rows)} combinations; widen the ranges"
        best = int(self.order(evaluation)[0])
        if self._lacking(evaluation, evaluation.efficiency)[best] > 0:
            candidate = evaluation.candidate(list(evaluation.found)[best])
            each = self.target if isinstance(self.target, Mapping) else {"a harmonic mean of": self.target}
            wanted = ", ".join(f"{name} {value:g}" for name, value in each.items())
            reached = ", ".join(f"{name} {value:.4f}" for name, value in candidate.efficiency.items())
            raise SearchError(
                f"the target of {wanted} is out of reach: the best is {reached}, harmonic mean "
                f"{candidate.harmonic_mean:.4f}, at {candidate.limits!r} among {tried}, plan with another method or "
                "more effort, or lower the target."
            )
        return best

    def _plan_until_reached(self, evaluation: Evaluation, rows: list[Row]) -> None:
        """Plan limits, which come from few slots to many, until some reach the target; the smallest is among them."""
        lacking = self._lacking(evaluation, evaluation.bounds(rows)).tolist()
        possible = [row for row, less in zip(rows, lacking, strict=True) if less <= 0]
        for first in range(0, len(possible), _WAVE):
            evaluation.add(possible[first : first + _WAVE])
            if (self._lacking(evaluation, evaluation.efficiency) <= 0).any():
                return
        # Limits that cannot reach the target may still come closest to it.
        evaluation.add(rows)

    def _lacking(self, evaluation: Evaluation, efficiency: NDArray[np.float64]) -> NDArray[np.float64]:
        """How far rows of efficiencies ``[M, k]`` are below the target, float64 ``[M]``; <= 0 if they reach it."""
        if not isinstance(self.target, Mapping):
            return self.target - harmonic_means(efficiency)
        least = np.array([self.target.get(name, 0.0) for name in evaluation.histogram.components])
        return np.asarray((least - efficiency).max(axis=1, where=least > 0, initial=-math.inf))

    def order(self, evaluation: Evaluation) -> IntArray:
        """Candidates that reach the target, by slots per pack; then the others, the closest first."""
        lacking = np.maximum(self._lacking(evaluation, evaluation.efficiency), 0)
        limits = evaluation.limits
        return np.lexsort((*limits.T[::-1], -evaluation.harmonic_means, limits.sum(axis=1), lacking))

    def promising(self, evaluation: Evaluation, space: Space, rows: list[Row]) -> list[Row]:
        """Limits that can reach the target, by the bound on their packs, with fewer slots than those that do."""
        if not evaluation.found:
            return rows
        known = self._lacking(evaluation, evaluation.efficiency)
        closest = max(0.0, float(known.min()))
        slots = int(evaluation.limits.sum(axis=1).min(where=known <= 0, initial=INT64_MAX))
        lacking = self._lacking(evaluation, evaluation.bounds(rows))
        return [row for row, less in zip(rows, lacking.tolist(), strict=True) if less <= closest and sum(row) < slots]


def _fraction(component: str, value: object) -> float:
    what = f"the target of {component}" if component else "the target"
    return real_number(what, value, above=0, most=1, hint="write 0.95 for 95 %.", error=SearchError)
