"""The smallest limits that reach a wanted efficiency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dgl_tuplepack._checks import INT64_MAX
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.search.evaluation import Evaluation, harmonic_means
from dgl_tuplepack.search.exploration import explore_to_reach
from dgl_tuplepack.search.space import Row, Space
from dgl_tuplepack.search.way import REACH, Way
from dgl_tuplepack.sizes import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Target(Way):
    """Advise the fewest slots per pack whose efficiencies reach a target, among limits tried as by `Smallest`."""

    name = "target"
    # Lowest harmonic mean of the efficiencies, in (0, 1]; or component -> lowest efficiency.
    target: float | Mapping[str, float]

    def search(self, evaluation: Evaluation, space: Space) -> None:
        """Explore the space."""
        explore_to_reach(evaluation, space, self)
        best = int(self.order(evaluation)[0])
        if self._lacking(evaluation, evaluation.efficiency)[best] > 0:
            candidate = evaluation.candidate(list(evaluation.results)[best])
            each = self.target if isinstance(self.target, Mapping) else {"a harmonic mean of": self.target}
            wanted = ", ".join(f"{name} {value:g}" for name, value in each.items())
            reached = ", ".join(f"{name} {value:.4f}" for name, value in candidate.efficiency.items())
            raise SearchError(
                f"the target of {wanted} is out of reach: the best is {reached}, harmonic mean "
                f"{candidate.harmonic_mean:.4f}, at {candidate.limits!r} among limits up to {REACH:g} times what the "
                "largest graph needs; lower the target, or ask for a number of graphs in a batch or a budget."
            )

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
