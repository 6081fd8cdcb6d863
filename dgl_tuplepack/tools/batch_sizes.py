"""Compare batch sizes by their padding: batches of exactly that many graphs, and packs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def compare_batch_sizes(histogram: SizeHistogram, batch_size: int) -> dict[str, Any]:
    """Compare a quarter, a half, one, two and four times `batch_size`, if there are that many graphs.

    Return plain data for JSON: for each batch size, the limits, packs per batch and padding (relative to the content)
    of exact batches and of packs, or None if they are impossible. Exact batches are made for `graphs_tried` graphs.
    """
    asked = (batch_size // 4, batch_size // 2, batch_size, 2 * batch_size, 4 * batch_size)
    possible = sorted({size for size in asked if 1 <= size <= histogram.num_graphs})
    histogram = histogram.without_ids()
    sizes = _sizes(histogram)
    rows = [
        {"batch_size": size, "exact": _exact(histogram, sizes, size), "packs": _packs(histogram, size)}
        for size in progress_bar(possible, desc="batch sizes", delay=DELAY, leave=False)
    ]
    return {"graphs": histogram.num_graphs, "graphs_tried": len(sizes), "batch_sizes": rows}


def table_of(compared: Mapping[str, Any], components: Sequence[str]) -> tuple[list[str], list[list[Any]]]:
    """Return the headings and the rows of a table for people, with texts and whole numbers."""
    headings = ["batch size", "exact: padding", *(f"exact: {name}" for name in components), "packs: padding"]
    cells = []
    for row in compared["batch_sizes"]:
        exact, packs = row["exact"], row["packs"]
        shape = exact["limits"]["maxima"].values() if exact else ["-"] * len(components)
        cells.append([row["batch_size"], _percent(exact), *shape, _percent(packs)])
    return headings, cells


def use_of(batch_size: int) -> str:
    """Return how to use both kinds of batches in Python."""
    return (
        f"tp.StaticBatchSampler(dataset, {batch_size}) for exact batches, "
        f"tp.packed_loader(dataset, graphs_per_batch={batch_size}) for packs"
    )


def _percent(batches: Mapping[str, Any] | None) -> str:
    return "-" if batches is None or batches["padding"] is None else f"{100 * batches['padding']:.2f} %"


def _sizes(histogram: SizeHistogram) -> GraphSizes:
    """Return the sizes of all graphs; of more than MOST, evenly spaced ones, and the largest in each component."""
    if histogram.num_graphs <= MOST:
        return GraphSizes(np.repeat(histogram.sizes, histogram.counts, axis=0), histogram.components)
    positions = np.arange(MOST) * (histogram.num_graphs / MOST)
    classes = np.searchsorted(np.cumsum(histogram.counts), positions, side="right")
    chosen = np.concatenate([classes, histogram.sizes.argmax(axis=0)])
    return GraphSizes(histogram.sizes[chosen], histogram.components)


def _exact(histogram: SizeHistogram, sizes: GraphSizes, batch_size: int) -> dict[str, Any] | None:
    """Return exact batches; None if sizes are too large for a repair, or if a sample has too few graphs."""
    if batch_size > len(sizes):
        return None
    try:
        limits = shape_of(sizes, batch_size)
    except SamplerError:
        return None
    return _described(limits, 1, sum(limits.values) * histogram.num_graphs, histogram, batch_size)


def _packs(histogram: SizeHistogram, batch_size: int) -> dict[str, Any] | None:
    """Return packs within the advised limits; None if the largest graph rules out batches of so few graphs."""
    try:
        best = search_limits(histogram, graphs_per_batch=batch_size, packs_per_batch=AUTO).best
    except SearchError:
        return None
    (batches,) = steps_of(best.packs_of_shapes, best.packs_per_batch, drop_last=False)
    slots = batches * best.packs_per_batch * best.slots
    return _described(best.limits, best.packs_per_batch, slots, histogram)


def _described(limits: Limits, packs: int, slots: int, histogram: SizeHistogram, times: int = 1) -> dict[str, Any]:
    """Describe batches; their padding is the fraction of slots above `times` the content of all graphs."""
    content = times * sum(histogram.totals().values())
    padding = slots / content - 1 if content else None
    return {"limits": limits.to_dict(), "packs_per_batch": packs, "padding": padding}
