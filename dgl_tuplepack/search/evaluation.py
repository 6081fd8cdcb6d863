"""From limits to what their plans need: many candidates at once, on every core."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from dgl_tuplepack._checks import INT64_MAX
from dgl_tuplepack.bounds.instance import as_instance
from dgl_tuplepack.bounds.quick import quick_bound
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.kernels.pack_counts import count_packs
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.metrics import harmonic_mean
from dgl_tuplepack.packing import METHODS
from dgl_tuplepack.packing.auto import first_patterns
from dgl_tuplepack.packing.fit import order_of
from dgl_tuplepack.packing.heuristics import Priority, as_priority
from dgl_tuplepack.packing.settings import Settings
from dgl_tuplepack.search.result import Candidate, efficiencies, harmonic_means
from dgl_tuplepack.search.space import Row
from dgl_tuplepack.sizes import IntArray

# Best fit takes about a microsecond for each size class; so many of them make a piece of work of some 10 ms.
_CLASSES_PER_PIECE = 10_000
_MOST_ROWS_PER_PIECE = 64
# Shorter searches show no bar.
_SECONDS_BEFORE_BAR = 1.0

# Methods whose packs keep the limits; the first two are counted without making a plan.
FITS = {"best_fit": True, "first_fit": False}
PACKERS = (*FITS, "next_fit", "auto")


@dataclass(frozen=True)
class Task:
    """All that counting packs needs beside the limits; it can be sent to other processes."""

    histogram: SizeHistogram
    cap: int | None
    method: str
    settings: Settings
    priority: Priority | None
    order: IntArray | None

    def __call__(self, rows: Sequence[Row]) -> IntArray:
        """Packs, most graphs of a pack, and largest content of a pack by component, int64 ``[M, 2 + k]``."""
        if self.priority is None or self.order is None:
            plan = self._first_plan if self.method == "auto" and self.settings.effort == 0 else self._plan
            return np.array([plan(row) for row in rows], dtype=np.int64)
        return count_packs(
            self.histogram.sizes,
            self.histogram.counts,
            self.order,
            np.array(rows, dtype=np.int64),
            INT64_MAX if self.cap is None else self.cap,
            self.priority.kind,
            self.priority.weights,
            self.priority.table,
            FITS[self.method],
        )

    def _first_plan(self, row: Row) -> list[int]:
        """What "auto" finds without further search: the same packs as its plan, without making and checking one."""
        instance = as_instance(self.histogram, self.limits_of(row))
        found = first_patterns(instance, quick_bound(instance), self.settings.seed)
        graphs = np.add.reduceat(found.multiplicities, found.offsets[:-1])
        weighted = self.histogram.sizes[found.classes] * found.multiplicities[:, None]
        used = np.add.reduceat(weighted, found.offsets[:-1], axis=0).max(axis=0)
        return [found.num_packs, int(graphs.max()), *used.tolist()]

    def _plan(self, row: Row) -> list[int]:
        plan = METHODS[self.method](self.histogram, self.limits_of(row), self.settings)
        return [plan.num_packs, plan.max_graphs, *plan.pattern_contents.max(axis=0).tolist()]

    def limits_of(self, row: Row) -> Limits:
        """The limits that a row stands for."""
        return Limits.from_components(dict(zip(self.histogram.components, row, strict=True)), self.cap)


class Evaluation:
    """What is known of candidates so far; a context that holds the executor and the progress bar.

    Each candidate is planned once and on its own, so what is found depends on neither the executor nor the order.
    """

    def __init__(
        self, histogram: SizeHistogram, cap: int | None, method: str, settings: Settings, executor: Executor | None
    ) -> None:
        self.histogram, self.cap = histogram, cap
        self.totals = np.array(list(histogram.totals().values()), dtype=np.int64)
        self.found: dict[Row, IntArray] = {}
        # Callables cannot always be sent to other processes; their table can.
        plain = Settings("product", settings.seed, effort=settings.effort)
        self._heuristic = settings.heuristic
        self._task = Task(histogram, cap, method, plain, None, None)
        self._made: tuple[IntArray, IntArray] | None = None
        self._covered = (0,) * len(histogram.components)
        self._executor, self._stack = executor, ExitStack()

    def __enter__(self) -> Evaluation:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(_cores())
            # An interrupt may come while plans are handed out; those that wait must not be made all the same.
            self._stack.callback(self._executor.shutdown, cancel_futures=True)
        bar = tqdm(desc="limits", unit=" plans", delay=_SECONDS_BEFORE_BAR, disable=not sys.stderr.isatty())
        self._bar = self._stack.enter_context(bar)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def heuristic(self) -> str | None:
        """Name of the heuristic that was used, None where the method has none."""
        return None if self._task.priority is None else self._task.priority.name

    def add(self, rows: Iterable[Row], most: int | None = None) -> None:
        """Plan candidates that are not known yet, `most` of them."""
        fresh = [row for row in dict.fromkeys(rows) if row not in self.found][:most]
        if not fresh:
            return
        self._cover(fresh)
        assert self._executor is not None
        step = self._rows_per_piece()
        pieces = [fresh[i : i + step] for i in range(0, len(fresh), step)]
        futures: list[Future[IntArray]] = []
        try:
            for piece in pieces:
                futures.append(self._executor.submit(self._task, piece))
            for piece, future in zip(pieces, futures, strict=True):
                self.found.update(zip(piece, future.result(), strict=True))
                self._bar.update(len(piece))
        finally:
            for future in futures:
                future.cancel()

    def _rows_per_piece(self) -> int:
        if self._task.method == "auto" and self._task.settings.effort > 0:
            return 1
        return max(1, min(_MOST_ROWS_PER_PIECE, _CLASSES_PER_PIECE // len(self.histogram)))

    def _cover(self, rows: Sequence[Row]) -> None:
        """Prepare the priority for the largest of these limits; what it makes of smaller ones is the same."""
        most = tuple(map(max, zip(self._covered, *rows, strict=True)))
        if self._task.method in FITS and most != self._covered:
            priority = as_priority(self._heuristic, self._task.limits_of(most))
            order = order_of(self.histogram, priority) if self._task.order is None else self._task.order
            task = self._task
            self._task = Task(task.histogram, task.cap, task.method, task.settings, priority, order)
            self._covered = most

    @property
    def _arrays(self) -> tuple[IntArray, IntArray]:
        """Limits ``[M, k]`` and what was found ``[M, 2 + k]``, made anew only when there is more."""
        if self._made is None or len(self._made[0]) != len(self.found):
            limits = np.array(list(self.found), dtype=np.int64)
            self._made = limits, np.array(list(self.found.values()), dtype=np.int64)
        return self._made

    @property
    def limits(self) -> IntArray:
        """Limits of every candidate, in the order they came, int64 ``[M, k]``."""
        return self._arrays[0]

    @property
    def packs(self) -> IntArray:
        """Packs of every candidate, int64 ``[M]``."""
        return self._arrays[1][:, 0]

    @property
    def efficiency(self) -> NDArray[np.float64]:
        """Efficiencies against the limits, float64 ``[M, k]``."""
        return efficiencies(self.totals, self.packs, self.limits)

    @property
    def harmonic_means(self) -> NDArray[np.float64]:
        """Harmonic mean of the efficiencies of every candidate, float64 ``[M]``."""
        return harmonic_means(self.efficiency)

    def columns(self, order: IntArray) -> dict[str, Any]:
        """Limits, packs, most graphs, and largest contents of the candidates in an order: the table of a result."""
        limits, found = (array[order] for array in self._arrays)
        return {"limits": limits, "packs": found[:, 0], "most_graphs": found[:, 1], "used": found[:, 2:]}

    def used(self, row: Row) -> list[int]:
        """Largest content of a pack, by component."""
        content: list[int] = self.found[row][2:].tolist()
        return content

    def bounds(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        """Efficiencies ``[M, k]`` that no plan within these limits can exceed: the continuous bound on packs."""
        limits = np.array(rows, dtype=np.int64).reshape(-1, len(self.totals))
        return efficiencies(self.totals, self.bounds_on_packs(rows), limits)

    def bounds_on_packs(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        """Packs ``[M]`` that no plan within these limits can stay below: the continuous bound."""
        limits = np.array(rows, dtype=np.int64).reshape(-1, len(self.totals))
        packs = np.ceil(self.totals / limits).max(axis=1)
        fewest = 1 if self.cap is None else -(-self.histogram.num_graphs // self.cap)
        return np.asarray(np.maximum(packs, fewest), dtype=np.float64)

    def bounds_on_harmonic_means(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        """Harmonic means ``[M]`` that no plan within these limits can exceed."""
        return harmonic_means(self.bounds(rows))

    def candidate(self, row: Row) -> Candidate:
        """One of the candidates, by its limits; scored by the harmonic mean."""
        packs, most, *used = self.found[row].tolist()
        names = self.histogram.components
        effective = Limits.from_components({n: max(1, v) for n, v in zip(names, used, strict=True)}, most)
        totals = self.histogram.totals()
        limits = self._task.limits_of(row)
        efficiency = {name: totals[name] / (packs * limit) for name, limit in limits.maxima.items()}
        score = harmonic_mean(efficiency)
        return Candidate(limits, packs, most, effective, self.histogram.num_graphs, totals, score)


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
