"""Compare batch sizes by their padding: batches of exactly that many graphs, and packs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgl_tuplepack._core.progress import DELAY, progress_bar
from dgl_tuplepack.errors import SamplerError, SearchError
from dgl_tuplepack.planning.buckets import steps_of
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.search import search_limits
from dgl_tuplepack.planning.search.strategies import AUTO
from dgl_tuplepack.planning.sizes import GraphSizes
from dgl_tuplepack.sampling.exact_batches import shape_of

# With more graphs than this, the shapes of exact batches come from a sample, which takes seconds for any dataset.
MOST = 250_000


@dataclass(frozen=True)
class Batches:
    """Batches of one kind: the limits of a pack, and the padding relative to real content, None if there is none."""

    limits: Limits
    packs_per_batch: int
    padding: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**vars(self), "limits": self.limits.to_dict()}


@dataclass(frozen=True)
class BatchSizes:
    """A table of batch sizes: for each, exact batches and packs, None where they are impossible.

    `graphs`: the number of graphs; `tried`: how many of them the shapes of exact batches come from.
    """

    batch_size: int
    components: tuple[str, ...]
    graphs: int
    tried: int
    rows: Sequence[tuple[int, Batches | None, Batches | None]]

    @property
    def headings(self) -> list[str]:
        """Headings of `cells`."""
        return ["batch size", "exact: padding", *(f"exact: {name}" for name in self.components), "packs: padding"]

    @property
    def cells(self) -> list[list[Any]]:
        """The rows as texts and whole numbers, for people."""
        none = ["-"] * len(self.components)
        return [
            [size, _percent(exact), *(exact.limits.values if exact else none), _percent(packs)]
            for size, exact, packs in self.rows
        ]

    @property
    def use(self) -> str:
        """How to use both kinds of batches in Python."""
        return (
            f"tp.StaticBatchSampler(dataset, {self.batch_size}) for exact batches, "
            f"tp.packed_loader(dataset, graphs_per_batch={self.batch_size}) for packs"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        rows = [
            {"batch_size": size, "exact": exact and exact.to_dict(), "packs": packs and packs.to_dict()}
            for size, exact, packs in self.rows
        ]
        return {"graphs": self.graphs, "graphs_tried": self.tried, "batch_sizes": rows}


def compare_batch_sizes(histogram: SizeHistogram, batch_size: int) -> BatchSizes:
    """Compare a quarter, a half, one, two and four times `batch_size`, if there are that many graphs."""
    asked = (batch_size // 4, batch_size // 2, batch_size, 2 * batch_size, 4 * batch_size)
    possible = sorted({size for size in asked if 1 <= size <= histogram.num_graphs})
    histogram = histogram.without_ids()
    sizes = _sizes(histogram)
    bar = progress_bar(possible, desc="batch sizes", delay=DELAY, leave=False)
    rows = [(size, _exact(histogram, sizes, size), _packs(histogram, size)) for size in bar]
    return BatchSizes(batch_size, histogram.components, histogram.num_graphs, len(sizes), rows)


def _percent(batches: Batches | None) -> str:
    return "-" if batches is None or batches.padding is None else f"{100 * batches.padding:.2f} %"


def _sizes(histogram: SizeHistogram) -> GraphSizes:
    """Return the sizes of all graphs; of more than MOST, evenly spaced ones, and the largest in each component."""
    if histogram.num_graphs <= MOST:
        return GraphSizes(np.repeat(histogram.sizes, histogram.counts, axis=0), histogram.components)
    positions = np.arange(MOST) * (histogram.num_graphs / MOST)
    classes = np.searchsorted(np.cumsum(histogram.counts), positions, side="right")
    chosen = np.concatenate([classes, histogram.sizes.argmax(axis=0)])
    return GraphSizes(histogram.sizes[chosen], histogram.components)


def _exact(histogram: SizeHistogram, sizes: GraphSizes, batch_size: int) -> Batches | None:
    """Return exact batches; None if sizes are too large for a repair, or if a sample has too few graphs."""
    if batch_size > len(sizes):
        return None
    try:
        limits = shape_of(sizes, batch_size)
    except SamplerError:
        return None
    return Batches(limits, 1, _padding(sum(limits.values) * histogram.num_graphs, histogram, batch_size))


def _packs(histogram: SizeHistogram, batch_size: int) -> Batches | None:
    """Return packs within the advised limits; None if the largest graph rules out batches of so few graphs."""
    try:
        best = search_limits(histogram, graphs_per_batch=batch_size, packs_per_batch=AUTO).best
    except SearchError:
        return None
    (batches,) = steps_of(best.packs_of_shapes, best.packs_per_batch, drop_last=False)
    return Batches(best.limits, best.packs_per_batch, _padding(batches * best.packs_per_batch * best.slots, histogram))


def _padding(slots: int, histogram: SizeHistogram, times: int = 1) -> float | None:
    """Return the fraction of slots above `times` the content of all graphs."""
    content = times * sum(histogram.totals().values())
    return slots / content - 1 if content else None
