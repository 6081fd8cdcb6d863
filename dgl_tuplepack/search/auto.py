"""The fewest slots whose packs are as full as they get, found without ranges."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, zip_longest
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.search.evaluation import Evaluation
from dgl_tuplepack.search.exploration import explore
from dgl_tuplepack.search.result import Candidate
from dgl_tuplepack.search.space import Row, Space
from dgl_tuplepack.sizes import IntArray

# Sizes are nearly equal where the largest graph needs fewer mean graphs than this; packs then hold several at least.
_NEARLY_EQUAL, _SEVERAL = 1.5, 8

Objective = Callable[[Candidate], float]


def search_auto(evaluation: Evaluation, space: Space, reach: float, plans: int, scoring: Scoring) -> int:
    """Scale limits along the mean size, up to `reach` times what the largest graph needs; then refine around the best.

    Limits smaller than that along the mean size, but larger than the largest graph in some component, join in.

    Notes
    -----
    Source: Krell et al. 2022 (arXiv 2209.06354), section 2.5, names scaling all limits together, then tuning each,
    and leaves a derivative-free search as future work.
    """
    if scoring.objective is None:
        space = _with_several_graphs(space, evaluation.cap)
    rule = Fullest(space, reach * space.scale, scoring)
    lower = space.ray(space.scale / reach, space.scale, max(2, plans // 25))
    explore(evaluation, space, space.scale, reach * space.scale, plans, rule, (space.rounded(space.mean), *lower))
    return int(rule.order(evaluation)[0])


def _with_several_graphs(space: Space, cap: int | None) -> Space:
    """Where sizes are nearly equal, the space from several mean graphs upwards, as far as graphs and cap allow it.

    Packs of a single graph would be as full as any there, and spend a reserved node on each.
    """
    if space.scale >= _NEARLY_EQUAL:
        return space
    several = _SEVERAL if cap is None else min(_SEVERAL, cap)
    return replace(space, smallest=space.rounded(several * m for m in space.mean))


class Scoring:
    """Scores of candidates, each found once: harmonic means, or the values of an objective."""

    def __init__(self, objective: Objective | None, tolerance: float) -> None:
        self.objective, self.tolerance = objective, tolerance
        self._known: dict[Row, float] = {}

    def __call__(self, evaluation: Evaluation) -> NDArray[np.float64]:
        """Score of every candidate known so far, in the order they came, float64 ``[M]``."""
        if self.objective is None:
            return evaluation.harmonic_means
        for row in evaluation.found:
            if row not in self._known:
                self._known[row] = _value(self.objective, evaluation.candidate(row))
        return np.array([self._known[row] for row in evaluation.found], dtype=np.float64)

    def least(self, scores: NDArray[np.float64]) -> float:
        """Score that is within the tolerance of the highest, as a part of it."""
        highest = float(scores.max())
        return highest - self.tolerance * abs(highest)

    def fewest_slots(self, evaluation: Evaluation) -> IntArray:
        """Candidates by slots per pack, those within the tolerance first; of equals the highest score, then limits."""
        scores, limits = self(evaluation), evaluation.limits
        return np.lexsort((*limits.T[::-1], -scores, limits.sum(axis=1), scores < self.least(scores)))


class Fullest:
    """The fewest slots per pack among the candidates whose score is close to the highest."""

    def __init__(self, space: Space, scale: float, scoring: Scoring) -> None:
        self._space, self._scoring = space, scoring
        self._most = space.rounded(scale * m for m in space.mean)

    def order(self, evaluation: Evaluation) -> IntArray:
        """In turn the fewest slots within the tolerance, and the highest scores."""
        smallest = self._scoring.fewest_slots(evaluation)
        highest = np.lexsort((evaluation.limits.sum(axis=1), -self._scoring(evaluation)))
        both = chain.from_iterable(zip_longest(smallest.tolist(), highest.tolist()))
        return np.array(list(dict.fromkeys(both)), dtype=np.int64)

    def promising(self, evaluation: Evaluation, rows: list[Row]) -> list[Row]:
        """Limits that are not too large, and that may come within the tolerance by the bound on their packs."""
        inside = [row for row in rows if all(v <= m for v, m in zip(row, self._most, strict=True))]
        if self._scoring.objective is not None or not evaluation.found:
            return inside
        least = self._scoring.least(evaluation.harmonic_means)
        bounds = evaluation.bounds_on_harmonic_means(inside).tolist()
        return [row for row, bound in zip(inside, bounds, strict=True) if bound >= least]

    def proposals(self, row: Row, scale: float) -> list[Row]:
        """All neighbours."""
        return self._space.neighbours(row, scale)


def _value(objective: Objective, candidate: Candidate) -> float:
    value = objective(candidate)
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise SearchError(
            f"the objective must return a finite number, larger being better, but returned {value!r} for "
            f"{candidate.limits!r}."
        )
    return float(value)
