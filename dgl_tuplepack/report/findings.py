"""The figures of a report about a histogram; the page puts them into words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.histogram import SizeHistogram, quantiles
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing import pack
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.report.plain_batching import joined_batches, padded_by_batch, padded_to_largest
from dgl_tuplepack.search import LimitsSearch, search_limits
from dgl_tuplepack.sizes import components_of_kind

# With more graphs than this, no epoch in random order is simulated.
_MOST_SIMULATED = 20_000_000


@dataclass(frozen=True)
class ComponentFigures:
    """How one component is distributed over the graphs."""

    name: str
    mean: float
    median: int
    most_of_99_percent: int
    largest: int
    total: int


@dataclass(frozen=True)
class Way:
    """A way to batch, and the slots that it needs in one epoch, by component."""

    name: str
    note: str
    slots: Mapping[str, float]
    static: bool

    @property
    def all_slots(self) -> float:
        """Slots of all components together."""
        return sum(self.slots.values())


@dataclass(frozen=True)
class Findings:
    """All figures of a report; the last of `ways` is packing. Graphs that are left out count in `dropped` alone."""

    histogram: SizeHistogram
    components: Sequence[ComponentFigures]
    search: LimitsSearch
    limits: Limits
    plans: Mapping[str, PackPlan]
    ways: Sequence[Way]
    dropped: int

    @property
    def plan(self) -> PackPlan:
        """The plan by `auto`."""
        return self.plans["auto"]

    @property
    def shape(self) -> dict[str, int]:
        """Padded shape of a batch of one pack, with the reserved node of each type and the reserved graph."""
        return padded_shape(self.limits) | {"graphs": self.plan.max_graphs + 1}


def find(
    histogram: SizeHistogram,
    limits: Limits | None,
    batch_sizes: Sequence[int],
    seed: int,
    dropped: int = 0,
    advance: Callable[[], object] = lambda: None,
    graphs_per_batch: int = 64,
) -> Findings:
    """Search limits, pack within them or within those given, and compare with plain batching.

    `advance` is called after each of these three steps.
    """
    search = _search(histogram, graphs_per_batch)
    advance()
    chosen = (search.best.limits if limits is None else limits).aligned(histogram.components)
    plans = {"no packing": pack(histogram, chosen, "none")}
    if histogram.num_graphs <= _MOST_SIMULATED:
        plans["next fit, random order"] = pack(histogram, chosen, "next_fit", seed=seed)
    plans["best fit, product"] = pack(histogram, chosen, "best_fit")
    plans["auto"] = pack(histogram, chosen, seed=seed)
    advance()
    figures = [_figures(histogram, column, name) for column, name in enumerate(histogram.components)]
    ways = _ways(histogram, plans["auto"], batch_sizes, seed)
    advance()
    return Findings(histogram, figures, search, chosen, plans, ways, dropped)


def _search(histogram: SizeHistogram, graphs_per_batch: int) -> LimitsSearch:
    """Search limits for a number of graphs in a batch; where the largest graph rules it out, the smallest full ones."""
    graphs = min(graphs_per_batch, histogram.num_graphs)
    try:
        return search_limits(histogram, graphs_per_batch=graphs, packs_per_batch="auto")
    except SearchError:
        return search_limits(histogram)


def padded_shape(limits: Limits) -> dict[str, int]:
    """Return component -> slots of a batch of one pack: the limits, and one reserved node of each type."""
    nodes = components_of_kind(limits.components, "nodes")
    return {name: limit + (i in nodes) for i, (name, limit) in enumerate(limits.maxima.items())}


def _figures(histogram: SizeHistogram, column: int, name: str) -> ComponentFigures:
    median, most, largest = quantiles(histogram.sizes[:, column], histogram.counts, (0.5, 0.99, 1.0))
    total = histogram.totals()[name]
    return ComponentFigures(name, total / histogram.num_graphs, median, most, largest, total)


def _ways(histogram: SizeHistogram, plan: PackPlan, batch_sizes: Sequence[int], seed: int) -> list[Way]:
    largest = padded_to_largest(histogram)
    ways = [Way("Every graph padded to the largest", "the usual way to a static shape", largest, True)]
    for size in batch_sizes:
        name, slots = f"Padded to the largest of each {size:,} graphs", padded_by_batch(histogram, size)
        ways.append(Way(name, "expected, in random order", slots, static=False))
    if histogram.num_graphs <= _MOST_SIMULATED:
        mean = max(1, round(histogram.num_graphs / plan.num_packs))
        for size in sorted({mean, *batch_sizes}):
            _, joined = joined_batches(histogram, size, seed)
            note = "one random epoch; another can need a larger shape"
            ways.append(Way(f"{size:,} graphs joined, padded to the fullest such batch", note, joined, True))
    packed = {name: plan.num_packs * slots for name, slots in padded_shape(plan.limits).items()}
    return [*ways, Way("Packing", "with the reserved node of each pack", packed, True)]
