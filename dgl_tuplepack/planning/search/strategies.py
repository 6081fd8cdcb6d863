"""The search strategies: which limits each of them tries, and which it prefers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import compress
from typing import Any, ClassVar

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX, real_number, whole_number
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import matching_name
from dgl_tuplepack.planning.search.evaluation import Evaluation, Point, Space, harmonic_means
from dgl_tuplepack.planning.sizes import FloatArray, IntArray, components_of_kind

# With this value of `packs_per_batch`, the search chooses the number of packs.
AUTO = "auto"
# The mean number of graphs in a batch may differ from `graphs_per_batch` by this fraction.
TOLERANCE = 0.05
# "smallest" and "target" try up to _REACH times the smallest multiple of the mean size that holds every graph.
_REACH = 3.0
# The harmonic mean of the advised limits of "smallest" may be this fraction below the highest.
_BELOW_HIGHEST = 0.005
# If `Space.scale` is below _NEARLY_EQUAL, the limits of "smallest" must have room for _SEVERAL graphs of mean size.
_NEARLY_EQUAL, _SEVERAL = 1.5, 8
# "graphs_per_batch" tries room for _LEAST_ROOM to _MOST_ROOM times as many graphs of mean size as a pack should hold.
_LEAST_ROOM, _MOST_ROOM = 0.98, 2.0
# The smallest multiple of the mean size that "budget" tries spends this fraction of the budget.
_LEAST_SPENT = 0.8
# Number of components in which "budget" raises each limits near a leader as far as the budget allows, one at a time.
_FILLED = 3
# Fractions of all plans for multiples of the mean graph: first on the whole range, then below the best multiple.
_SPREAD, _CLOSER = 0.35, 0.25
# Each round of `_refine` may make this fraction of all plans, but at least _FEWEST_IN_ROUND plans.
_ROUND, _FEWEST_IN_ROUND = 0.125, 8
# A round looks at no further leader after this many numbers (limits near leaders x components).
_SEEN_IN_ROUND = 400_000


@dataclass(frozen=True, kw_only=True)
class Strategy(ABC):
    """A search strategy; its fields are the arguments of `search_limits` that it accepts, as plain data."""

    name: ClassVar[str]
    # Maximum number of candidates.
    plans: ClassVar[int] = 200

    def __post_init__(self) -> None:
        for name, value in self.aim.items():
            object.__setattr__(self, name, _CHECKS[name](value))

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
        """Return the strategy with dict settings in the order, and under the names, of the histogram's components."""
        by_component = {name: value for name, value in self.aim.items() if isinstance(value, Mapping)}
        return replace(self, **{name: _in_order(name, v, histogram.components) for name, v in by_component.items()})

    def for_space(self, space: Space, cap: int | None) -> Strategy:
        """Return the strategy, with a value chosen for each setting that is "auto"."""
        return self

    def largest_allowed(self, space: Space) -> Point | None:
        """Return the limits that a graph must exceed to be dropped; None if no graph may be dropped."""
        return None

    @abstractmethod
    def search(self, evaluation: Evaluation) -> None:
        """Evaluate candidates, including the one to advise; raise SearchError if the aim is out of reach."""

    @abstractmethod
    def order(self, evaluation: Evaluation) -> IntArray:
        """Return the indices of all candidates, the most promising first; the first one is advised."""

    def promising(self, evaluation: Evaluation, points: list[Point]) -> list[Point]:
        """Return the limits among `points` that may be worth a plan, given the candidates evaluated so far."""
        return list(compress(points, self.may_improve(evaluation, points))) if evaluation.results else points

    def may_improve(self, evaluation: Evaluation, points: list[Point]) -> Iterable[bool]:
        """Return, for each of `points`, whether it can beat the best candidate so far, according to bounds."""
        return [True] * len(points)

    def proposals(self, space: Space, point: Point, scale: float) -> list[Point]:
        """Return limits near `point`; some of them differ from it by about `scale` mean graphs."""
        return space.neighbours(point, scale)


