"""Search for limits whose packs are nearly full, hold a requested number of graphs, or stay within a budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dgl_tuplepack._core.checks import OVERSIZE, choice, whole_number
from dgl_tuplepack._core.progress import DELAY, progress_bar
from dgl_tuplepack.errors import LimitsError, SearchError
from dgl_tuplepack.planning.bounds import without_oversize
from dgl_tuplepack.planning.buckets import FEWEST, MOST, Buckets
from dgl_tuplepack.planning.histogram import SizeHistogram, as_histogram
from dgl_tuplepack.planning.packing import METHODS, pack_buckets
from dgl_tuplepack.planning.packing.fit import Settings
from dgl_tuplepack.planning.search.evaluation import (
    Candidate,
    LimitsSearch,
    Point,
    Space,
    affordable,
    in_threads,
    space_of,
)
from dgl_tuplepack.planning.search.strategies import AUTO, TOLERANCE, GraphsPerBatch, aim_for, strategy_of
from dgl_tuplepack.planning.sizes import GraphSizes

__all__ = ["Candidate", "LimitsSearch", "search_limits"]

GRAPHS_PER_BATCH = 64
_PROGRESS: Mapping[str, Any] = {"desc": "limits", "unit": " plans", "delay": DELAY}
# The smallest shape of each candidate has room for _FIRST to _LAST times as many mean graphs as a pack should hold.
_FIRST, _LAST, _SCALES = 0.6, 1.6, 41


def search_limits(
    histogram: SizeHistogram | GraphSizes | Any, *, graphs_per_batch: int | None = None,
    packs_per_batch: int | str | None = None, target: float | Mapping[str, float] | None = None,
    budget: float | None = None, cost: Mapping[str, float] | None = None, shapes: int | None = None,
    graphs: int | None = None, multiple_of: int = 1, oversize: str = "error",
    holding: SizeHistogram | GraphSizes | Any = None,
) -> LimitsSearch:  # fmt: skip
    """Search for limits for a histogram; `graphs_per_batch`, `target` or `budget` selects a strategy.

    The limits tried are called candidates; the strategy defines the best of them. Without these arguments ("smallest"),
    it has the fewest slots per pack (the sum of the limits) among candidates whose harmonic mean of efficiencies is at
    least 0.995 times the highest. Candidates begin with multiples of the mean size, from the smallest that holds the
    largest graph to three times as much. If sizes are nearly equal (that multiple is below 1.5), they begin at 8, so
    that reserved nodes are a small part of a batch.

    Parameters
    ----------
    histogram
        Graphs to pack: a histogram, or anything that `sizes_of` reads.
    graphs_per_batch
        Mean number of graphs in a batch, >= 1, met to within 5 % if possible; it takes the place of the `batch_size` of
        plain batches. The best candidate has the highest harmonic mean of efficiencies.
    packs_per_batch
        With `graphs_per_batch`: number of packs in a batch, >= 1. None: 1. "auto": 2, so that any two graphs can meet
        in a batch; 1 if a batch has all graphs, or if two packs that hold every graph have room for more than
        `graphs_per_batch` graphs of mean size; more if the cap `graphs` requires it.
    target
        Lowest harmonic mean of the efficiencies to accept, in (0, 1]; or component -> lowest efficiency to accept. The
        best candidate has the fewest slots per pack.
    budget, cost
        `budget`: highest cost of the padded shape of one pack (reserved nodes included), > 0; the best candidate has
        the fewest packs. `cost`: component -> cost of one slot, such as bytes, >= 0, for every component; None: 1 each.
    shapes
        2 to 4: with `graphs_per_batch`, search for that many shape buckets with the fewest padded slots, of which the
        largest has the smallest limits that hold every graph. None: one shape.
    graphs
        Cap on the graphs of a pack, for all candidates; None: no cap.
    multiple_of
        The node slots of a pack, including the reserved node, and its edge slots are multiples of this number.
    oversize
        "error": every candidate holds every graph; if that makes `graphs_per_batch` or the budget impossible, raise
        SearchError. "drop": leave out graphs, the same for all candidates, that exceed the largest multiple of the mean
        size that `graphs_per_batch` or the budget allows, and warn about them.
    holding
        Other graphs that must fit within the limits of every candidate, but are not packed, such as the validation
        split.

    Returns
    -------
    LimitsSearch
        All candidates that were planned, the best candidate, and the Pareto front (slots per pack, harmonic mean).

    Raises
    ------
    SearchError
        Arguments contradict each other, or no limits meet the target, `graphs_per_batch` or the budget.
    GraphTooLargeError
        No graph would be left after large graphs are dropped.

    Notes
    -----
    At most 200 candidates are planned, in threads on all cores, as `pack` does with an effort of 0; fewer if all plans
    together would take more than about two seconds of processor time. This work is counted, not timed. With the advised
    limits, `pack` needs no more packs than the search counted.

    Source: Krell et al. 2022 (arXiv 2209.06354), section 2.5, for the harmonic mean of efficiencies.

    Examples
    --------
    >>> from dgl_tuplepack import load_example
    >>> search = search_limits(load_example("ogbg-molhiv"))
    >>> search.best.limits, search.best.packs, round(search.best.harmonic_mean, 3)
    (Limits(nodes=233, edges=502, graphs=None), 3579, 0.993)
    """
    kind, aim = strategy_of(
        target=target, graphs_per_batch=graphs_per_batch, packs_per_batch=packs_per_batch, budget=budget, cost=cost
    )
    multiple_of = whole_number("multiple_of", multiple_of, 1, 2**31, SearchError)
    cap = None if graphs is None else whole_number("graphs", graphs, 1, error=SearchError)
    choice("oversize", oversize, OVERSIZE, SearchError)
    if shapes is not None:
        shapes = whole_number("shapes", shapes, FEWEST, MOST, SearchError)
        if kind is not GraphsPerBatch:
            raise SearchError(
                f"shapes={shapes} works only with graphs_per_batch, but the search is {kind.name!r}; give "
                "graphs_per_batch, or leave shapes out."
            )
    histogram = as_histogram(histogram)
    others = None if holding is None else as_histogram(holding)
    if others is not None and others.components != histogram.components:
        raise SearchError(
            f"the graphs of holding= have the components {list(others.components)}, but the graphs to pack have "
            f"{list(histogram.components)}; give graphs of the same types."
        )
    aim = aim_for(aim, histogram)
    space = space_of(histogram, multiple_of, others)
    if shapes is not None:
        return _search_buckets(histogram.without_ids(), space, shapes, aim, cap, multiple_of)
    strategy, dropped = kind(aim, histogram, space, cap), 0
    if oversize == "drop" and strategy.allowed is not None:
        limits = space.limits(strategy.allowed)
        histogram, dropped = without_oversize(histogram, limits, oversize)
        if others is not None:
            others, _ = without_oversize(others, limits, oversize)
        strategy = kind(strategy.aim, histogram, space_of(histogram, multiple_of, others), cap)
    with progress_bar(**_PROGRESS) as bar:
        strategy.run(bar)
    points = sorted(strategy.results)
    candidates = tuple(map(strategy.candidate, points))
    return LimitsSearch(kind.name, strategy.aim, candidates, points.index(strategy.best), multiple_of, dropped)


def search_for_batches(
    histogram: SizeHistogram, graphs_per_batch: int = GRAPHS_PER_BATCH, packs_per_batch: int | str = AUTO,
    **settings: Any
) -> LimitsSearch:  # fmt: skip
    """Search for batches of `graphs_per_batch` graphs, or all graphs if fewer; `settings` are as in `search_limits`.

    If the largest graph makes such batches impossible, search for the smallest limits with nearly the best efficiency.
    """
    graphs = min(graphs_per_batch, histogram.num_graphs)
    try:
        return search_limits(histogram, graphs_per_batch=graphs, packs_per_batch=packs_per_batch, **settings)
    except SearchError:
        # Without `graphs_per_batch`, `search_limits` accepts neither `shapes` nor `packs_per_batch`.
        if settings.get("shapes") is not None or packs_per_batch != AUTO:
            raise
        return search_limits(histogram, **settings)


def _search_buckets(
    histogram: SizeHistogram, space: Space, shapes: int, aim: dict[str, Any], cap: int | None, multiple_of: int
) -> LimitsSearch:
    """Search for buckets with the fewest slots, the best first; the largest shape just holds every graph."""
    asked, packs = aim["graphs_per_batch"], aim["packs_per_batch"]
    packs = 1 if packs == AUTO else packs
    largest = space.rounded(space.smallest)
    limits = space.limits(largest, cap)
    tried = list(_buckets(space, asked / packs, largest, shapes, cap))
    if not tried:
        raise SearchError(
            f"batches of {asked} graphs are about as large as the smallest limits that hold every graph, "
            f"{limits.maxima}, or larger, so {shapes} different shapes are impossible; leave shapes= (--shapes) out, "
            "choose smaller batches, or more packs_per_batch."
        )
    totals = histogram.totals()

    def planned(at: int) -> Candidate:
        plan = pack_buckets(histogram, tried[at], METHODS["auto"], Settings(effort=0.0))
        return Candidate(tried[at], plan.packs_of_shapes, histogram.num_graphs, totals, packs)

    def order(candidate: Candidate) -> tuple[float, int]:
        return max(TOLERANCE, abs(candidate.graphs_per_batch / asked - 1)), candidate.padded_slots

    # Plan buckets at a regular distance, then some near the best. found: index in `tried` -> candidate.
    found: dict[int, Candidate] = {}
    with progress_bar(**_PROGRESS) as bar:
        step = -(-len(tried) // affordable(histogram, limits, _SCALES, bar, shapes))
        chosen = list(range(0, len(tried), step))
        while chosen:
            found.update(zip(chosen, in_threads(planned, chosen, bar), strict=True))
            best = min(found, key=lambda at: order(found[at]))
            step //= 2
            near = (best - step, best + step) if order(found[best])[0] > TOLERANCE else ()
            chosen = [at for at in near if 0 <= at < len(tried) and at not in found]
    aim = {"graphs_per_batch": asked, "packs_per_batch": packs, "shapes": shapes}
    search = LimitsSearch(GraphsPerBatch.name, aim, tuple(sorted(found.values(), key=order)), 0, multiple_of)
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


def _buckets(space: Space, graphs: float, largest: Point, shapes: int, cap: int | None) -> Iterator[Buckets]:
    """Yield distinct buckets whose smallest shape has room for _FIRST to _LAST times `graphs` graphs of mean size."""
    # Only the largest shape must hold every graph.
    free = replace(space, smallest=(1,) * len(largest))
    for point in dict.fromkeys(free.ray(_FIRST * graphs, _LAST * graphs, _SCALES)):
        smallest = tuple(map(min, point, largest))
        # Each shape in between is a weighted geometric mean of the smallest and the largest shape.
        points = [smallest]
        for weight in (number / (shapes - 1) for number in range(1, shapes - 1)):
            means = (low ** (1 - weight) * high**weight for low, high in zip(smallest, largest, strict=True))
            points.append(free.rounded(means))
        try:
            yield Buckets([space.limits(each, cap) for each in (*points, largest)])
        except LimitsError:
            # Two of the shapes are equal.
            continue
