"""Count the packs that limits need: many candidates at once, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._checks import INT64_MAX, real_number
from dgl_tuplepack._progress import progress_bar
from dgl_tuplepack.bounds.instance import as_instance
from dgl_tuplepack.bounds.quick import quick_bound
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.kernels.histogram_fit import Placing
from dgl_tuplepack.kernels.pack_counts import count_packs
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing import METHODS
from dgl_tuplepack.packing.auto import first_patterns
from dgl_tuplepack.packing.fit import order_of
from dgl_tuplepack.packing.heuristics import Priority, as_priority
from dgl_tuplepack.packing.settings import Settings
from dgl_tuplepack.search.result import Candidate, effective_limits, efficiencies, harmonic_means
from dgl_tuplepack.search.space import Row
from dgl_tuplepack.sizes import FloatArray, IntArray

Objective = Callable[[Candidate], float]

# Best fit takes about a microsecond for each size class, so a piece of work of this many takes about 10 ms.
_CLASSES_PER_PIECE = 10_000
_MOST_ROWS_PER_PIECE = 64
# Shorter searches show no progress bar.
_SECONDS_BEFORE_BAR = 1.0

# Methods that can plan candidates. The kernel `count_packs` counts the packs of those in FITS (name -> whether it is
# best fit), which alone take a heuristic.
FITS = {"best_fit": True, "first_fit": False}
PACKERS = (*FITS, "next_fit", "auto")


@dataclass(frozen=True)
class Task:
    """Counts the packs of limits. It holds all data for that, so that it can be sent to other processes."""

    histogram: SizeHistogram
    cap: int | None
    method: str
    settings: Settings
    priority: Priority | None
    order: IntArray | None

    def __call__(self, rows: Sequence[Row]) -> IntArray:
        """Return packs, most graphs of a pack, and largest content of a pack by component, int64 ``[M, 2 + k]``."""
        if self.priority is None or self.order is None:
            plan = self._first_plan if self.method == "auto" and self.settings.effort == 0 else self._plan
            return np.array([plan(row) for row in rows], dtype=np.int64)
        return count_packs(
            self.histogram.sizes,
            self.histogram.counts,
            self.order,
            np.array(rows, dtype=np.int64),
            INT64_MAX if self.cap is None else self.cap,
            self.priority.rule,
            Placing(FITS[self.method], by_the_text=False, random_ties=False, key=np.uint64(0)),
        )

    def _first_plan(self, row: Row) -> list[int]:
        """Count the packs of "auto" with an effort of 0, without making and checking its plan."""
        instance = as_instance(self.histogram, self.limits_of(row))
        patterns = first_patterns(instance, quick_bound(instance), self.settings.seed)
        used = patterns.contents(self.histogram.sizes).max(axis=0)
        return [patterns.num_packs, int(patterns.graphs.max()), *used.tolist()]

    def _plan(self, row: Row) -> list[int]:
        plan = METHODS[self.method](self.histogram, self.limits_of(row), self.settings)
        return [plan.num_packs, plan.max_graphs, *plan.pattern_contents.max(axis=0).tolist()]

    def limits_of(self, row: Row) -> Limits:
        """Return a row as `Limits`, with the cap."""
        return Limits.from_components(dict(zip(self.histogram.components, row, strict=True)), self.cap)


@contextmanager
def evaluating(
    histogram: SizeHistogram, cap: int | None, method: str, settings: Settings, executor: Executor | None
) -> Iterator[Evaluation]:
    """Provide an empty `Evaluation`, with threads on all cores unless an executor is given, and a progress bar."""
    with ExitStack() as stack:
        if executor is None:
            executor = ThreadPoolExecutor(available_cores())
            # Plans that still wait when the search is interrupted are not made.
            stack.callback(executor.shutdown, cancel_futures=True)
        bar = progress_bar(desc="limits", unit=" plans", delay=_SECONDS_BEFORE_BAR)
        yield Evaluation(histogram, cap, method, settings, executor, stack.enter_context(bar))


class Evaluation:
    """The candidates evaluated so far.

    Each candidate is planned once, and independently of the others, so results depend on neither executor nor order.
    """

    def __init__(
        self, histogram: SizeHistogram, cap: int | None, method: str, settings: Settings, executor: Executor, bar: Any
    ) -> None:
        self.histogram, self.cap = histogram, cap
        self.totals = np.array(list(histogram.totals().values()), dtype=np.int64)
        self.results: dict[Row, IntArray] = {}
        self._values: dict[Row, float] = {}
        # Some callables cannot be sent to other processes; their table of priorities can.
        plain = replace(settings, heuristic="product")
        self._heuristic = settings.heuristic
        self._task = Task(histogram, cap, method, plain, None, None)
        self._made: tuple[IntArray, IntArray] | None = None
        self._covered = (0,) * len(histogram.components)
        self._executor, self._bar = executor, bar

    @property
    def heuristic(self) -> str | None:
        """Name of the heuristic that was used; None if the method has none."""
        return None if self._task.priority is None else self._task.priority.name

    def add(self, rows: Iterable[Row], most: int | None = None) -> None:
        """Plan those of `rows` that are not known yet, at most `most` of them."""
        fresh = [row for row in dict.fromkeys(rows) if row not in self.results][:most]
        if not fresh:
            return
        self._cover(fresh)
        alone = self._task.method == "auto" and self._task.settings.effort > 0
        step = 1 if alone else max(1, min(_MOST_ROWS_PER_PIECE, _CLASSES_PER_PIECE // len(self.histogram)))
        pieces = [fresh[i : i + step] for i in range(0, len(fresh), step)]
        futures: list[Future[IntArray]] = []
        try:
            for piece in pieces:
                futures.append(self._executor.submit(self._task, piece))
            for piece, future in zip(pieces, futures, strict=True):
                self.results.update(zip(piece, future.result(), strict=True))
                self._bar.update(len(piece))
        finally:
            for future in futures:
                future.cancel()

    def _cover(self, rows: Sequence[Row]) -> None:
        """Prepare the priority for limits up to the largest of `rows`; priorities of smaller sizes stay the same."""
        most = tuple(map(max, zip(self._covered, *rows, strict=True)))
        if self._task.method in FITS and most != self._covered:
            priority = as_priority(self._heuristic, self._task.limits_of(most))
            order = order_of(self.histogram, priority) if self._task.order is None else self._task.order
            self._task, self._covered = replace(self._task, priority=priority, order=order), most

    @property
    def _arrays(self) -> tuple[IntArray, IntArray]:
        """Limits ``[M, k]`` and what `Task` returned for them ``[M, 2 + k]``; cached until candidates are added."""
        if self._made is None or len(self._made[0]) != len(self.results):
            limits = np.array(list(self.results), dtype=np.int64)
            self._made = limits, np.array(list(self.results.values()), dtype=np.int64)
        return self._made

    @property
    def limits(self) -> IntArray:
        """Limits of every candidate, in the order they were added, int64 ``[M, k]``."""
        return self._arrays[0]

    @property
    def slots(self) -> IntArray:
        """Slots of one pack of every candidate, the sum of its limits, int64 ``[M]``."""
        return np.asarray(self.limits.sum(axis=1), dtype=np.int64)

    def sorted_by(self, *keys: NDArray[Any]) -> IntArray:
        """Return the indices of all candidates, sorted by the keys ``[M]``, the first above all, then by limits."""
        return np.lexsort((*self.limits.T[::-1], *reversed(keys)))

    @property
    def packs(self) -> IntArray:
        """Packs of every candidate, int64 ``[M]``."""
        return self._arrays[1][:, 0]

    @property
    def efficiency(self) -> FloatArray:
        """Efficiencies against the limits, float64 ``[M, k]``."""
        return efficiencies(self.totals, self.packs, self.limits)

    @property
    def harmonic_means(self) -> FloatArray:
        """Harmonic mean of the efficiencies of every candidate, float64 ``[M]``."""
        return harmonic_means(self.efficiency)

    def values_of(self, objective: Objective) -> FloatArray:
        """Return the objective of every candidate, float64 ``[M]``; it is called once for each candidate."""
        for row in self.results:
            if row not in self._values:
                candidate = self.candidate(row)
                what = f"the objective of {candidate.limits!r}"
                self._values[row] = real_number(
                    what, objective(candidate), hint="return a number, larger being better.", error=SearchError
                )
        return np.array([self._values[row] for row in self.results], dtype=np.float64)

    def columns(self, order: IntArray) -> dict[str, Any]:
        """Return the columns of the table of a result, with the candidates in an order."""
        limits, results = (array[order] for array in self._arrays)
        return {"limits": limits, "packs": results[:, 0], "most_graphs": results[:, 1], "used": results[:, 2:]}

    def bounds(self, rows: Sequence[Row]) -> FloatArray:
        """Return upper bounds on the efficiencies within limits, float64 ``[M, k]``, from the bound on packs."""
        limits = np.array(rows, dtype=np.int64).reshape(-1, len(self.totals))
        return efficiencies(self.totals, self.bounds_on_packs(rows), limits)

    def bounds_on_packs(self, rows: Sequence[Row]) -> FloatArray:
        """Return lower bounds on packs within limits, float64 ``[M]``: total / limit and graphs / cap, rounded up."""
        limits = np.array(rows, dtype=np.int64).reshape(-1, len(self.totals))
        packs = np.ceil(self.totals / limits).max(axis=1)
        fewest = 1 if self.cap is None else -(-self.histogram.num_graphs // self.cap)
        return np.asarray(np.maximum(packs, fewest), dtype=np.float64)

    def bounds_on_harmonic_means(self, rows: Sequence[Row]) -> FloatArray:
        """Return upper bounds on the harmonic means within limits, float64 ``[M]``."""
        return harmonic_means(self.bounds(rows))

    def candidate(self, row: Row) -> Candidate:
        """Return the candidate with limits `row`, scored by the harmonic mean."""
        packs, most, *used = self.results[row].tolist()
        effective = effective_limits(self.histogram.components, used, most)
        totals, limits = self.histogram.totals(), self._task.limits_of(row)
        candidate = Candidate(limits, packs, most, effective, self.histogram.num_graphs, totals, score=0.0)
        return replace(candidate, score=candidate.harmonic_mean)


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
