"""Search shape buckets: limits of several shapes whose batches hold about so many graphs, with few slots."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from dgl_tuplepack._checks import whole_number
from dgl_tuplepack.buckets import FEWEST, MOST, Buckets, steps_of
from dgl_tuplepack.errors import LimitsError, SearchError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.metrics import harmonic_mean
from dgl_tuplepack.packing import METHODS
from dgl_tuplepack.packing.buckets import pack_buckets
from dgl_tuplepack.packing.settings import Settings
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.search.graphs_per_batch import TOLERANCE
from dgl_tuplepack.search.space import Row, Space

# The smallest shape holds so many mean graphs, as a multiple of the number asked for.
_FIRST, _LAST = 0.6, 1.6
_SCALES = 41


@dataclass(frozen=True, eq=False)
class BucketCandidate:
    """Shape buckets that were tried, and their plan.

    `limits` of each shape, the smallest first; a `plan` without effort; `packs_per_batch`, the packs of a batch.
    """

    limits: Buckets
    plan: PackPlan
    packs_per_batch: int

    @property
    def graphs_per_batch(self) -> float:
        """Mean graphs of a batch on one rank; a batch has packs of one shape."""
        steps = steps_of(self.plan.packs_of_shapes, self.packs_per_batch, drop_last=False)
        return self.plan.histogram.num_graphs / sum(steps)

    @property
    def harmonic_mean(self) -> float:
        """Harmonic mean of the efficiencies of the plan."""
        return harmonic_mean(self.plan.efficiency)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "limits": self.limits.to_dict(), "packs": list(self.plan.packs_of_shapes),
            "graphs_per_batch": self.graphs_per_batch, "efficiency": self.plan.efficiency,
            "harmonic_mean": self.harmonic_mean, "padded_slots": self.plan.padded_slots,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class BucketSearch:
    """The result of ``search_limits(..., shapes=2)``: `candidates` that were planned, the best first."""

    candidates: tuple[BucketCandidate, ...]

    @property
    def best(self) -> BucketCandidate:
        """The candidate with the fewest slots among batches of about the number of graphs that was asked for."""
        return self.candidates[0]

    @property
    def packs_per_batch(self) -> int:
        """Packs of a batch."""
        return self.best.packs_per_batch

    @property
    def graphs_per_batch(self) -> float:
        """Mean graphs of a batch within the best limits."""
        return self.best.graphs_per_batch

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        candidates = [each.to_dict() for each in self.candidates]
        return {"packs_per_batch": self.packs_per_batch, "best": candidates[0], "candidates": candidates}


def search_buckets(
    histogram: SizeHistogram, space: Space, shapes: int, asked: int, packs_per_batch: int, cap: int | None,
    method: str, settings: Settings,
) -> BucketSearch:  # fmt: skip
    """Return the shape buckets with the fewest slots for batches of about `asked` graphs.

    The largest shape is the smallest that holds every graph. The smallest shape grows along the mean size, and the
    others lie evenly between, by ratios. `cap` is the most graphs of a pack.
    """
    quick, largest = replace(settings, effort=0.0), space.rounded(space.smallest)

    def planned(limits: Buckets) -> BucketCandidate:
        return BucketCandidate(limits, pack_buckets(histogram, limits, METHODS[method], quick), packs_per_batch)

    def order(found: BucketCandidate) -> tuple[float, int]:
        return max(TOLERANCE, abs(found.graphs_per_batch / asked - 1)), found.plan.padded_slots

    tried = list(_buckets(space, asked / packs_per_batch, largest, shapes, cap))
    if not tried:
        raise SearchError(
            f"batches of {asked} graphs are as large as the smallest limits that hold every graph, "
            f"{dict(zip(space.components, largest, strict=True))}, so {shapes} shapes would save nothing; leave "
            "shapes= (--shapes) out, ask for smaller batches, or for more packs_per_batch."
        )
    with ThreadPoolExecutor() as threads:
        search = BucketSearch(tuple(sorted(threads.map(planned, tried), key=order)))
    mean, graphs = search.graphs_per_batch, histogram.num_graphs
    # With few graphs, the last batch, which is not full, decides the mean; plain batches have one too.
    as_plain = round(graphs / mean) in (graphs // asked, -(-graphs // asked))
    if abs(mean - asked) > max(TOLERANCE * asked, 0.5) and not as_plain:
        raise SearchError(
            f"graphs_per_batch={asked} is out of reach with {shapes} shapes: batches of the best that were found, "
            f"{search.best.limits!r}, hold {mean:.1f} graphs on average; ask for about that many, for another number "
            "of shapes or of packs_per_batch, or set a cap (graphs=, --graphs)."
        )
    return search


def check_shapes(shapes: object) -> int:
    """Return the number of shapes; SearchError unless batches can have so many."""
    return whole_number("shapes", shapes, FEWEST, MOST, SearchError)


def _buckets(space: Space, graphs: float, largest: Row, shapes: int, cap: int | None) -> Iterator[Buckets]:
    """Yield distinct buckets whose smallest shape holds about `graphs` mean graphs."""
    free = replace(space, smallest=(1,) * len(largest))
    for row in dict.fromkeys(free.ray(_FIRST * graphs, _LAST * graphs, _SCALES)):
        smallest = tuple(map(min, row, largest))
        steps = [number / (shapes - 1) for number in range(1, shapes - 1)]
        between = [free.rounded(a ** (1 - f) * b**f for a, b in zip(smallest, largest, strict=True)) for f in steps]
        rows = (smallest, *between, largest)
        try:
            yield Buckets(
                [Limits.from_components(dict(zip(space.components, each, strict=True)), cap) for each in rows]
            )
        except LimitsError:
            # Two shapes are the same.
            continue
