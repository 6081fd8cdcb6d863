"""What all ways to search limits share: the interface, default settings, and settings that are given by component."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._checks import real_number, whole_number
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import matching_name
from dgl_tuplepack.search.evaluation import Evaluation, Objective
from dgl_tuplepack.search.space import Row, Space
from dgl_tuplepack.sizes import IntArray

# Defaults that several ways share: most candidates, and largest limits as a multiple of what the largest graph needs.
PLANS, REACH = 200, 3.0

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Way(ABC):
    """One way to search limits: its settings, and what it looks for.

    The fields are the arguments of `search_limits` that the way takes, checked and as plain data.
    """

    name: ClassVar[str]

    def _keep(self, **checked: Any) -> None:
        """Replace settings by their checked form."""
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def aim(self) -> dict[str, Any]:
        """Settings that are not None, by name, as plain data."""
        settings = {name: getattr(self, name) for name in sorted(field.name for field in fields(self))}
        return {name: value for name, value in settings.items() if value is not None}

    def for_histogram(self, histogram: SizeHistogram) -> Way:
        """Return the way with settings in the order of the components of `histogram`; refuse settings for others."""
        return self

    def smallest(self, space: Space, drop: bool) -> Row | None:
        """Return limits beyond which graphs are oversize; None if all limits of the search hold every graph.

        Oversize graphs are left out before the search if `drop` is True, and are an error otherwise.
        """
        return None

    @abstractmethod
    def search(self, evaluation: Evaluation, space: Space) -> int:
        """Evaluate candidates, and return the index of the one to advise; refuse aims that are out of reach."""

    @abstractmethod
    def order(self, evaluation: Evaluation) -> IntArray:
        """Return the indices of all candidates, the most promising first; the very first is the one to advise."""

    def promising(self, evaluation: Evaluation, space: Space, rows: list[Row]) -> list[Row]:
        """Return those of the limits `rows` that may be worth a plan, given the candidates evaluated so far."""
        return rows

    def proposals(self, space: Space, row: Row, scale: float) -> list[Row]:
        """Return limits around `row`, some of them `scale` mean graphs away."""
        return space.neighbours(row, scale)

    def scores(self, evaluation: Evaluation) -> NDArray[np.float64]:
        """Score of every candidate, float64 ``[M]``."""
        return evaluation.harmonic_means


@dataclass(frozen=True, kw_only=True)
class Scored(Way):
    """A way that advises the fewest slots per pack among the candidates whose score is close to the highest."""

    # Score of a candidate, larger being better; None: the harmonic mean of its efficiencies.
    objective: Objective | None = None
    # How far the score may stay below the highest, as a fraction of it.
    tolerance: float = 0.005

    def __post_init__(self) -> None:
        if self.objective is not None and not callable(self.objective):
            raise SearchError(
                f"the objective must be a function of a Candidate, but is {self.objective!r:.100}; write "
                "objective=lambda candidate: -candidate.packs, say."
            )
        hint = "0.005 accepts scores within 0.5 % of the highest."
        self._keep(tolerance=real_number("tolerance", self.tolerance, least=0, below=1, hint=hint, error=SearchError))

    @property
    def aim(self) -> dict[str, Any]:
        """Settings that are not None, by name; of an objective its name."""
        name = getattr(self.objective, "__name__", type(self.objective).__name__)
        return super().aim | ({} if self.objective is None else {"objective": name})

    def scores(self, evaluation: Evaluation) -> NDArray[np.float64]:
        """Score of every candidate, float64 ``[M]``."""
        return evaluation.harmonic_means if self.objective is None else evaluation.values_of(self.objective)

    def least(self, scores: NDArray[np.float64]) -> float:
        """Lowest score within the tolerance of the highest."""
        highest = float(scores.max())
        return highest - self.tolerance * abs(highest)

    def order(self, evaluation: Evaluation) -> IntArray:
        """Candidates within the tolerance first; then by slots, score (descending) and limits."""
        scores, limits = self.scores(evaluation), evaluation.limits
        return np.lexsort((*limits.T[::-1], -scores, limits.sum(axis=1), scores < self.least(scores)))


def checked_plans(plans: object) -> int:
    """Return the number of plans; refuse anything but 1..1,000,000."""
    return whole_number("plans", plans, 1, 1_000_000, SearchError)


def checked_reach(reach: object) -> float:
    """Return the reach; refuse numbers below 1."""
    return real_number("reach", reach, least=1, hint="3 is the default.", error=SearchError)


def by_component(what: str, given: object, check: Callable[[str, Any], Value]) -> dict[str, Value]:
    """Return settings that are given by component, each checked; refuse what is not a mapping, or is empty."""
    if not isinstance(given, Mapping) or not given:
        raise SearchError(
            f"{what} are given for each component by its name, but they are {given!r:.200}; write {{'nodes': ...}}, "
            "with the names of all components."
        )
    return {str(name): check(str(name), value) for name, value in given.items()}


def in_order(what: str, named: Mapping[str, Value], components: Iterable[str], *, every: bool) -> dict[str, Value]:
    """Return settings by component under the names, and in the order, of `components`.

    Edge types may go by their relation names. Names of other components are refused, and missing ones if `every`
    component is needed.
    """
    names = {component: matching_name(component, named) for component in components}
    unknown = [name for name in named if name not in names.values()]
    missing = [component for component, name in names.items() if name is None]
    wrong = ""
    if unknown:
        wrong = f"there is no {' and no '.join(map(repr, unknown)):.200}"
    elif missing and every:
        wrong = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing"
    if wrong:
        raise SearchError(
            f"{what} are given for each component by its name, but {wrong}; the components are {', '.join(names)}."
        )
    return {component: named[name] for component, name in names.items() if name is not None}
