"""The loop that plans candidates, and the search strategies: the limits that each of them tries and prefers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._core.checks import INT64_MAX, real_number, whole_number
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.planning.bounds.pattern_lp import Effort
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import matching_name
from dgl_tuplepack.planning.search.evaluation import Candidate, Point, Space, affordable, first_plan, in_threads
from dgl_tuplepack.planning.sizes import BoolArray, FloatArray, IntArray, components_of_kind

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
# Number of components in which "budget" raises each limits near a leader as far as the budget allows, one at a time.
_FILLED = 3
# Fractions of all plans for multiples of the mean graph: first on the whole range, then below the best multiple.
_SPREAD, _CLOSER = 0.35, 0.25
# Each round of `_refine` may make this fraction of all plans, but at least _FEWEST_IN_ROUND plans.
_ROUND, _FEWEST_IN_ROUND = 0.125, 8
# A round looks at no further leader after this many numbers (limits near leaders x components).
_SEEN_IN_ROUND = 400_000


class Strategy(ABC):
    """A search for limits of one shape: its candidates so far, which limits to try next, and which are the best."""

    name: ClassVar[str]
    # The arguments of `search_limits` that the strategy accepts -> default.
    accepts: ClassVar[Mapping[str, Any]] = {}
    # Candidates begin with limits that hold these multiples of `multiple`, or of `Space.scale`, mean graphs.
    reach: ClassVar[tuple[float, float]] = (1.0, _REACH)
    # Maximum number of candidates.
    plans = 200
    packs_per_batch = 1
    # Number of mean graphs that a pack should hold. None: as the largest graph needs; then no graph may be dropped.
    multiple: float | None = None

    def __init__(self, aim: Mapping[str, Any], histogram: SizeHistogram, space: Space, cap: int | None) -> None:
        # aim: accepted arguments as plain data.
        self.aim, self.histogram, self.space, self.cap = dict(aim), histogram.without_ids(), space, cap
        self.totals = np.array(list(histogram.totals().values()), dtype=np.int64)
        # Limits -> [number of packs, largest content of a pack in each component].
        self.results: dict[Point, list[int]] = {}

    @abstractmethod
    def _order(self) -> IntArray:
        """Return the indices of all candidates, the most promising first; the first one is advised."""

    def _starts(self) -> Sequence[Point]:
        """Return limits to try first; raise SearchError if the aim is out of reach."""
        scale = self.space.scale
        below = self.space.ray(scale / _REACH, scale, max(2, self.plans // 25))
        return self.space.rounded(self.space.mean), *below

    def _permitted(self, points: list[Point]) -> Iterable[bool]:
        """Return, for each of `points`, whether the strategy permits these limits."""
        return [True] * len(points)

    def _may_improve(self, bounds: Figures) -> BoolArray:
        """Return, for limits with figures of at best `bounds`, whether they can beat the best candidate so far."""
        return np.ones(len(bounds.packs), dtype=bool)

    def _proposals(self, point: Point, scale: float) -> list[Point]:
        """Return limits near `point`; some of them differ from it by about `scale` mean graphs."""
        return self.space.neighbours(point, scale)

    @property
    def allowed(self) -> Point | None:
        """The limits that a graph must exceed to be dropped; None if no graph may be dropped."""
        return None if self.multiple is None else self.space.rounded_down(self.multiple * m for m in self.space.mean)

    def run(self, bar: Any) -> None:
        """Plan limits that hold some multiples of the mean graph, then limits near the best candidates.

        Raise SearchError if the aim is out of reach.
        """
        # Limits of usual size: the work of one plan within them decides how many candidates there may be.
        usual = self.space.rounded(self.allowed or [2 * self.space.scale * mean for mean in self.space.mean])
        self.plans = affordable(self.histogram, self.space.limits(usual, self.cap), self.plans, bar)
        starts, space = self._starts(), self.space
        multiple = space.scale if self.multiple is None else self.multiple
        first, last = (end * multiple for end in self.reach)
        spread = max(2, int(_SPREAD * self.plans))
        self._add(self._promising([*starts, *space.ray(first, last, spread)])[: self.plans], bar)
        reached = space.scale_of(self.best)
        closer = self._promising(space.ray(min(first, reached), reached, max(2, int(_CLOSER * self.plans))))
        self._add([point for point in closer if point not in self.results][: self.plans - len(self.results)], bar)
        self._refine((last - first) / spread, bar)

    def _refine(self, scale: float, bar: Any) -> None:
        """Plan limits near the best candidates: at first about `scale` mean graphs away, then closer and closer."""
        # At this scale, neighbours are one step away in every component.
        finest = min(self.space.multiples(self.space.steps), default=1.0)
        while len(self.results) < self.plans:
            # Maximum number of new candidates in this round.
            room = min(max(_FEWEST_IN_ROUND, int(_ROUND * self.plans)), self.plans - len(self.results))
            points = list(self.results)
            fresh, seen = dict[Point, None](), 0
            for number in self._order().tolist():
                leader = points[number]
                # near: neighbours of the leader, and its limits lowered to the largest content of its packs.
                near = [*self._proposals(leader, scale), self.space.rounded(self.results[leader][1:])]
                unknown = [point for point in near if point not in self.results and point not in fresh]
                fresh.update(dict.fromkeys(self._promising(unknown)))
                seen += len(near) * len(leader)
                if len(fresh) >= room or seen >= _SEEN_IN_ROUND:
                    break
            self._add(list(fresh)[:room], bar)
            if not fresh and scale <= finest:
                break
            scale = max(scale / 2, finest)

    def _promising(self, points: list[Point]) -> list[Point]:
        """Return the permitted limits among `points` that may be worth a plan, given the candidates so far."""
        points = list(compress(points, self._permitted(points)))
        if not self.results or not points:
            return points
        # No plan has fewer packs.
        packs = np.ceil(self.totals / np.array(points, dtype=np.int64)).max(axis=1)
        fewest = 1 if self.cap is None else -(-self.histogram.num_graphs // self.cap)
        return list(compress(points, self._may_improve(Figures(self.totals, points, np.maximum(packs, fewest)))))

    def _add(self, points: Iterable[Point], bar: Any) -> None:
        """Plan these limits independently of each other, so the order in which threads finish changes nothing."""
        fresh = list(dict.fromkeys(points))
        self.results.update(zip(fresh, in_threads(self._planned, fresh, bar), strict=True))
        # Figures of all candidates, in the order in which they were added.
        packs = np.array([packs for packs, *_ in self.results.values()], dtype=np.int64)
        self.figures = Figures(self.totals, list(self.results), packs)

    def _planned(self, point: Point) -> list[int]:
        """Return the number of packs of "auto" with an effort of 0, and the largest content of each component."""
        patterns = first_plan(self.histogram, self.space.limits(point, self.cap), Effort(0))
        return [patterns.num_packs, *patterns.contents(self.histogram.sizes).max(axis=0).tolist()]

    @property
    def best(self) -> Point:
        """The limits that the search advises."""
        return list(self.results)[int(self._order()[0])]

    def candidate(self, point: Point) -> Candidate:
        """Return the candidate with limits `point`."""
        limits, packs, histogram = self.space.limits(point, self.cap), self.results[point][0], self.histogram
        return Candidate(limits, (packs,), histogram.num_graphs, histogram.totals(), self.packs_per_batch)


class Figures:
    """The figures of M limits of k components, each with its number of packs ``[M]``."""

    def __init__(self, totals: IntArray, points: Sequence[Point], packs: NDArray[Any]) -> None:
        """Compute slots of a pack ``[M]``, efficiencies ``[M, k]`` and their harmonic means ``[M]``."""
        self.limits: IntArray = np.array(points, dtype=np.int64)
        self.packs = packs
        self.slots: IntArray = self.limits.sum(axis=1)
        self.efficiency: FloatArray = totals / (packs[:, None].astype(np.float64) * self.limits)
        # Leave out components that are 0 in all graphs.
        present = self.efficiency[:, self.efficiency.any(axis=0)]
        self.means: FloatArray = np.zeros(len(points))
        if present.size:
            self.means = present.shape[1] / (1 / present).sum(axis=1)

    def sorted_by(self, *keys: NDArray[Any]) -> IntArray:
        """Return all indices, sorted by the first key ``[M]``, the next keys, and last by limits."""
        return np.lexsort((*self.limits.T[::-1], *reversed(keys)))


class Smallest(Strategy):
    """Advise the limits with the fewest slots per pack, among limits with nearly the highest harmonic mean.

    Source: Krell et al. 2022 (arXiv 2209.06354), section 2.5, which scales all limits together, then tunes each.
    """

    name = "smallest"

    def _starts(self) -> Sequence[Point]:
        space = self.space
        # If sizes are nearly equal, try only limits of several graphs, to share reserved nodes.
        if space.scale < _NEARLY_EQUAL:
            several = _SEVERAL if self.cap is None else min(_SEVERAL, self.cap)
            self.space = replace(space, smallest=space.rounded(several * mean for mean in space.mean))
        return super()._starts()

    def _order(self) -> IntArray:
        """Alternate between two orders: by slots, candidates within the tolerance first; and by harmonic mean."""
        means, slots = self.figures.means, self.figures.slots
        smallest = self.figures.sorted_by(means < self._least, slots, -means)
        highest = np.lexsort((slots, -means))
        both = np.stack([smallest, highest], axis=1).ravel().tolist()
        return np.array(list(dict.fromkeys(both)), dtype=np.int64)

    def _permitted(self, points: list[Point]) -> Iterable[bool]:
        """Permit limits that are not too large; see `_REACH`."""
        most = self.space.rounded(_REACH * self.space.scale * mean for mean in self.space.mean)
        return [all(limit <= top for limit, top in zip(point, most, strict=True)) for point in points]

    def _may_improve(self, bounds: Figures) -> BoolArray:
        return np.asarray(bounds.means >= self._least)

    @property
    def _least(self) -> float:
        """The lowest harmonic mean that is within the tolerance of the highest one."""
        highest = float(self.figures.means.max())
        return highest - _BELOW_HIGHEST * highest


class Target(Strategy):
    """Advise the limits with the fewest slots per pack, among limits whose efficiencies reach a target."""

    name = "target"
    # Lowest harmonic mean of the efficiencies, in (0, 1]; or component -> lowest efficiency.
    accepts: ClassVar[Mapping[str, Any]] = {"target": None}

    def _lacking(self, figures: Figures) -> FloatArray:
        """Return how far efficiencies are below the target, ``[M]``; <= 0 if they reach it."""
        target = self.aim["target"]
        if not isinstance(target, Mapping):
            return np.asarray(target - figures.means)
        least = np.array([target.get(name, 0.0) for name in self.histogram.components])
        return np.asarray((least - figures.efficiency).max(axis=1, where=least > 0, initial=-math.inf))

    def _order(self) -> IntArray:
        """Sort candidates that reach the target by slots per pack; then the others, the closest to the target first."""
        figures = self.figures
        return figures.sorted_by(np.maximum(self._lacking(figures), 0), figures.slots, -figures.means)

    def _may_improve(self, bounds: Figures) -> BoolArray:
        """Return whether limits can reach the target with fewer slots than the best candidate, or get as close."""
        lacking = self._lacking(self.figures)
        slots = self.figures.slots.min(where=lacking <= 0, initial=INT64_MAX)
        return np.asarray((self._lacking(bounds) <= max(0.0, lacking.min())) & (bounds.slots < slots))

    def run(self, bar: Any) -> None:
        """Search; raise SearchError if no candidate reaches the target."""
        super().run(bar)
        if self._lacking(self.figures).min() <= 0:
            return
        target, best = self.aim["target"], self.candidate(self.best)
        each = target if isinstance(target, Mapping) else {"a harmonic mean of": target}
        wanted = ", ".join(f"{name} {value:g}" for name, value in each.items())
        reached = ", ".join(f"{name} {value:.4f}" for name, value in best.efficiency.items())
        raise SearchError(
            f"the target of {wanted} is out of reach: the best is {reached}, harmonic mean {best.harmonic_mean:.4f}, "
            f"at {best.limits!r} among limits up to {_REACH:g} times what the largest graph needs; lower the target, "
            "or give graphs_per_batch or a budget instead."
        )


class GraphsPerBatch(Strategy):
    """Advise the limits with the fullest packs among limits whose batches hold about `graphs_per_batch` graphs."""

    name = "graphs_per_batch"
    accepts: ClassVar[Mapping[str, Any]] = {"graphs_per_batch": None, "packs_per_batch": 1}
    reach = (0.98, 2.0)

    def __init__(self, aim: Mapping[str, Any], histogram: SizeHistogram, space: Space, cap: int | None) -> None:
        super().__init__(aim, histogram, space, cap)
        self.graphs: int = self.aim["graphs_per_batch"]
        # With one pack in each batch, some graphs would never meet.
        if self.aim["packs_per_batch"] == AUTO:
            most = cap or histogram.num_graphs
            held = min([*space.multiples(space.rounded(space.smallest)), most])
            several = 2 * held <= self.graphs < histogram.num_graphs
            self.aim["packs_per_batch"] = max(1 + several, -(-self.graphs // most))
        self.packs_per_batch = self.aim["packs_per_batch"]
        self.multiple = self.graphs / self.packs_per_batch
        packs = f" in {self.packs_per_batch} packs" if self.packs_per_batch > 1 else ""
        self._refused = f"graphs_per_batch={self.graphs}{packs} is out of reach"

    def _starts(self) -> Sequence[Point]:
        number = self.graphs / self.packs_per_batch
        if self.cap is not None and self.cap < (1 - TOLERANCE) * number:
            raise SearchError(
                f"{self._refused} with at most {self.cap} graphs in a pack; raise graphs= to {math.ceil(number)} or "
                "more, leave it out, or lower graphs_per_batch."
            )
        return [self.space.rounded(self.space.smallest)]

    def _off(self) -> FloatArray:
        """Return how far each candidate's graphs per batch are from `graphs_per_batch`, as a fraction, ``[M]``."""
        graphs = self.histogram.num_graphs / -(-self.figures.packs // self.packs_per_batch)
        return np.asarray(np.abs(graphs / self.graphs - 1), dtype=np.float64)

    def _order(self) -> IntArray:
        """Sort candidates by distance beyond the tolerance, then by harmonic mean, then by slots per pack."""
        return self.figures.sorted_by(np.maximum(self._off(), TOLERANCE), -self.figures.means, self.figures.slots)

    def _may_improve(self, bounds: Figures) -> BoolArray:
        """Return whether packs can be as full as the packs of the best candidate, if it is within the tolerance."""
        first = self._order()[0]
        return np.asarray((bounds.means >= self.figures.means[first]) | (self._off()[first] > TOLERANCE))

    def run(self, bar: Any) -> None:
        """Search; raise SearchError if even the batches of the smallest limits hold too many graphs."""
        super().run(bar)
        candidate = self.candidate(self.space.rounded(self.space.smallest))
        fewest = self.histogram.num_graphs // ((1 + TOLERANCE) * self.graphs)
        if -(-candidate.packs // self.packs_per_batch) < fewest:
            raise SearchError(
                f"{self._refused}: the smallest limits that hold every graph, {candidate.limits!r}, hold "
                f"{candidate.graphs_per_pack * self.packs_per_batch:.1f} graphs on average; use that number, drop the "
                "largest graphs (oversize='drop', --oversize drop), set a cap (graphs=, `dgl-tuplepack limits "
                "--max-graphs`), or search several shapes (shapes=2, `dgl-tuplepack limits --shapes 2`)."
            )


class Budget(Strategy):
    """Advise the limits with the fewest packs (the most graphs per pack) whose padded shape is within the budget."""

    name = "budget"
    # Highest cost of the padded shape of one pack; and component -> cost of one slot, for every component, None: 1.
    accepts: ClassVar[Mapping[str, Any]] = {"budget": None, "cost": None}
    reach = (0.8, 1.0)

    def __init__(self, aim: Mapping[str, Any], histogram: SizeHistogram, space: Space, cap: int | None) -> None:
        super().__init__(aim, histogram, space, cap)
        self.budget: float = self.aim["budget"]
        self.costs = list(map(float, self.aim.get("cost", dict.fromkeys(space.components, 1.0)).values()))
        # Cost of the reserved nodes, one of each type.
        self.reserved = sum(self.costs[i] for i in components_of_kind(space.components, "nodes"))
        # multiple: the multiple of the mean size that spends the budget, or with which one pack holds all graphs.
        each = sum(mean * cost for mean, cost in zip(space.mean, self.costs, strict=True))
        everything = max(space.multiples(space.largest), default=1.0)
        self.multiple = min(everything, max(0.0, self.budget - self.reserved) / each) if each > 0 else everything

    def _starts(self) -> Sequence[Point]:
        smallest = self.space.rounded(self.space.smallest)
        cost = float(self._costs_of([smallest])[0])
        if cost > self.budget:
            raise SearchError(
                f"the budget of {self.budget:g} is too small: the smallest limits that hold every graph are "
                f"{self.space.limits(smallest).maxima} and cost {cost:g} with the reserved node; raise the budget, or "
                "drop the largest graphs (oversize='drop', --oversize drop)."
            )
        return smallest, *self._filled([smallest], len(smallest)), *self._spending_all(smallest)

    def _order(self) -> IntArray:
        """Sort candidates by their number of packs, then by slots per pack."""
        return self.figures.sorted_by(self.figures.packs, self.figures.slots)

    def _permitted(self, points: list[Point]) -> Iterable[bool]:
        return self._costs_of(points) <= self.budget

    def _may_improve(self, bounds: Figures) -> BoolArray:
        best = self._order()[0]
        packs, slots = self.figures.packs[best], self.figures.slots[best]
        return np.asarray((bounds.packs < packs) | ((bounds.packs == packs) & (bounds.slots < slots)))

    def _proposals(self, point: Point, scale: float) -> list[Point]:
        """Return the neighbours of `point`: first filled up by `_filled`, then unchanged."""
        near = self.space.neighbours(point, scale)
        return self._filled(near, _FILLED) + near

    def _costs_of(self, points: Sequence[Point]) -> FloatArray:
        """Return the cost of the padded shape of a pack within each of M limits, float64 ``[M]``."""
        total = np.zeros(len(points))
        with np.errstate(over="ignore", invalid="ignore"):
            for values, cost in zip(np.array(points, dtype=np.int64).T, self.costs, strict=len(points) > 0):
                total += values * cost
            return self.reserved + total

    def _spending_all(self, smallest: Point) -> list[Point]:
        """Return all limits of two components of which neither can grow within the budget; none if they are many."""
        if len(smallest) != 2:
            return []
        # Try each value of the component with fewer values, and spend the rest of the budget on the other component.
        ends = self._highest([smallest])[0].tolist()
        values = [range(low, high + 1, step) for low, high, step in zip(smallest, ends, self.space.steps, strict=True)]
        # fewer: index of the component with fewer values.
        fewer = int(len(values[1]) < len(values[0]))
        if not 0 < len(values[fewer]) <= self.plans // 2:
            return []
        points = np.array([smallest] * len(values[fewer]), dtype=np.int64)
        points[:, fewer] = values[fewer]
        points[:, 1 - fewer] = self._highest(points.tolist())[:, 1 - fewer]
        return list(map(tuple, points.tolist()))

    def _filled(self, points: Sequence[Point], components: int) -> list[Point]:
        """Return each point up to `components` times, each time with another limit as high as the budget allows."""
        k, filled = len(self.costs), list[Point]()
        for number, (point, highest) in enumerate(zip(points, self._highest(points).tolist(), strict=True)):
            for column in sorted((number + i) % k for i in range(min(components, k))):
                if highest[column] >= self.space.smallest[column]:
                    filled.append((*point[:column], highest[column], *point[column + 1 :]))
        return filled

    def _highest(self, points: Sequence[Point]) -> IntArray:
        """Return the highest limit of each component within the budget, given the other limits, int64 ``[M, k]``."""
        space, costs, limits = self.space, np.array(self.costs), np.array(points, dtype=np.int64)
        highest = np.array([space.rounded(space.largest)] * len(points), dtype=np.int64)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            others = self._costs_of(points)[:, None] - limits * costs
            # If costs overflow to infinity or NaN, the rest of the budget counts as 0.
            affordable = np.where(costs > 0, np.fmax(0.0, (self.budget - others) / costs), np.inf)
        lower = affordable < highest
        highest[lower] = affordable[lower].astype(np.int64)
        # Round down: limit + reserve must be a multiple of the step.
        steps, reserve = np.array(space.steps), np.array(space.reserve)
        return np.asarray((highest + reserve) // steps * steps - reserve, dtype=np.int64)


def strategy_of(**asked: Any) -> tuple[type[Strategy], dict[str, Any]]:
    """Return the strategy that arguments of `search_limits` select, and its aim: the arguments as plain data.

    Raise SearchError if an argument is wrong or not accepted. Of several strategies, the first in the order here wins.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    strategy = next((strategy for strategy in (Target, GraphsPerBatch, Budget) if strategy.name in given), Smallest)
    unused = [name for name in given if name not in strategy.accepts]
    if unused:
        raise SearchError(
            f"{', '.join(unused)} cannot be given for the search {strategy.name!r}, which accepts "
            f"{'only ' + ', '.join(strategy.accepts) if strategy.accepts else 'no such arguments'}; leave "
            f"{'them' if len(unused) > 1 else 'it'} out."
        )
    settings = {**strategy.accepts, **given}
    return strategy, {name: _checked(name, value) for name, value in settings.items() if value is not None}


def aim_for(aim: Mapping[str, Any], histogram: SizeHistogram) -> dict[str, Any]:
    """Return the aim with dicts in the order and under the names of the histogram's components.

    Raise SearchError if a component is unknown, or if the histogram has fewer than `graphs_per_batch` graphs.
    """
    if "graphs_per_batch" in aim:
        whole_number("graphs_per_batch", aim["graphs_per_batch"], 1, histogram.num_graphs, SearchError)
    return {
        name: _in_order(name, value, histogram.components) if isinstance(value, Mapping) else value
        for name, value in aim.items()
    }


_fraction = partial(real_number, above=0, most=1, hint="write 0.95 for 95 %.", error=SearchError)
_price = partial(real_number, least=0, hint="give the bytes of one slot, for example.", error=SearchError)


def _checked(name: str, value: Any) -> Any:
    """Return a setting as plain data; raise SearchError for a wrong value."""
    if name == "target":
        return _by_component(name, value, _fraction) if isinstance(value, Mapping) else _fraction("the target", value)
    if name == "budget":
        hint = "give slots, or bytes together with costs (cost=, --cost)."
        return real_number("the budget", value, above=0, hint=hint, error=SearchError)
    if name == "cost":
        costs = _by_component(name, value, _price)
        if not any(costs.values()):
            raise SearchError("at least one cost must be above 0, but all are 0, so everything fits in one pack.")
        return costs
    if name == "graphs_per_batch":
        return whole_number(name, value, 1, error=SearchError)
    if not isinstance(value, str):
        return whole_number(name, value, 1, 2**31, SearchError)
    if value != AUTO:
        raise SearchError(f"packs_per_batch must be a whole number or {AUTO!r}, but is {value!r:.100}.")
    return value


def _by_component(name: str, given: object, check: Callable[[str, object], float]) -> dict[str, float]:
    if not isinstance(given, Mapping) or not given:
        raise SearchError(
            f"{name}s must be a dict from component to number, but are {given!r:.200}; write {{'nodes': ...}}, with "
            "the names of all components."
        )
    return {str(component): check(f"the {name} of {component}", value) for component, value in given.items()}


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
