"""Count the packs of candidate limits, for many candidates at once, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._core.progress import DELAY, progress_bar
from dgl_tuplepack.planning.bounds.instance import as_instance
from dgl_tuplepack.planning.bounds.pricing import Effort
from dgl_tuplepack.planning.bounds.quick import quick_bound
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.auto import first_patterns
from dgl_tuplepack.planning.packing.patterns import Patterns
from dgl_tuplepack.planning.search.result import Candidate
from dgl_tuplepack.planning.search.space import Point
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Units of work (see `Effort`) for all candidates together (about two seconds), and the fewest candidates.
_WORK, _FEWEST = 150_000_000, 5
# Units of work for each size class, and for each component beyond the first _FEW, besides the work that
# `first_patterns` counts.
_WORK_PER_CLASS, _WORK_PER_COMPONENT, _FEW = 40, 15_000, 8


def progress() -> Any:
    """Return a bar that counts plans; it shows if the search takes long."""
    return progress_bar(desc="limits", unit=" plans", delay=DELAY)


def affordable(histogram: SizeHistogram, limits: Limits, most: int, bar: Any, plans: int = 1) -> int:
    """Return how many candidates may be tried, at most `most`, if each candidate needs `plans` plans.

    The work of a candidate is estimated from one plan within `limits`.
    """
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
    """Return the result for each item, computed in threads on all cores; update the bar after each item.

    After an error or an interrupt, items that are still queued are not computed.
    """
    results = []
    with ThreadPoolExecutor(available_cores()) as threads:
        for result in threads.map(function, items):
            results.append(result)
            bar.update()
    return results


class Evaluation:
    """The candidates evaluated so far; each is planned once, independently of the others."""

    def __init__(self, histogram: SizeHistogram, cap: int | None, plans: int, bar: Any) -> None:
        # plans: maximum number of candidates.
        self.histogram, self.cap, self.plans = histogram, cap, plans
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
        patterns = first_plan(self.histogram, self.limits_of(point), Effort(0))
        return [patterns.num_packs, *patterns.contents(self.histogram.sizes).max(axis=0).tolist()]

    def limits_of(self, point: Point) -> Limits:
        """Return the limits `point` as `Limits`, with the cap on graphs."""
        return Limits.from_components(dict(zip(self.histogram.components, point, strict=True)), self.cap)

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
        packs = self.results[point][0]
        histogram = self.histogram
        return Candidate(self.limits_of(point), (packs,), histogram.num_graphs, histogram.totals(), packs_per_batch)


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
