"""What all ways to search limits share: the interface, and the defaults of their settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import compress
from typing import Any, ClassVar

from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.search.evaluation import Evaluation, Objective
from dgl_tuplepack.search.settings import CHECKS, in_order
from dgl_tuplepack.search.space import Row, Space
from dgl_tuplepack.sizes import FloatArray, IntArray

# Defaults that several ways share: most candidates, and largest limits as a multiple of what the largest graph needs.
PLANS, REACH = 200, 3.0


@dataclass(frozen=True, kw_only=True)
class Way(ABC):
    """One way to search limits: its settings, and what it looks for.

    The fields are the arguments of `search_limits` that the way takes, checked and as plain data.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for name, value in self._given().items():
            object.__setattr__(self, name, CHECKS[name](value))

    def _given(self) -> dict[str, Any]:
        """Return the settings that are not None, by name."""
        settings = {name: getattr(self, name) for name in sorted(field.name for field in fields(self))}
        return {name: value for name, value in settings.items() if value is not None}

    @property
    def aim(self) -> dict[str, Any]:
        """Settings that are not None, by name, as plain data."""
        return self._given()

    def for_histogram(self, histogram: SizeHistogram) -> Way:
        """Return the way with settings in the order of the components of `histogram`; refuse settings for others."""
        by_component = {name: value for name, value in self._given().items() if isinstance(value, Mapping)}
        ordered = {name: in_order(name, value, histogram.components) for name, value in by_component.items()}
        return replace(self, **ordered)

    def settled(self, space: Space, cap: int | None) -> Way:
        """Return the way with settings that depend on the graphs, and on the cap on graphs of a pack."""
        return self

    def smallest(self, space: Space, drop: bool) -> Row | None:
        """Return limits beyond which graphs are oversize; None if all limits of the search hold every graph.

        Oversize graphs are left out before the search if `drop` is True, and are an error otherwise.
        """
        return None

    @abstractmethod
    def search(self, evaluation: Evaluation, space: Space) -> None:
        """Evaluate candidates, the one to advise among them; refuse aims that are out of reach."""

    @abstractmethod
    def order(self, evaluation: Evaluation) -> IntArray:
        """Return the indices of all candidates, the most promising first; the very first is the one to advise."""

    def promising(self, evaluation: Evaluation, space: Space, rows: list[Row]) -> list[Row]:
        """Return those of the limits `rows` that may be worth a plan, given the candidates evaluated so far."""
        return list(compress(rows, self.may_improve(evaluation, rows))) if evaluation.results else rows

    def may_improve(self, evaluation: Evaluation, rows: list[Row]) -> Iterable[bool]:
        """Return whether each of the limits `rows` can be better than the best candidate so far, by bounds."""
        return [True] * len(rows)

    def proposals(self, space: Space, row: Row, scale: float) -> list[Row]:
        """Return limits around `row`, some of them `scale` mean graphs away."""
        return space.neighbours(row, scale)

    def scores(self, evaluation: Evaluation) -> FloatArray:
        """Return the score of every candidate, float64 ``[M]``."""
        return evaluation.harmonic_means


@dataclass(frozen=True, kw_only=True)
class Scored(Way):
    """A way that advises the fewest slots per pack among the candidates whose score is close to the highest."""

    # Score of a candidate, larger being better; None: the harmonic mean of its efficiencies.
    objective: Objective | None = None
    # How far the score may stay below the highest, as a fraction of it.
    tolerance: float = 0.005

    @property
    def aim(self) -> dict[str, Any]:
        """Settings that are not None, by name; for an objective its name."""
        name = getattr(self.objective, "__name__", type(self.objective).__name__)
        return super().aim | ({} if self.objective is None else {"objective": name})

    def scores(self, evaluation: Evaluation) -> FloatArray:
        """Return the score of every candidate, float64 ``[M]``."""
        return evaluation.harmonic_means if self.objective is None else evaluation.values_of(self.objective)

    def least(self, scores: FloatArray) -> float:
        """Return the lowest score within the tolerance of the highest."""
        highest = float(scores.max())
        return highest - self.tolerance * abs(highest)

    def order(self, evaluation: Evaluation) -> IntArray:
        """Sort candidates within the tolerance first; then by slots, and by score from the highest."""
        scores = self.scores(evaluation)
        return evaluation.sorted_by(scores < self.least(scores), evaluation.slots, -scores)
