"""Search for limits that fill packs well, that hold about so many graphs, or that keep within a budget."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import fields
from typing import Any, overload

import numpy as np

from dgl_tuplepack._checks import check_oversize, is_one_of, shown, whole_number
from dgl_tuplepack.bounds import without_oversize
from dgl_tuplepack.errors import MethodError, SearchError
from dgl_tuplepack.histogram import SizeHistogram, as_histogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing.heuristics import Heuristic
from dgl_tuplepack.packing.settings import Settings
from dgl_tuplepack.search.auto import Auto
from dgl_tuplepack.search.buckets import BucketSearch, check_shapes, search_buckets
from dgl_tuplepack.search.budget import Budget
from dgl_tuplepack.search.evaluation import FITS, PACKERS, Objective, evaluating
from dgl_tuplepack.search.graphs_per_batch import GraphsPerBatch
from dgl_tuplepack.search.grid import Grid
from dgl_tuplepack.search.result import WAYS, Candidate, LimitsSearch
from dgl_tuplepack.search.settings import AUTO, Ranges
from dgl_tuplepack.search.space import space_of
from dgl_tuplepack.search.target import Target
from dgl_tuplepack.search.way import Way
from dgl_tuplepack.sizes import GraphSizes

__all__ = ["WAYS", "BucketSearch", "Candidate", "LimitsSearch", "search_limits"]

# The argument that chooses a way; the first of them that is given decides.
_CHOSEN_BY: Mapping[str, type[Way]] = {
    "target": Target, "graphs_per_batch": GraphsPerBatch, "budget": Budget, "ranges": Grid,
}  # fmt: skip


@overload
def search_limits(
    histogram: SizeHistogram | GraphSizes | Any, *, shapes: None = None, **settings: Any
) -> LimitsSearch: ...


@overload
def search_limits(histogram: SizeHistogram | GraphSizes | Any, *, shapes: int, **settings: Any) -> BucketSearch: ...


def search_limits(  # type: ignore[misc]  # the overloads tell what is returned, not each setting
    histogram: SizeHistogram | GraphSizes | Any,
    *,
    ranges: Ranges | None = None,
    target: float | Mapping[str, float] | None = None,
    graphs_per_batch: int | None = None,
    packs_per_batch: int | str | None = None,
    budget: float | None = None,
    cost: Mapping[str, float] | None = None,
    objective: Objective | None = None,
    tolerance: float | None = None,
    reach: float | None = None,
    plans: int | None = None,
    graphs: int | None = None,
    multiple_of: int = 1,
    method: str | None = None,
    heuristic: Heuristic | None = None,
    seed: int = 0,
    effort: float = 0.0,
    oversize: str = "error",
    holding: SizeHistogram | GraphSizes | Any = None,
    executor: Executor | None = None,
    shapes: int | None = None,
) -> LimitsSearch | BucketSearch:
    """Search limits for a histogram; the arguments that are given choose the way.

    - "auto", if none of the arguments below is given: advise the fewest slots per pack (the sum of the limits) among
      candidates whose harmonic mean of efficiencies is at least 0.995 times the highest. Limits grow along the mean
      size, up to three times what the largest graph needs, and are then refined around the best. What the largest graph
      needs is counted in mean graphs: the largest of its size / mean size over the components. If that is less than
      1.5, limits begin at eight mean graphs: packs of a single graph would be full too, but each has a reserved node.
      This does not hold if an `objective` is given.
    - `ranges` ("grid"): plan every combination, and advise by the same rule.
    - `target`: advise the fewest slots per pack that reach it, among the combinations of `ranges` (the result is then
      the smallest of them) or among limits that "auto" would try.
    - `graphs_per_batch`: advise the highest harmonic mean among limits whose batches hold that many graphs on average,
      to within 5 % where possible. `packs_per_batch` says of how many packs a batch is made.
    - `budget`: advise the fewest packs, and so the most graphs in each, among the limits tried whose padded shape costs
      no more.

    Parameters
    ----------
    histogram
        Graphs to pack; graph sizes are counted first.
    ranges
        Component -> limits to try, for every component: ``{"nodes": range(20, 60), "edges": range(54, 161, 2)}``.
    target
        Lowest harmonic mean of the efficiencies, in (0, 1]; or component -> lowest efficiency.
    graphs_per_batch
        Mean graphs of a batch, >= 1: the `batch_size` of plain batches.
    packs_per_batch
        With `graphs_per_batch`, packs of a batch, >= 1; None: 1. "auto": 2, so that any two graphs can meet in a batch,
        or 1 if the smallest limits that hold every graph hold more than half a batch; more where `graphs` asks for it.
        The result says which, as ``packs_per_batch``.
    budget, cost
        Highest cost of the padded shape of one pack (reserved nodes included), > 0; and component -> cost of one slot,
        >= 0, for every component. None: each slot costs 1. With costs in bytes, measured on a model, the budget is
        memory.
    objective
        For "auto" and "grid": function of a `Candidate` that returns its score, larger being better. None: the harmonic
        mean.
    tolerance
        For "auto" and "grid": how far the score may stay below the highest, as a fraction of it. None: 0.005; 0 advises
        the highest score.
    reach
        For "auto" and a target: largest limits, as a multiple of what the largest graph needs, >= 1. None: 3.
    plans
        Most candidates, >= 1; a grid is always planned as a whole. None: 200.
    graphs
        Cap on the graphs of a pack, for all candidates; None: no cap.
    multiple_of
        The padded shape of a pack (nodes with the reserved one, and every other component) is a multiple of this.
        Limits of ranges are rounded up accordingly.
    method, heuristic
        How each candidate is planned, as in `pack`: "auto", "best_fit", "first_fit" or "next_fit". None: "best_fit"
        (the paper's) if a heuristic is given, else "auto". Only "best_fit" and "first_fit" have a heuristic.
    seed, effort
        As in `pack`. With an effort of 0 "auto" is as fast as best fit, and `pack` may find fewer packs for the limits
        that are advised.
    oversize
        What to do with graphs that exceed the smallest limits of the ranges (or, for a batch size or a budget, the
        limits that it allows along the mean size): "error", or "drop" them for all candidates, with a warning.
    holding
        Other graphs that every candidate must hold too, such as those of the validation part: a histogram, or anything
        that `sizes_of` reads. They are not planned.
    executor
        Any ``concurrent.futures.Executor`` to make plans on; None: threads on all cores. The result does not depend on
        it.
    shapes
        2 to 4: search that many shape buckets for `graphs_per_batch`, with the fewest padded slots. The largest shape
        is the smallest that holds every graph. None: one shape.

    Returns
    -------
    LimitsSearch
        All candidates that were planned, the best one, and the Pareto front. With `shapes`, a `BucketSearch`.

    Raises
    ------
    SearchError
        Arguments contradict each other, a range is empty, or a target, batch size or budget is out of reach; the
        message then says what comes closest.
    GraphTooLargeError
        A graph exceeds the smallest limits of the ranges; names up to ten.
    MethodError
        The method, heuristic, seed or effort cannot be used.

    Notes
    -----
    Packs of candidates are counted, not made: a candidate takes about a microsecond for each size class with best fit;
    a few, and 0.3 ms, with "auto". Efficiencies are relative to the limits of the candidate.

    Source: Krell et al. 2022 (arXiv 2209.06354), sections 2.5 and 3.2, for grid and target.

    Examples
    --------
    >>> from dgl_tuplepack import load_example
    >>> search = search_limits(load_example("ogbg-molhiv"), ranges={"nodes": [222, 256], "edges": [502, 550]})
    >>> search.best.limits, search.best.packs, round(search.best.harmonic_mean, 3)
    (Limits(nodes=256, edges=550, graphs=None), 3259, 0.994)
    """
    way = way_of(
        ranges=ranges, target=target, graphs_per_batch=graphs_per_batch, budget=budget, cost=cost, objective=objective,
        packs_per_batch=packs_per_batch, tolerance=tolerance, reach=reach, plans=plans,
    )  # fmt: skip
    multiple_of = whole_number("multiple_of", multiple_of, 1, 2**31, SearchError)
    cap = None if graphs is None else whole_number("graphs", graphs, 1, error=SearchError)
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise SearchError(
            f"the executor must be a concurrent.futures.Executor, but is {executor!r}; give one, or None."
        )
    method, settings = _planning(method, heuristic, seed, effort)
    check_oversize(oversize, SearchError)
    number_of_shapes = None if shapes is None else _checked_shapes(shapes, way)
    histogram = as_histogram(histogram)
    others = None if holding is None else _same_components(as_histogram(holding), histogram)
    way = way.for_histogram(histogram)
    if number_of_shapes is not None and isinstance(way, GraphsPerBatch):
        packs = 1 if way.packs_per_batch == AUTO else int(way.packs_per_batch)
        return search_buckets(
            histogram.without_ids(), space_of(histogram, multiple_of, others), number_of_shapes, way.graphs_per_batch,
            packs, cap, method, settings,
        )  # fmt: skip
    kept, dropped, space = histogram, 0, space_of(histogram, multiple_of, others)
    way = way.settled(space, cap)
    smallest = way.smallest(space, oversize == "drop")
    if smallest is not None:
        limits = Limits.from_components(dict(zip(histogram.components, smallest, strict=True)))
        kept, dropped = without_oversize(histogram, limits, oversize)
        if others is not None:
            others, _ = without_oversize(others, limits, oversize)
        space = space_of(kept, multiple_of, others)
    with evaluating(kept.without_ids(), cap, method, settings, executor) as evaluation:
        way.search(evaluation, space)
        best, order = way.order(evaluation)[0], np.lexsort(evaluation.limits.T[::-1])
        return LimitsSearch(
            way.name, kept.components, kept.num_graphs, evaluation.totals, cap, **evaluation.columns(order),
            scores=way.scores(evaluation)[order], best_index=int(np.flatnonzero(order == best)[0]), method=method,
            heuristic=evaluation.heuristic, seed=settings.seed, multiple_of=multiple_of, dropped=dropped, aim=way.aim,
        )  # fmt: skip


def way_of(**asked: Any) -> Way:
    """Return the way that arguments of `search_limits` choose; those that are None count as not given.

    A SearchError if the way does not take one of the arguments, or refuses its value.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    way = next((way for name, way in _CHOSEN_BY.items() if name in given), Auto)
    taken = sorted(field.name for field in fields(way))
    idle = [name for name in given if name not in taken]
    if idle:
        raise SearchError(
            f"{', '.join(idle)} cannot be given for a search of the way {way.name!r}, which takes only "
            f"{', '.join(taken)}; leave {'them' if len(idle) > 1 else 'it'} out."
        )
    return way(**given)


def _checked_shapes(shapes: object, way: Way) -> int:
    """Return the number of shapes; refuse (SearchError) one that is not 2 to 4, and other ways of searching."""
    number = check_shapes(shapes)
    if not isinstance(way, GraphsPerBatch):
        raise SearchError(
            f"shapes={number} is for batches of a number of graphs, but the search is of the way {way.name!r}; give "
            "graphs_per_batch, or leave shapes out."
        )
    return number


def _same_components(others: SizeHistogram, histogram: SizeHistogram) -> SizeHistogram:
    """Return `others`; refuse (SearchError) components that are not those of the histogram."""
    if others.components != histogram.components:
        raise SearchError(
            f"the graphs that limits must hold have the components {list(others.components)}, but those to pack have "
            f"{list(histogram.components)}; give graphs of the same types."
        )
    return others


def _planning(method: str | None, heuristic: Heuristic | None, seed: int, effort: float) -> tuple[str, Settings]:
    """Return the method that plans candidates, and its settings."""
    if method is None:
        method = "auto" if heuristic is None else "best_fit"
    if not is_one_of(method, PACKERS):
        raise MethodError(f"limits are searched with one of {', '.join(PACKERS)}, but the method is {shown(method)}.")
    if heuristic is not None and method not in FITS:
        raise MethodError(f"a heuristic is for {' and '.join(FITS)}, but the method is {method!r}; leave one out.")
    return method, Settings("product" if heuristic is None else heuristic, seed, effort=effort)