@dataclass(frozen=True, kw_only=True)
class Smallest(Strategy):
    """Advise the limits with the fewest slots per pack, among limits with nearly the highest harmonic mean.

    Source: Krell et al. 2022 (arXiv 2209.06354), section 2.5, which scales all limits together, then tunes each.
    """

    name = "smallest"

    def search(self, evaluation: Evaluation) -> None:
        """Explore the space; if sizes are nearly equal, only limits of several graphs, to share reserved nodes."""
        space = evaluation.space
        if space.scale < _NEARLY_EQUAL:
            several = _SEVERAL if evaluation.cap is None else min(_SEVERAL, evaluation.cap)
            evaluation.space = replace(space, smallest=space.rounded(several * mean for mean in space.mean))
        _explore_multiples(evaluation, self)

    def order(self, evaluation: Evaluation) -> IntArray:
        """Alternate between two orders: by slots, candidates within the tolerance first; and by harmonic mean."""
        means, slots = evaluation.harmonic_means, evaluation.slots
        smallest = evaluation.sorted_by(means < _least(means), slots, -means)
        highest = np.lexsort((slots, -means))
        both = np.stack([smallest, highest], axis=1).ravel().tolist()
        return np.array(list(dict.fromkeys(both)), dtype=np.int64)

    def promising(self, evaluation: Evaluation, points: list[Point]) -> list[Point]:
        """Return the limits among `points` that are not too large (see `_REACH`) and may be worth a plan."""
        space = evaluation.space
        most = space.rounded(_REACH * space.scale * mean for mean in space.mean)
        inside = [point for point in points if all(limit <= top for limit, top in zip(point, most, strict=True))]
        return super().promising(evaluation, inside)

    def may_improve(self, evaluation: Evaluation, points: list[Point]) -> Iterable[bool]:
        """Return whether harmonic means can be within the tolerance."""
        return harmonic_means(evaluation.bounds(points)) >= _least(evaluation.harmonic_means)


def _least(means: FloatArray) -> float:
    """Return the lowest harmonic mean that is within the tolerance of the highest harmonic mean."""
    highest = float(means.max())
    return highest - _BELOW_HIGHEST * highest


@dataclass(frozen=True, kw_only=True)
class Target(Strategy):
    """Advise the limits with the fewest slots per pack, among limits whose efficiencies reach a target."""

    name = "target"
    # Lowest harmonic mean of the efficiencies, in (0, 1]; or component -> lowest efficiency.
    target: float | Mapping[str, float]

    def search(self, evaluation: Evaluation) -> None:
        """Explore the space; raise SearchError if no candidate reaches the target."""
        _explore_multiples(evaluation, self)
        best = int(self.order(evaluation)[0])
        if self._lacking(evaluation, evaluation.efficiency)[best] > 0:
            candidate = evaluation.candidate(list(evaluation.results)[best])
            each = self.target if isinstance(self.target, Mapping) else {"a harmonic mean of": self.target}
            target = ", ".join(f"{name} {value:g}" for name, value in each.items())
            reached = ", ".join(f"{name} {value:.4f}" for name, value in candidate.efficiency.items())
            raise SearchError(
                f"the target of {target} is out of reach: the best is {reached}, harmonic mean "
                f"{candidate.harmonic_mean:.4f}, at {candidate.limits!r} among limits up to {_REACH:g} times what the "
                "largest graph needs; lower the target, or give graphs_per_batch or a budget instead."
            )

    def _lacking(self, evaluation: Evaluation, efficiency: FloatArray) -> FloatArray:
        """Return how far efficiencies ``[M, k]`` are below the target, ``[M]``; <= 0 if they reach it."""
        if not isinstance(self.target, Mapping):
            return self.target - harmonic_means(efficiency)
        least = np.array([self.target.get(name, 0.0) for name in evaluation.histogram.components])
        return np.asarray((least - efficiency).max(axis=1, where=least > 0, initial=-math.inf))

    def order(self, evaluation: Evaluation) -> IntArray:
        """Sort candidates that reach the target by slots per pack; then the others, the closest to the target first."""
        lacking = np.maximum(self._lacking(evaluation, evaluation.efficiency), 0)
        return evaluation.sorted_by(lacking, evaluation.slots, -evaluation.harmonic_means)

    def may_improve(self, evaluation: Evaluation, points: list[Point]) -> Iterable[bool]:
        """Return whether limits can reach the target with fewer slots than the best candidate, or get as close."""
        lacking_so_far = self._lacking(evaluation, evaluation.efficiency)
        closest = max(0.0, float(lacking_so_far.min()))
        slots = int(evaluation.slots.min(where=lacking_so_far <= 0, initial=INT64_MAX))
        lacking = self._lacking(evaluation, evaluation.bounds(points)).tolist()
        return [less <= closest and sum(point) < slots for point, less in zip(points, lacking, strict=True)]


