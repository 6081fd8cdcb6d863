"""The base class of all search strategies, the checks of their settings, and the exploration of limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import compress
from typing import Any, ClassVar

from dgl_tuplepack._core.checks import real_number, whole_number
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import matching_name
from dgl_tuplepack.planning.search.evaluation import Evaluation
from dgl_tuplepack.planning.search.space import Point, Space
from dgl_tuplepack.planning.sizes import IntArray

# With this value of `packs_per_batch`, the search chooses the number of packs.
AUTO = "auto"
# Fractions of all plans that `explore` spends on multiples of the mean graph: first on the whole range, then below the
# best multiple.
_SPREAD, _CLOSER = 0.35, 0.25
# Each round of `_refine` may make this fraction of all plans, but at least _FEWEST_IN_ROUND plans.
_ROUND = 0.125
_FEWEST_IN_ROUND = 8


@dataclass(frozen=True, kw_only=True)
class Strategy(ABC):
    """A search strategy: its settings, and which limits it prefers.

    The fields are the arguments of `search_limits` that the strategy accepts, checked and converted to plain data.
    """

    name: ClassVar[str]
    # Maximum number of candidates.
    plans: ClassVar[int] = 200

    def __post_init__(self) -> None:
        for name, value in self.aim.items():
            object.__setattr__(self, name, CHECKS[name](value))

    @property
    def aim(self) -> dict[str, Any]:
        """The settings that are not None, by name, as plain data."""
        settings = {name: getattr(self, name) for name in sorted(field.name for field in fields(self))}
        return {name: value for name, value in settings.items() if value is not None}

    @property
    def packs(self) -> int:
        """Number of packs in a batch."""
        return 1

    def for_histogram(self, histogram: SizeHistogram) -> Strategy:
        """Return the strategy, whose dict settings now have the names in `histogram.components` as keys, in that order.

        Raise SearchError if a key is the name of no component.
        """
        by_component = {name: value for name, value in self.aim.items() if isinstance(value, Mapping)}
        ordered = {name: in_order(name, value, histogram.components) for name, value in by_component.items()}
        return replace(self, **ordered)

    def for_space(self, space: Space, cap: int | None) -> Strategy:
        """Return the strategy, with a value chosen for each setting that is "auto"."""
        return self

    def largest_allowed(self, space: Space) -> Point | None:
        """Return the limits that a graph must exceed to be dropped; None if no graph may be dropped."""
        return None

    @abstractmethod
    def search(self, evaluation: Evaluation, space: Space) -> None:
        """Evaluate candidates, including the one to advise; raise SearchError if the aim is out of reach."""

    @abstractmethod
    def order(self, evaluation: Evaluation) -> IntArray:
        """Return the indices of all candidates, the most promising first; the first one is advised."""

    def promising(self, evaluation: Evaluation, space: Space, points: list[Point]) -> list[Point]:
        """Return the limits among `points` that may be worth a plan, given the candidates evaluated so far."""
        return list(compress(points, self.may_improve(evaluation, points))) if evaluation.results else points

    def may_improve(self, evaluation: Evaluation, points: list[Point]) -> Iterable[bool]:
        """Return, for each of `points`, whether it can beat the best candidate so far, according to bounds."""
        return [True] * len(points)

    def proposals(self, space: Space, point: Point, scale: float) -> list[Point]:
        """Return limits near `point`; some of them differ from it by about `scale` mean graphs."""
        return space.neighbours(point, scale)


def in_order(name: str, values: Mapping[str, float], components: Sequence[str]) -> dict[str, float]:
    """Return the dict `values` with the names of `components` as keys, in the order of `components`.

    `name` is the name of the setting. A key of `values` may name an edge type by its relation only. Raise SearchError
    if a key is the name of no component, or if a component has no cost; in other settings, components may be missing.
    """
    # Name of each component -> its name in `values`, or None.
    names = {component: matching_name(component, values) for component in components}
    unknown = [given for given in values if given not in names.values()]
    missing = [component for component, given in names.items() if given is None]
    wrong = ""
    if unknown:
        wrong = f"there is no component {' and no '.join(map(repr, unknown)):.200}"
    elif missing and name == "cost":
        wrong = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing"
    if wrong:
        raise SearchError(
            f"{name}s need names of components as keys, but {wrong}; the components are {', '.join(names)}."
        )
    return {component: values[given] for component, given in names.items() if given is not None}


def _by_component(name: str, given: object, check: Callable[[str, object], float]) -> dict[str, float]:
    """Return `given` as a dict component -> checked number; raise SearchError if `given` is no mapping, or empty."""
    if not isinstance(given, Mapping) or not given:
        raise SearchError(
            f"{name}s must be a dict from component to number, but are {given!r:.200}; write {{'nodes': ...}}, with "
            "the names of all components."
        )
    return {str(component): check(f"the {name} of {component}", value) for component, value in given.items()}


def _target(target: object) -> float | dict[str, float]:
    def fraction(what: str, value: object) -> float:
        return real_number(what, value, above=0, most=1, hint="write 0.95 for 95 %.", error=SearchError)

    return _by_component("target", target, fraction) if isinstance(target, Mapping) else fraction("the target", target)


def _cost(costs: object) -> dict[str, float]:
    def cost(what: str, value: object) -> float:
        return real_number(what, value, least=0, hint="give the bytes of one slot, for example.", error=SearchError)

    each = _by_component("cost", costs, cost)
    if not any(each.values()):
        raise SearchError("at least one cost must be above 0, but all are 0, so everything fits in one pack.")
    return each


def _budget(value: object) -> float:
    hint = "give slots, or bytes together with costs (cost=, --cost)."
    return real_number("the budget", value, above=0, hint=hint, error=SearchError)


def _packs_per_batch(value: Any) -> int | str:
    if isinstance(value, str):
        if value != AUTO:
            raise SearchError(f"packs_per_batch must be a whole number or {AUTO!r}, but is {value!r:.100}.")
        return value
    return whole_number("packs_per_batch", value, 1, 2**31, error=SearchError)


# Setting -> function that returns the setting as plain data, and raises SearchError for a wrong value.
CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "target": _target,
    "graphs_per_batch": lambda value: whole_number("graphs_per_batch", value, 1, error=SearchError),
    "packs_per_batch": _packs_per_batch,
    "budget": _budget,
    "cost": _cost,
}


def explore(
    evaluation: Evaluation, space: Space, strategy: Strategy, first: float, last: float, starts: tuple[Point, ...]
) -> None:
    """Evaluate limits that hold `first` to `last` mean graphs, then limits near the most promising candidates.

    The promising limits among `starts` come first. Candidates are chosen in groups, and a group is planned only when it
    is complete, so the result does not depend on the order in which the threads finish their plans.
    """
    plans = evaluation.plans
    spread = max(2, int(_SPREAD * plans))
    evaluation.add(strategy.promising(evaluation, space, [*starts, *space.ray(first, last, spread)])[:plans])
    points = list(evaluation.results)
    reached = space.scale_of(points[strategy.order(evaluation)[0]])
    closer = strategy.promising(
        evaluation, space, space.ray(min(first, reached), reached, max(2, int(_CLOSER * plans)))
    )
    evaluation.add(closer, most=plans - len(evaluation.results))
    _refine(evaluation, space, strategy, (last - first) / spread)


def _refine(evaluation: Evaluation, space: Space, strategy: Strategy, scale: float) -> None:
    """Evaluate limits near the best candidates: at first about `scale` mean graphs away, then closer and closer."""
    while len(evaluation.results) < evaluation.plans:
        # Maximum number of new candidates in this round.
        room = min(max(_FEWEST_IN_ROUND, int(_ROUND * evaluation.plans)), evaluation.plans - len(evaluation.results))
        points = list(evaluation.results)
        fresh: dict[Point, None] = {}
        for number in strategy.order(evaluation).tolist():
            leader = points[number]
            # near: neighbours of the leader, and its limits lowered to the largest content of its packs.
            near = [*strategy.proposals(space, leader, scale), space.rounded(evaluation.results[leader][1:])]
            unknown = [point for point in near if point not in evaluation.results and point not in fresh]
            fresh.update(dict.fromkeys(strategy.promising(evaluation, space, unknown)))
            if len(fresh) >= room:
                break
        evaluation.add(list(fresh), most=room)
        if not fresh and scale <= space.finest:
            break
        scale = max(scale / 2, space.finest)
