"""Compute the figures of a report about a histogram; `page` puts them into words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.planning.histogram import SizeHistogram, quantiles
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing import pack
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.search import LimitsSearch, search_for_batches
from dgl_tuplepack.planning.sizes import components_of_kind
from dgl_tuplepack.tools.report.batch_sizes import BatchSizes, compare_batch_sizes

# With more graphs than this, epochs in random order are not simulated.
_MOST_SIMULATED = 20_000_000
# Makes the random order of `joined_batches` independent of other uses of the seed.
_PURPOSE = 0x9A7C


@dataclass(frozen=True)
class Batching:
    """A method of batching to one static shape, and the slots of one epoch, by component."""

    name: str
    note: str
    slots: Mapping[str, int]

    @property
    def all_slots(self) -> int:
        """Slots of all components together."""
        return sum(self.slots.values())


@dataclass(frozen=True)
class Findings:
    """All figures of a report. Graphs that were left out are counted only in `dropped`.

    `quantiles` holds the median, the 99th percentile and the largest size of each component. The last entry of
    `batchings` is packing.
    """

    histogram: SizeHistogram
    quantiles: Mapping[str, Sequence[int]]
    search: LimitsSearch
    limits: Limits
    packs_per_batch: int
    plans: Mapping[str, PackPlan]
    batchings: Sequence[Batching]
    batch_sizes: BatchSizes
    dropped: int

    @property
    def plan(self) -> PackPlan:
        """The plan of method `auto`."""
        return self.plans["auto"]

    @property
    def advised(self) -> bool:
        """Whether `limits` are the limits that the search advises."""
        return bool(self.limits == self.search.best.limits)

    @property
    def shape(self) -> dict[str, int]:
        """Padded shape of the batches that the example code on the page loads."""
        graphs = self.limits.graphs or self.plan.max_graphs
        return padded_shape(self.limits, self.packs_per_batch) | {"graphs": self.packs_per_batch * graphs + 1}


def find(histogram: SizeHistogram, limits: Limits | None, graphs_per_batch: int, seed: int, dropped: int) -> Findings:
    """Search for limits, pack within `limits` (None: the advised limits), and compare packing with other methods."""
    graphs = min(graphs_per_batch, histogram.num_graphs)
    search = search_for_batches(histogram, graphs)
    chosen = (search.best.limits if limits is None else limits).aligned(histogram.components)
    plans = _plans(histogram, chosen, seed)
    plan = plans["auto"]
    if search.way == "graphs_per_batch" and chosen == search.best.limits:
        # Such a search also chooses the packs per batch, but only for the limits that it advises.
        packs_per_batch = search.packs_per_batch
    else:
        packs_per_batch = max(1, round(graphs * plan.num_packs / histogram.num_graphs))
    size_quantiles = {
        name: quantiles(histogram.sizes[:, column], histogram.counts, (0.5, 0.99, 1.0))
        for column, name in enumerate(histogram.components)
    }
    batchings = _batchings(histogram, graphs, plan, packs_per_batch, seed)
    batch_sizes = compare_batch_sizes(histogram, graphs)
    return Findings(histogram, size_quantiles, search, chosen, packs_per_batch, plans, batchings, batch_sizes, dropped)


def _plans(histogram: SizeHistogram, limits: Limits, seed: int) -> dict[str, PackPlan]:
    """Return the plans to compare, by the name of their method; "auto" is the last one."""
    plans = {"no packing": pack(histogram, limits, "none")}
    if histogram.num_graphs <= _MOST_SIMULATED:
        plans["next fit, random order"] = pack(histogram, limits, "next_fit", seed=seed)
    plans["best fit, product"] = pack(histogram, limits, "best_fit")
    plans["auto"] = pack(histogram, limits, seed=seed)
    return plans


def padded_shape(limits: Limits, packs: int) -> dict[str, int]:
    """Return component -> slots of a batch: `packs` times the limit, plus one reserved node of each node type."""
    nodes = components_of_kind(limits.components, "nodes")
    return {name: packs * limit + (i in nodes) for i, (name, limit) in enumerate(limits.maxima.items())}


def _batchings(histogram: SizeHistogram, graphs: int, plan: PackPlan, packs: int, seed: int) -> list[Batching]:
    """Return the methods to compare. Without packing, a batch has `graphs` graphs; with packing, `packs` packs."""
    largest = {name: histogram.num_graphs * most for name, most in histogram.maxima().items()}
    batchings = [Batching("Every graph padded to the largest", "the usual way to get a static shape", largest)]
    if histogram.num_graphs <= _MOST_SIMULATED:
        note = "one random epoch; another epoch can need a larger shape"
        joined = joined_batches(histogram, graphs, seed)
        batchings.append(Batching(f"Batches of {graphs:,} graphs, padded to the largest batch", note, joined))
    batches = -(-plan.num_packs // packs)
    packed = {name: batches * slots for name, slots in padded_shape(plan.limits, packs).items()}
    return [*batchings, Batching("Packing", "with the reserved node of each batch", packed)]


def joined_batches(histogram: SizeHistogram, batch_size: int, seed: int) -> dict[str, int]:
    """Return component -> slots of an epoch of batches of `batch_size` graphs, all padded to the largest batch.

    The graphs are in random order.

    Examples
    --------
    >>> joined_batches(SizeHistogram.from_counts({(3, 4): 4}), 3, seed=0)
    {'nodes': 18, 'edges': 24}
    """
    order = shuffled(np.repeat(np.arange(len(histogram)), histogram.counts), key_of(seed, 0, _PURPOSE))
    # order[i]: size class of the i-th graph of the epoch. contents[b]: total size of batch b.
    contents = np.add.reduceat(histogram.sizes[order], np.arange(0, len(order), batch_size), axis=0)
    return dict(zip(histogram.components, (len(contents) * contents.max(axis=0)).tolist(), strict=True))
