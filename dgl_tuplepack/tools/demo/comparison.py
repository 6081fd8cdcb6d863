"""Compare several methods of batching: their plans, and the speed of training on their batches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.metrics import summarise
from dgl_tuplepack.planning.packing import pack
from dgl_tuplepack.planning.packing.heuristics import NAMES
from dgl_tuplepack.planning.plan import PackPlan

# Measured rounds, and steps of each contender in a round.
_ROUNDS, _STEPS = 5, 4


@dataclass
class Contender:
    """One row of the table that the demo prints: a batching method, its plan and its speed in graphs per second."""

    name: str
    plan: PackPlan
    graphs_per_second: float | None = None
    compiled: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"name": self.name, "graphs_per_second": self.graphs_per_second, **summarise(self.plan)}


def contenders(histogram: SizeHistogram, limits: Limits, seed: int) -> list[Contender]:
    """Make a plan with each method: plain batching, next fit, best fit with each heuristic, and auto."""
    methods: list[tuple[str, dict[str, Any]]] = [("plain batching", {"method": "none"})]
    methods += [("next fit", {"method": "next_fit", "seed": seed})]
    methods += [(f"best fit, {name}", {"method": "best_fit", "heuristic": name}) for name in NAMES]
    methods += [("auto", {"method": "auto", "seed": seed})]
    return [Contender(name, pack(histogram, limits, **settings)) for name, settings in methods]


def measure(
    rows: list[Contender],
    batches_of: Callable[[PackPlan], Iterator[PaddedBatch]],
    packs_per_batch: int,
    train_step: Callable[[PaddedBatch, bool], Any],
) -> None:
    """Measure how fast each contender fetches, collates and trains on batches, and set its `graphs_per_second`.

    `batches_of` yields the batches of a plan, epoch after epoch, without end. `train_step` accepts a batch and whether
    to run compiled.

    All batches have the same shape, so the time of a step hardly depends on the graphs in the batch. The contenders
    take turns, so that a busy moment of the machine does not slow only one contender.
    """
    streams = [batches_of(row.plan) for row in rows]
    seconds: list[list[float]] = [[] for _ in rows]
    turns = [(round_number, row) for round_number in range(_ROUNDS + 1) for row in range(len(rows))]
    for round_number, row in progress_bar(turns, desc="measuring each method", leave=False):
        # Round 0 is not measured: its only step warms up and compiles.
        for _ in range(_STEPS if round_number else 1):
            begin = time.perf_counter()
            train_step(next(streams[row]), rows[row].compiled)
            if round_number:
                seconds[row].append(time.perf_counter() - begin)
    for contender, measured in zip(rows, seconds, strict=True):
        graphs_per_step = contender.plan.histogram.num_graphs / contender.plan.num_packs * packs_per_batch
        contender.graphs_per_second = graphs_per_step / statistics.median(measured)
