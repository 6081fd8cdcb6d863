"""Plans of several methods side by side, and how fast each of them trains."""

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

_ROUNDS, _STEPS = 5, 4


@dataclass
class Contender:
    """One row of the table: a way to batch, its plan, and its measured speed in graphs a second.

    With `compiled`, the network runs in compiled code.
    """

    name: str
    plan: PackPlan
    graphs_per_second: float | None = None
    compiled: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"name": self.name, "graphs_per_second": self.graphs_per_second, **summarise(self.plan)}


def contenders(histogram: SizeHistogram, limits: Limits, seed: int) -> list[Contender]:
    """Plan by plain batching (only one graph is sure to fit a pack), next fit, the paper's best fits, and auto."""
    ways: list[tuple[str, dict[str, Any]]] = [("plain batching", {"method": "none"})]
    ways += [("next fit", {"method": "next_fit", "seed": seed})]
    ways += [(f"best fit, {name}", {"method": "best_fit", "heuristic": name}) for name in NAMES]
    ways += [("auto", {"method": "auto", "seed": seed})]
    return [Contender(name, pack(histogram, limits, **settings)) for name, settings in ways]


def measure(
    rows: list[Contender],
    batches_of: Callable[[PackPlan], Iterator[PaddedBatch]],
    packs_per_batch: int,
    train_step: Callable[[PaddedBatch, bool], Any],
) -> None:
    """Fill in the speed of each contender: fetching, collating and training on its batches.

    `train_step` takes a batch, and whether to train in compiled code.

    All batches have one shape, so a step takes much the same time whatever is in it: the median time of a step counts,
    and the number of graphs in a batch is that of the whole epoch, not of the few steps measured. Rounds are
    interleaved, so that a busy moment of the machine does not fall on one contender alone.
    """
    streams = [batches_of(row.plan) for row in rows]
    seconds: list[list[float]] = [[] for _ in rows]
    turns = [(round_number, row) for round_number in range(_ROUNDS + 1) for row in range(len(rows))]
    for round_number, row in progress_bar(turns, desc="measuring each way", leave=False):
        # The first round only warms up, and compiles.
        for _ in range(_STEPS if round_number else 1):
            begin = time.perf_counter()
            train_step(next(streams[row]), rows[row].compiled)
            if round_number:
                seconds[row].append(time.perf_counter() - begin)
    for contender, measured in zip(rows, seconds, strict=True):
        graphs_per_step = contender.plan.histogram.num_graphs / contender.plan.num_packs * packs_per_batch
        contender.graphs_per_second = graphs_per_step / statistics.median(measured)