@dataclass(frozen=True, kw_only=True)
class GraphsPerBatch(Strategy):
    """Advise the limits with the fullest packs among limits whose batches hold about `graphs_per_batch` graphs."""

    name = "graphs_per_batch"
    graphs_per_batch: int
    # Number of packs in a batch; AUTO: `for_space` chooses it.
    packs_per_batch: int | str = 1

    def for_histogram(self, histogram: SizeHistogram) -> GraphsPerBatch:
        """Return the strategy; raise SearchError if the histogram has fewer than `graphs_per_batch` graphs."""
        whole_number("graphs_per_batch", self.graphs_per_batch, 1, histogram.num_graphs, SearchError)
        return self

    def for_space(self, space: Space, cap: int | None) -> GraphsPerBatch:
        """Choose the number of packs in a batch if it is "auto": with one, some graphs would never meet."""
        if self.packs_per_batch != AUTO:
            return self
        number, cap = self.graphs_per_batch, cap or space.num_graphs
        held = min(space.graphs_in(space.rounded(space.smallest)), cap)
        several = 2 * held <= number < space.num_graphs
        return replace(self, packs_per_batch=max(1 + several, -(-number // cap)))

    @property
    def packs(self) -> int:
        """Number of packs in a batch; 1 until `for_space` chooses it."""
        return 1 if self.packs_per_batch == AUTO else int(self.packs_per_batch)

    def largest_allowed(self, space: Space) -> Point:
        """Return limits for as many graphs of mean size as a pack should hold."""
        return space.rounded_down(self.graphs_per_batch / self.packs * mean for mean in space.mean)

    def search(self, evaluation: Evaluation) -> None:
        """Explore limits that hold about as many graphs of mean size as a pack should hold."""
        number, cap = self.graphs_per_batch / self.packs, evaluation.cap
        batches = f" in {self.packs} packs" if self.packs > 1 else ""
        if cap is not None and cap < (1 - TOLERANCE) * number:
            raise SearchError(
                f"graphs_per_batch={self.graphs_per_batch}{batches} is out of reach with at most {cap} graphs in a "
                f"pack; raise graphs= to {math.ceil(number)} or more, leave it out, or lower graphs_per_batch."
            )
        smallest = evaluation.space.rounded(evaluation.space.smallest)
        _explore(evaluation, self, _LEAST_ROOM * number, _MOST_ROOM * number, (smallest,))
        candidate = evaluation.candidate(smallest)
        # With fewer batches than this, even the batches of the smallest limits hold too many graphs.
        fewest = evaluation.histogram.num_graphs // ((1 + TOLERANCE) * self.graphs_per_batch)
        if -(-candidate.packs // self.packs) < fewest:
            raise SearchError(
                f"graphs_per_batch={self.graphs_per_batch}{batches} is out of reach: the smallest limits that hold "
                f"every graph, {candidate.limits!r}, hold {candidate.graphs_per_pack * self.packs:.1f} graphs on "
                "average; use that number, drop the largest graphs (oversize='drop', --oversize drop), set a cap "
                "(graphs=, `dgl-tuplepack limits --max-graphs`), or search several shapes (shapes=2, "
                "`dgl-tuplepack limits --shapes 2`)."
            )

    def order(self, evaluation: Evaluation) -> IntArray:
        """Sort candidates by distance beyond the tolerance, then by harmonic mean, then by slots per pack."""
        beyond = np.maximum(self._off(evaluation), TOLERANCE)
        return evaluation.sorted_by(beyond, -evaluation.harmonic_means, evaluation.slots)

    def may_improve(self, evaluation: Evaluation, points: list[Point]) -> Iterable[bool]:
        """Return whether packs can be as full as the packs of the best candidate."""
        first = self.order(evaluation)[0]
        if self._off(evaluation)[first] > TOLERANCE:
            return super().may_improve(evaluation, points)
        best = float(evaluation.harmonic_means[first])
        return harmonic_means(evaluation.bounds(points)) >= best

    def _off(self, evaluation: Evaluation) -> FloatArray:
        """Return how far each candidate's graphs per batch are from `graphs_per_batch`, as a fraction, ``[M]``."""
        graphs = evaluation.histogram.num_graphs / -(-evaluation.packs // self.packs)
        return np.asarray(np.abs(graphs / self.graphs_per_batch - 1), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Budget(Strategy):
    """Advise the limits with the fewest packs (the most graphs per pack) whose padded shape is within the budget."""

    name = "budget"
    # Highest cost of the padded shape of one pack, its reserved nodes included.
    budget: float
    # Component -> cost of one slot, for every component; None: 1 for each.
    cost: Mapping[str, float] | None = None

    def largest_allowed(self, space: Space) -> Point:
        """Return the multiple of the mean size that spends the budget, as limits."""
        return space.rounded_down(self._scale(space) * mean for mean in space.mean)

    def search(self, evaluation: Evaluation) -> None:
        """Explore limits that spend most of the budget."""
        space = evaluation.space
        smallest, scale = space.rounded(space.smallest), self._scale(space)
        cost = float(self._costs_of(space, [smallest])[0])
        if cost > self.budget:
            raise SearchError(
                f"the budget of {self.budget:g} is too small: the smallest limits that hold every graph are "
                f"{space.limits(smallest).maxima} and cost {cost:g} with the reserved node; raise the budget, or drop "
                "the largest graphs (oversize='drop', --oversize drop)."
            )
        filled = self._filled(space, [smallest], len(smallest))
        starts = (smallest, *filled, *self._spending_all(space, smallest, evaluation.plans // 2))
        _explore(evaluation, self, _LEAST_SPENT * scale, scale, starts)

    def order(self, evaluation: Evaluation) -> IntArray:
        """Sort candidates by their number of packs, then by slots per pack."""
        return evaluation.sorted_by(evaluation.packs, evaluation.slots)

    def promising(self, evaluation: Evaluation, points: list[Point]) -> list[Point]:
        """Return the limits among `points` that are within the budget and may be worth a plan."""
        allowed = self._costs_of(evaluation.space, points) <= self.budget
        return super().promising(evaluation, list(compress(points, allowed)))

    def may_improve(self, evaluation: Evaluation, points: list[Point]) -> Iterable[bool]:
        """Return whether limits may be better than the best candidate."""
        best = self.order(evaluation)[0]
        best_so_far = int(evaluation.packs[best]), int(evaluation.slots[best])
        bounds = evaluation.bounds_on_packs(points).tolist()
        return [(bound, sum(point)) < best_so_far for point, bound in zip(points, bounds, strict=True)]

    def proposals(self, space: Space, point: Point, scale: float) -> list[Point]:
        """Return the neighbours of `point` (see `Space.neighbours`): first filled up by `_filled`, then unchanged."""
        near = space.neighbours(point, scale)
        return self._filled(space, near, _FILLED) + near

    def _costs(self, space: Space) -> tuple[list[float], float]:
        """Return the cost of one slot of each component, and the cost of the reserved nodes, one of each type."""
        costs = [1.0] * len(space.components) if self.cost is None else [float(cost) for cost in self.cost.values()]
        return costs, sum(costs[i] for i in components_of_kind(space.components, "nodes"))

    def _costs_of(self, space: Space, points: Sequence[Point]) -> FloatArray:
        """Return the cost of the padded shape of a pack within each of M limits, float64 ``[M]``."""
        costs, reserved = self._costs(space)
        total = np.zeros(len(points))
        with np.errstate(over="ignore", invalid="ignore"):
            for column, cost in zip(np.array(points, dtype=np.int64).reshape(-1, len(costs)).T, costs, strict=True):
                total += column * cost
            return reserved + total

    def _scale(self, space: Space) -> float:
        """Return the multiple of the mean size that spends the budget."""
        costs, reserved = self._costs(space)
        # each: cost of a graph of mean size. everything: multiple of the mean size at which one pack holds all graphs.
        each = sum(mean * cost for mean, cost in zip(space.mean, costs, strict=True))
        everything = max((v / m for v, m in zip(space.largest, space.mean, strict=True) if m > 0), default=1.0)
        return min(everything, max(0.0, self.budget - reserved) / each) if each > 0 else everything

    def _spending_all(self, space: Space, smallest: Point, most: int) -> list[Point]:
        """Return all limits of two components of which neither can grow within the budget; none if more than `most`."""
        if len(smallest) != 2:
            return []
        # Try each value of the component with fewer values, and spend the rest of the budget on the other component.
        ends = self._highest(space, [smallest])[0].tolist()
        values = [range(first, end + 1, step) for first, end, step in zip(smallest, ends, space.steps, strict=True)]
        # fewer: index of the component with fewer values.
        fewer = int(len(values[1]) < len(values[0]))
        if not 0 < len(values[fewer]) <= most:
            return []
        points = np.array([smallest] * len(values[fewer]), dtype=np.int64)
        points[:, fewer] = values[fewer]
        points[:, 1 - fewer] = self._highest(space, points.tolist())[:, 1 - fewer]
        return list(map(tuple, points.tolist()))

    def _filled(self, space: Space, points: Sequence[Point], components: int) -> list[Point]:
        """Return each point up to `components` times, each time with another limit as high as the budget allows."""
        number, k = len(points), len(space.components)
        rows = np.repeat(np.arange(number), min(components, k))
        columns = np.sort((np.arange(number)[:, None] + np.arange(min(components, k))) % k, axis=1).ravel()
        highest = self._highest(space, points)[rows, columns]
        filled = np.array(points, dtype=np.int64)[rows]
        filled[np.arange(len(rows)), columns] = highest
        return list(map(tuple, filled[highest >= np.array(space.smallest)[columns]].tolist()))

    def _highest(self, space: Space, points: Sequence[Point]) -> IntArray:
        """Return the highest limit of each component within the budget, given the other limits, int64 ``[M, k]``."""
        costs, limits = np.array(self._costs(space)[0]), np.array(points, dtype=np.int64)
        highest = np.array([space.rounded(space.largest)] * len(points), dtype=np.int64)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            others = self._costs_of(space, points)[:, None] - limits * costs
            # If costs overflow to infinity or NaN, the rest of the budget counts as 0.
            affordable = np.where(costs > 0, np.fmax(0.0, (self.budget - others) / costs), np.inf)
        lower = affordable < highest
        highest[lower] = affordable[lower].astype(np.int64)
        # Round down: limit + reserve must be a multiple of the step.
        steps, reserve = np.array(space.steps), np.array(space.reserve)
        return np.asarray((highest + reserve) // steps * steps - reserve, dtype=np.int64)


def _explore_multiples(evaluation: Evaluation, strategy: Strategy) -> None:
    """Explore multiples of the mean size up to `_REACH` times the smallest that holds every graph, and some below."""
    space = evaluation.space
    below = space.ray(space.scale / _REACH, space.scale, max(2, evaluation.plans // 25))
    _explore(evaluation, strategy, space.scale, _REACH * space.scale, (space.rounded(space.mean), *below))


def _explore(evaluation: Evaluation, strategy: Strategy, first: float, last: float, starts: tuple[Point, ...]) -> None:
    """Evaluate `starts` and limits that hold `first` to `last` mean graphs, then limits near the best candidates.

    A group of candidates is planned only when it is complete, so the order in which threads finish changes nothing.
    """
    plans, space = evaluation.plans, evaluation.space
    spread = max(2, int(_SPREAD * plans))
    evaluation.add(strategy.promising(evaluation, [*starts, *space.ray(first, last, spread)])[:plans])
    points = list(evaluation.results)
    reached = space.scale_of(points[strategy.order(evaluation)[0]])
    closer = space.ray(min(first, reached), reached, max(2, int(_CLOSER * plans)))
    evaluation.add(strategy.promising(evaluation, closer), most=plans - len(evaluation.results))
    _refine(evaluation, strategy, (last - first) / spread)


def _refine(evaluation: Evaluation, strategy: Strategy, scale: float) -> None:
    """Evaluate limits near the best candidates: at first about `scale` mean graphs away, then closer and closer."""
    space = evaluation.space
    while len(evaluation.results) < evaluation.plans:
        # Maximum number of new candidates in this round.
        room = min(max(_FEWEST_IN_ROUND, int(_ROUND * evaluation.plans)), evaluation.plans - len(evaluation.results))
        points = list(evaluation.results)
        fresh, seen = dict[Point, None](), 0
        for number in strategy.order(evaluation).tolist():
            leader = points[number]
            # near: neighbours of the leader, and its limits lowered to the largest content of its packs.
            near = [*strategy.proposals(space, leader, scale), space.rounded(evaluation.results[leader][1:])]
            unknown = [point for point in near if point not in evaluation.results and point not in fresh]
            fresh.update(dict.fromkeys(strategy.promising(evaluation, unknown)))
            seen += len(near) * len(leader)
            if len(fresh) >= room or seen >= _SEEN_IN_ROUND:
                break
        evaluation.add(list(fresh), most=room)
        if not fresh and scale <= space.finest:
            break
        scale = max(scale / 2, space.finest)


def _in_order(name: str, values: Mapping[str, float], components: Sequence[str]) -> dict[str, float]:
    """Return `values` in the order and under the names of `components`; raise SearchError for other keys."""
    # Name of each component -> its name in `values`, or None.
    names = {component: matching_name(component, values) for component in components}
    unknown = [given for given in values if given not in names.values()]
    missing = [component for component, given in names.items() if given is None and name == "cost"]
    if unknown or missing:
        wrong = f"there is no component {' and no '.join(map(repr, unknown)):.200}"
        if not unknown:
            wrong = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing"
        raise SearchError(
            f"{name}s need names of components as keys, but {wrong}; the components are {', '.join(names)}."
        )
    return {component: values[given] for component, given in names.items() if given is not None}


_whole = partial(whole_number, error=SearchError)
_number = partial(real_number, error=SearchError)
_fraction = partial(_number, above=0, most=1, hint="write 0.95 for 95 %.")
_price = partial(_number, least=0, hint="give the bytes of one slot, for example.")
_budget = partial(_number, above=0, hint="give slots, or bytes together with costs (cost=, --cost).")


def _by_component(name: str, given: object, check: Callable[[str, object], float]) -> dict[str, float]:
    if not isinstance(given, Mapping) or not given:
        raise SearchError(
            f"{name}s must be a dict from component to number, but are {given!r:.200}; write {{'nodes': ...}}, with "
            "the names of all components."
        )
    return {str(component): check(f"the {name} of {component}", value) for component, value in given.items()}


def _cost(costs: object) -> dict[str, float]:
    each = _by_component("cost", costs, _price)
    if not any(each.values()):
        raise SearchError("at least one cost must be above 0, but all are 0, so everything fits in one pack.")
    return each


def _packs_per_batch(value: Any) -> int | str:
    if not isinstance(value, str):
        return _whole("packs_per_batch", value, 1, 2**31)
    if value != AUTO:
        raise SearchError(f"packs_per_batch must be a whole number or {AUTO!r}, but is {value!r:.100}.")
    return value


# Setting -> function that returns the setting as plain data, and raises SearchError for a wrong value.
_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "target": lambda v: _by_component("target", v, _fraction) if isinstance(v, Mapping) else _fraction("the target", v),
    "graphs_per_batch": lambda value: _whole("graphs_per_batch", value, 1),
    "packs_per_batch": _packs_per_batch,
    "budget": partial(_budget, "the budget"),
    "cost": _cost,
}
# Argument -> the strategy that it selects. If several are given, the first one in this order decides.
_CHOSEN_BY: Mapping[str, type[Strategy]] = {"target": Target, "graphs_per_batch": GraphsPerBatch, "budget": Budget}


def strategy_of(**asked: Any) -> Strategy:
    """Return the strategy that arguments of `search_limits` select; raise SearchError if one is not accepted."""
    given = {name: value for name, value in asked.items() if value is not None}
    strategy = next((strategy for name, strategy in _CHOSEN_BY.items() if name in given), Smallest)
    accepted = sorted(field.name for field in fields(strategy))
    unused = [name for name in given if name not in accepted]
    if unused:
        raise SearchError(
            f"{', '.join(unused)} cannot be given for the search {strategy.name!r}, which accepts "
            f"{'only ' + ', '.join(accepted) if accepted else 'no such arguments'}; leave "
            f"{'them' if len(unused) > 1 else 'it'} out."
        )
    return strategy(**given)
