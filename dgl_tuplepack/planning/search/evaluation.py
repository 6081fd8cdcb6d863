"""The limits that a search can try, and the packs of many candidates at once, counted on all cores."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._core.checks import INT64_MAX
from dgl_tuplepack._core.progress import DELAY, progress_bar
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.planning.bounds.instance import as_instance, quick_bound
from dgl_tuplepack.planning.bounds.pattern_lp import Effort
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.auto import first_patterns
from dgl_tuplepack.planning.plan import Patterns
from dgl_tuplepack.planning.search.result import Candidate
from dgl_tuplepack.planning.sizes import FloatArray, IntArray, components_of_kind

# Limits of one pack as plain integers, in the order of the components.
Point = tuple[int, ...]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
# Units of work (see `Effort`) for all candidates together (about two seconds), and the fewest candidates.
_WORK, _FEWEST = 150_000_000, 5
# More work for each size class, and for each component beyond the first _FEW.
_WORK_PER_CLASS, _WORK_PER_COMPONENT, _FEW = 40, 15_000, 8
# `Space.ray` raises one component at a time by this fraction.
_SLACK = 0.02


def progress() -> Any:
    """Return a bar that counts plans; it shows if the search takes long."""
    return progress_bar(desc="limits", unit=" plans", delay=DELAY)


def affordable(histogram: SizeHistogram, limits: Limits, most: int, bar: Any, plans: int = 1) -> int:
    """Return how many candidates of `plans` plans each may be tried, at most `most`; a plan is like one in `limits`."""
    # An effort of 0 still counts the work, and `first_plan` always finishes.
    effort = Effort(0)
    first_plan(histogram, limits, effort)
    # If this plan took long, show the bar now.
    bar.update(0)
    return max(_FEWEST, min(most, _WORK // (plans * effort.spent)))


def first_plan(histogram: SizeHistogram, limits: Limits, effort: Effort) -> Patterns:
    """Return the patterns of "auto" with an effort of 0; count the work in `effort`."""
    instance = as_instance(histogram, limits)
    more = max(0, len(instance.limits) - _FEW)
    effort.spend(_WORK_PER_CLASS * len(histogram) + _WORK_PER_COMPONENT * more)
    return first_patterns(histogram, limits, instance, quick_bound(instance), 0, effort)[0]


def in_threads(function: Callable[[_Item], _Result], items: Sequence[_Item], bar: Any) -> list[_Result]:
    """Return the result for each item, computed in threads; after an error or interrupt, queued items are skipped."""
    results = []
    with ThreadPoolExecutor(available_cores()) as threads:
        for result in threads.map(function, items):
            results.append(result)
            bar.update()
    return results


class Evaluation:
    """The candidates evaluated so far; each is planned once, independently of the others."""

    def __init__(self, histogram: SizeHistogram, space: Space, cap: int | None, plans: int, bar: Any) -> None:
        # plans: maximum number of candidates.
        self.histogram, self.space, self.cap, self.plans = histogram, space, cap, plans
        self.totals = np.array(list(histogram.totals().values()), dtype=np.int64)
        # Limits -> [number of packs, largest content of a pack in each component].
        self.results: dict[Point, list[int]] = {}
        # Limits [M, k] and number of packs [M] of every candidate, int64, in the order in which they were added.
        self.limits: IntArray = np.empty((0, len(self.totals)), dtype=np.int64)
        self.packs: IntArray = np.empty(0, dtype=np.int64)
        self._bar = bar

    def add(self, points: Iterable[Point], most: int | None = None) -> None:
        """Make a plan for each of the limits in `points` that has no plan yet, at most `most` plans."""
        fresh = [point for point in dict.fromkeys(points) if point not in self.results][:most]
        self.results.update(zip(fresh, in_threads(self._planned, fresh, self._bar), strict=True))
        self.limits = np.array(list(self.results), dtype=np.int64)
        self.packs = np.array([packs for packs, *_ in self.results.values()], dtype=np.int64)

    def _planned(self, point: Point) -> list[int]:
        """Return the number of packs of "auto" with an effort of 0, and the largest content of each component."""
        patterns = first_plan(self.histogram, self.space.limits(point, self.cap), Effort(0))
        return [patterns.num_packs, *patterns.contents(self.histogram.sizes).max(axis=0).tolist()]

    @property
    def slots(self) -> IntArray:
        """Slots of one pack of every candidate, the sum of its limits, int64 ``[M]``."""
        return np.asarray(self.limits.sum(axis=1), dtype=np.int64)

    def sorted_by(self, *keys: NDArray[Any]) -> IntArray:
        """Return the indices of all candidates, sorted by the first key ``[M]``, the next keys, and last by limits."""
        return np.lexsort((*self.limits.T[::-1], *reversed(keys)))

    @property
    def efficiency(self) -> FloatArray:
        """Efficiencies of every candidate, relative to its limits, float64 ``[M, k]``."""
        return _efficiencies(self.totals, self.packs, self.limits)

    @property
    def harmonic_means(self) -> FloatArray:
        """Harmonic mean of the efficiencies of every candidate, float64 ``[M]``."""
        return harmonic_means(self.efficiency)

    def bounds(self, points: Sequence[Point]) -> FloatArray:
        """Return upper bounds on the efficiencies of M limits, float64 ``[M, k]``, from lower bounds on their packs."""
        limits = np.array(points, dtype=np.int64).reshape(-1, len(self.totals))
        return _efficiencies(self.totals, self.bounds_on_packs(points), limits)

    def bounds_on_packs(self, points: Sequence[Point]) -> FloatArray:
        """Return lower bounds on the packs within each of M limits, as float64 ``[M]``."""
        limits = np.array(points, dtype=np.int64).reshape(-1, len(self.totals))
        packs = np.ceil(self.totals / limits).max(axis=1)
        fewest = 1 if self.cap is None else -(-self.histogram.num_graphs // self.cap)
        return np.asarray(np.maximum(packs, fewest), dtype=np.float64)

    def candidate(self, point: Point, packs_per_batch: int = 1) -> Candidate:
        """Return the candidate with limits `point`."""
        packs, histogram, limits = self.results[point][0], self.histogram, self.space.limits(point, self.cap)
        return Candidate(limits, (packs,), histogram.num_graphs, histogram.totals(), packs_per_batch)


def _efficiencies(totals: IntArray, packs: NDArray[Any], limits: IntArray) -> FloatArray:
    """Return total / (packs x limit), float64 ``[M, k]``, for packs ``[M]`` and limits ``[M, k]``."""
    return np.asarray(totals / (packs[:, None].astype(np.float64) * limits), dtype=np.float64)


def harmonic_means(efficiency: FloatArray) -> FloatArray:
    """Return the harmonic mean of each row of efficiencies ``[M, k]``; see `metrics.harmonic_mean`."""
    # Leave out components that are 0 in all graphs.
    present = efficiency[:, efficiency.any(axis=0)]
    if not present.size:
        return np.zeros(len(efficiency))
    return np.asarray(present.shape[1] / (1 / present).sum(axis=1), dtype=np.float64)


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Space:
    """The limits that a search can try: a lattice of limits, with k components, that hold every graph.

    A "mean graph" is an imaginary graph of the mean size. Limits of s times the mean size hold s mean graphs.
    """

    components: tuple[str, ...]
    # Mean size of a graph.
    mean: tuple[float, ...]
    num_graphs: int
    # Smallest limits that hold every graph; each limit is >= 1.
    smallest: Point
    # With these limits, one pack holds all graphs; larger limits change nothing.
    largest: Point
    # Limits are on the lattice if limit + reserve is a multiple of the step in each component. The reserve is 1 if the
    # multiple includes the reserved node of a padded shape, else 0.
    steps: tuple[int, ...]
    reserve: tuple[int, ...]

    @property
    def scale(self) -> float:
        """The smallest number s for which limits of s times the mean size hold every graph."""
        return self.scale_of(self.smallest)

    def limits(self, point: Point, cap: int | None = None) -> Limits:
        """Return the limits `point` as `Limits`, with a cap on graphs."""
        return Limits.from_components(dict(zip(self.components, point, strict=True)), cap)

    def rounded(self, values: Iterable[float]) -> Point:
        """Return the smallest limits of the lattice that are at least `values`, clipped to `smallest`..`largest`."""
        bounds = zip(values, self.smallest, self.largest, strict=True)
        whole = [max(least, min(math.ceil(value), most)) for value, least, most in bounds]
        columns = zip(whole, self.steps, self.reserve, strict=True)
        return tuple(-(-(v + reserve) // step) * step - reserve for v, step, reserve in columns)

    def rounded_down(self, values: Iterable[float]) -> Point:
        """Return the largest limits of the lattice that are at most `values`, or its lowest; maybe below `smallest`."""
        columns = zip(values, self.steps, self.reserve, strict=True)
        return tuple(max(1, max(1, math.floor(v + reserve) // step) * step - reserve) for v, step, reserve in columns)

    def ray(self, first: float, last: float, number: int) -> list[Point]:
        """Return up to `number` limits for `first` to `last` mean graphs; in some, one component is larger."""
        k = len(self.mean)
        points = []
        for turn, scale in enumerate(np.linspace(first, last, number).tolist()):
            # Of k + 1 successive turns, the first raises no component, and each of the others raises one.
            slack = [1 + _SLACK * (turn % (k + 1) == 1 + component) for component in range(k)]
            points.append(self.rounded(scale * mean * more for mean, more in zip(self.mean, slack, strict=True)))
        return list(dict.fromkeys(points))

    def neighbours(self, point: Point, scale: float) -> list[Point]:
        """Return O(k) limits about `scale` mean graphs from `point`.

        They differ in one component, in all, or in two neighbouring components, of which one is larger.
        """
        # moves[i]: distance in component i, at least one step.
        moves = [max(s, round(scale * m / s) * s) for m, s in zip(self.mean, self.steps, strict=True)]
        k, same = len(point), self.rounded(point)
        lower = self.rounded(value - move for value, move in zip(point, moves, strict=True))
        higher = self.rounded(value + move for value, move in zip(point, moves, strict=True))
        # A change is a dict: component -> its new limit.
        changes = [{i: moved[i]} for i in range(k) for moved in (lower, higher)]
        changes += [dict(enumerate(lower)), dict(enumerate(higher))] if k > 1 else []
        pairs = [(a, b) for a in range(k) for b in sorted({(a - 1) % k, (a + 1) % k} - {a})]
        changes += [{a: higher[a], b: lower[b]} for a, b in pairs]
        return [tuple(change.get(i, limit) for i, limit in enumerate(same)) for change in changes]

    def graphs_in(self, point: Point) -> float:
        """Return how many mean graphs fit within `point`, in the component that has room for the fewest."""
        return min(self._multiples(point), default=float(self.num_graphs))

    def scale_of(self, point: Point) -> float:
        """Return how many mean graphs fit within `point`, in the component that has room for the most."""
        return max(self._multiples(point), default=0.0)

    @property
    def finest(self) -> float:
        """The `scale` at which `neighbours` are one step away in every component."""
        return min(self._multiples(self.steps), default=1.0)

    def _multiples(self, point: Point) -> list[float]:
        return [value / mean for value, mean in zip(point, self.mean, strict=True) if mean > 0]


def space_of(histogram: SizeHistogram, multiple_of: int, others: SizeHistogram | None = None) -> Space:
    """Return the lattice of the limits that hold every graph of `histogram` and of `others`.

    In each component, the content of a pack is a multiple of the greatest common divisor of the sizes, so the limits
    are too. If `multiple_of` is above 1, the limits are instead all limits whose padded shape, including the reserved
    nodes, is a multiple of it. Raise SearchError if slots could overflow int64.
    """
    components = histogram.components
    nodes = components_of_kind(components, "nodes")
    divisors = np.maximum(np.gcd.reduce(histogram.sizes, axis=0), 1).tolist()
    totals = list(histogram.totals().values())
    steps = tuple(divisors) if multiple_of == 1 else (multiple_of,) * len(components)
    reserve = tuple(int(multiple_of > 1 and i in nodes) for i in range(len(components)))
    smallest = [max(1, value) for value in histogram.maxima().values()]
    if others is not None:
        smallest = list(map(max, smallest, others.maxima().values()))
    largest = tuple(map(max, smallest, totals))
    if sum(largest) + len(steps) * max(steps) > INT64_MAX:
        raise SearchError(
            f"the graphs have {sum(totals)} nodes and edges in total, too many for a search with 64-bit integers; "
            "search with fewer graphs."
        )
    mean = tuple(total / histogram.num_graphs for total in totals)
    return Space(components, mean, histogram.num_graphs, tuple(smallest), largest, steps, reserve)
