"""Search for shape buckets for batches of about `graphs_per_batch` graphs, with as few padded slots as possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dgl_tuplepack.errors import LimitsError, SearchError
from dgl_tuplepack.planning.buckets import Buckets
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing import METHODS
from dgl_tuplepack.planning.packing.buckets import pack_buckets
from dgl_tuplepack.planning.packing.settings import Settings
from dgl_tuplepack.planning.search.evaluation import affordable, in_threads, progress
from dgl_tuplepack.planning.search.result import Candidate, LimitsSearch
from dgl_tuplepack.planning.search.space import Point, Space
from dgl_tuplepack.planning.search.strategies import TOLERANCE, GraphsPerBatch

# The smallest shape of each candidate has room for _FIRST to _LAST times as many graphs of mean size as a pack should
# hold.
_FIRST, _LAST = 0.6, 1.6
# Number of factors tried from _FIRST to _LAST.
_SCALES = 41


def search_buckets(
    histogram: SizeHistogram, space: Space, shapes: int, strategy: GraphsPerBatch, cap: int | None, multiple_of: int
) -> LimitsSearch:
    """Search for buckets with the fewest slots, for batches of `strategy.graphs_per_batch` graphs.

    The best candidate comes first in the result. The largest shape always has the smallest limits that hold every
    graph.
    """
    largest = space.rounded(space.smallest)
    asked, packs = strategy.graphs_per_batch, strategy.packs
    maxima = dict(zip(space.components, largest, strict=True))
    tried = list(_buckets(space, asked / packs, largest, shapes, cap))
    if not tried:
        raise SearchError(
            f"batches of {asked} graphs are about as large as the smallest limits that hold every graph, "
            f"{maxima}, or larger, so {shapes} different shapes are impossible; leave shapes= (--shapes) out, choose "
            "smaller batches, or more packs_per_batch."
        )
    with progress() as bar:
        most = affordable(histogram, Limits.from_components(maxima, cap), _SCALES, bar, shapes)
        candidates = tuple(_candidates(histogram, tried, strategy, most, bar))
    aim = {"graphs_per_batch": asked, "packs_per_batch": packs, "shapes": shapes}
    search = LimitsSearch("graphs_per_batch", aim, candidates, 0, multiple_of)
    mean, graphs = search.graphs_per_batch, search.best.num_graphs
    # With few graphs, a last batch that is not full lowers the mean: accept the number of plain batches.
    as_plain = round(graphs / mean) in (graphs // asked, -(-graphs // asked))
    if abs(mean - asked) > max(TOLERANCE * asked, 0.5) and not as_plain:
        raise SearchError(
            f"graphs_per_batch={asked} is out of reach with {shapes} shapes: batches of the best shapes found, "
            f"{search.best.limits!r}, hold {mean:.1f} graphs on average; use about that number, another number of "
            "shapes or of packs_per_batch, or set a cap (graphs=, `dgl-tuplepack limits --max-graphs`)."
        )
    return search


def _candidates(
    histogram: SizeHistogram, tried: list[Buckets], strategy: GraphsPerBatch, most: int, bar: Any
) -> list[Candidate]:
    """Plan at most `most` of the buckets `tried`, evenly spaced, then some near the best; return them, best first."""
    totals = histogram.totals()

    def planned(at: int) -> Candidate:
        """Plan packs with an effort of 0, and return the candidate."""
        plan = pack_buckets(histogram, tried[at], METHODS["auto"], Settings(effort=0.0))
        return Candidate(tried[at], plan.packs_of_shapes, histogram.num_graphs, totals, strategy.packs)

    def order(found: Candidate) -> tuple[float, int]:
        """Return the sort key: the distance from the requested number of graphs per batch, then padded slots."""
        return max(TOLERANCE, abs(found.graphs_per_batch / strategy.graphs_per_batch - 1)), found.padded_slots

    # found: index in `tried` -> candidate.
    found: dict[int, Candidate] = {}
    step = -(-len(tried) // most)
    chosen = list(range(0, len(tried), step))
    while chosen:
        found.update(zip(chosen, in_threads(planned, chosen, bar), strict=True))
        best = min(found, key=lambda at: order(found[at]))
        distance, _ = order(found[best])
        step //= 2
        near = (best - step, best + step) if distance > TOLERANCE else ()
        chosen = [at for at in near if 0 <= at < len(tried) and at not in found]
    return sorted(found.values(), key=order)


def _buckets(space: Space, graphs: float, largest: Point, shapes: int, cap: int | None) -> Iterator[Buckets]:
    """Yield distinct buckets whose smallest shape has room for _FIRST to _LAST times `graphs` graphs of mean size."""
    # Only the largest shape must hold every graph.
    free = replace(space, smallest=(1,) * len(largest))
    for point in dict.fromkeys(free.ray(_FIRST * graphs, _LAST * graphs, _SCALES)):
        smallest = tuple(map(min, point, largest))
        # Each shape in between is a weighted geometric mean of the smallest and the largest shape.
        weights = [number / (shapes - 1) for number in range(1, shapes - 1)]
        between = [
            free.rounded(low ** (1 - weight) * high**weight for low, high in zip(smallest, largest, strict=True))
            for weight in weights
        ]
        points = (smallest, *between, largest)
        try:
            yield Buckets(
                [Limits.from_components(dict(zip(space.components, each, strict=True)), cap) for each in points]
            )
        except LimitsError:
            # Two of the shapes are equal.
            continue
