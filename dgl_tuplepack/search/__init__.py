"""Search of limits: which ones fill packs well, hold about so many graphs, or keep within a budget."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from concurrent.futures import Executor
from numbers import Integral
from typing import Any

import numpy as np

from dgl_tuplepack._checks import as_real, is_one_of, shown, whole_number
from dgl_tuplepack.bounds import without_oversize
from dgl_tuplepack.errors import MethodError, SearchError
from dgl_tuplepack.histogram import SizeHistogram, as_histogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing.heuristics import Heuristic
from dgl_tuplepack.packing.settings import Settings
from dgl_tuplepack.search.auto import Objective, Scoring, search_auto
from dgl_tuplepack.search.budget import Price, search_budget
from dgl_tuplepack.search.evaluation import FITS, PACKERS, Evaluation
from dgl_tuplepack.search.graphs_per_batch import search_graphs_per_batch
from dgl_tuplepack.search.grid import Ranges, combinations, search_grid, values_of
from dgl_tuplepack.search.result import WAYS, Candidate, LimitsSearch
from dgl_tuplepack.search.space import Row, Space, space_of
from dgl_tuplepack.search.target import Reaching, Target, search_target, search_target_in_ranges
from dgl_tuplepack.sizes import GraphSizes

__all__ = ["WAYS", "Candidate", "LimitsSearch", "search_limits"]

_DEFAULTS = {"tolerance": 0.005, "reach": 3.0, "plans": 200}
# What each way heeds; anything else that is given with it is refused.
_HEEDED = {
    "grid": {"ranges", "objective", "tolerance"},
    "target": {"target", "ranges", "reach", "plans"},
    "graphs_per_batch": {"graphs_per_batch", "plans"},
    "budget": {"budget", "cost", "plans"},
    "auto": {"objective", "tolerance", "reach", "plans"},
}


def search_limits(
    histogram: SizeHistogram | GraphSizes | Any,
    *,
    ranges: Ranges | None = None,
    target: Target | None = None,
    graphs_per_batch: int | None = None,
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
    executor: Executor | None = None,
) -> LimitsSearch:
    """Find limits for a histogram; what is given says in which way.

    - Nothing: "auto". The fewest slots per pack (the sum of the limits) among the candidates whose harmonic mean of
      efficiencies is within 0.5 % of the highest found, that is at least 0.995 times as high. Efficiency tends to 1
      as limits grow, hence an end: in mean graphs, limits go up to three times what the largest graph needs (the
      largest of its size / mean size, over the components). They are scaled along the mean size, then refined around.
      Where the largest graph needs less than 1.5 mean graphs, they begin at eight: packs of one would be full too, but
      each has a reserved node. An `objective` is free to prefer them.
    - `ranges`: "grid", every combination, advised by the same rule.
    - `target`: the fewest slots per pack that reach it, among the combinations of `ranges` (then no smaller one does)
      or among what a search like that of "auto" tries.
    - `graphs_per_batch`: the highest harmonic mean among limits whose packs hold that many graphs on average, to
      within 5 % where that can be had.
    - `budget`: the fewest packs, and so the most graphs in each, among limits tried whose padded shape it pays for.

    Parameters
    ----------
    histogram
        What is to be packed, or graph sizes, to be counted first.
    ranges
        Component -> limits to try, for every component: ``{"nodes": range(20, 60), "edges": range(54, 161, 2)}``.
    target
        Least harmonic mean of the efficiencies, in (0, 1]; or component -> least efficiency.
    graphs_per_batch
        Mean graphs of a pack, >= 1.
    budget, cost
        Most that the padded shape of one pack (the reserved nodes included) may cost, above 0; and component -> cost of
        one slot, >= 0, for every component. None: 1 for all of them. Bytes per node and per edge, as measured on a
        model, make it memory.
    objective
        For "auto" and "grid": a function of a `Candidate`, larger being better, in place of the harmonic mean.
    tolerance
        How far, as a part of it, the score may stay below the highest; 0.005 if not given, 0 takes the highest itself.
    reach
        End of "auto" and of a target without ranges, in what the largest graph needs; 3 if not given, >= 1.
    plans
        Most candidates that are planned, 200 if not given; a grid is always planned as a whole.
    graphs
        Cap on the graphs of a pack, for all candidates; None: no cap.
    multiple_of
        The padded shape of a pack, nodes with the reserved one and every other component, is a multiple of this.
        Ranges are rounded up to it.
    method, heuristic
        How each candidate is planned, as in `pack`: "auto", "best_fit", "first_fit" or "next_fit". If not given,
        "best_fit" (the paper's) with a heuristic, else "auto". Only the two fits have a heuristic.
    seed, effort
        As in `pack`; with an effort of 0 "auto" is as quick as best fit, and `pack` may still find fewer packs for the
        limits that are chosen.
    oversize
        What to do with graphs that exceed the smallest limits of the ranges (or, for a batch size or a budget, what it
        leaves a graph along the mean size): "error", or "drop" (with a warning) from every candidate.
    executor
        Where plans are made: any ``concurrent.futures.Executor``; threads on all cores if not given. The result depends
        neither on it nor on its number of workers.

    Returns
    -------
    LimitsSearch
        All candidates that were planned, the best, and the Pareto front.

    Raises
    ------
    SearchError
        Settings contradict each other, a range is empty, or a target, batch size or budget is out of reach; the message
        then says what comes closest.
    GraphTooLargeError
        A graph exceeds the smallest limits of the ranges; up to ten are named.
    MethodError
        The method or the heuristic is unknown or cannot be used.

    Notes
    -----
    Of each candidate only the packs are counted: with best fit about a microsecond for each size class, with "auto" a
    few, and 0.3 ms. Efficiencies are against the limits asked for.

    Source: Krell et al. 2022 (arXiv 2209.06354), sections 2.5 and 3.2, for grid and target.

    Examples
    --------
    >>> from dgl_tuplepack import load_example
    >>> search = search_limits(load_example("ogbg-molhiv"), ranges={"nodes": [222, 256], "edges": [502, 550]})
    >>> search.best.limits, search.best.packs, round(search.best.harmonic_mean, 3)
    (Limits(nodes=256, edges=550, graphs=None), 3259, 0.994)
    """
    asked = {
        "ranges": ranges, "target": target, "graphs_per_batch": graphs_per_batch, "budget": budget, "cost": cost,
        "objective": objective, "tolerance": tolerance, "reach": reach, "plans": plans,
    }  # fmt: skip
    way, wanted = way_of(asked)
    multiple_of = whole_number("multiple_of", multiple_of, 1, 2**31, SearchError)
    cap = None if graphs is None else whole_number("graphs", graphs, 1, error=SearchError)
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise SearchError(f"the executor must be a concurrent.futures.Executor, but is {executor!r}.")
    method, settings = _planning(method, heuristic, seed, effort)
    histogram = as_histogram(histogram)
    if graphs_per_batch is not None:
        whole_number("graphs_per_batch", graphs_per_batch, 1, histogram.num_graphs, SearchError)
    histogram, dropped = _kept(histogram, way, wanted, multiple_of, oversize)
    histogram = histogram.without_ids()
    space = space_of(histogram, multiple_of)
    with Evaluation(histogram, cap, method, settings, executor) as evaluation:
        scoring = Scoring(objective, wanted["tolerance"])
        best = _searched(evaluation, space, way, wanted, scoring)
        order = np.lexsort(evaluation.limits.T[::-1])
        return LimitsSearch(
            way, histogram.components, histogram.num_graphs, evaluation.totals, cap,
            **evaluation.columns(order), scores=scoring(evaluation)[order],
            best_index=int(np.flatnonzero(order == best)[0]), method=method, heuristic=evaluation.heuristic,
            seed=settings.seed, multiple_of=multiple_of, dropped=dropped, aim=_aim(way, wanted),
        )  # fmt: skip


def way_of(asked: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The way that the given settings say, and the checked settings, defaults filled in.

    Raises
    ------
    SearchError
        Settings contradict each other, or one is out of its range.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    goals = [name for name in ("target", "graphs_per_batch", "budget") if name in given]
    way = goals[0] if goals else "grid" if "ranges" in given else "auto"
    idle = [name for name in given if name not in _HEEDED[way]]
    if idle:
        raise SearchError(
            f"{', '.join(idle)} cannot be given for a search of the way {way!r}, which heeds only "
            f"{', '.join(sorted(_HEEDED[way]))}; leave {'them' if len(idle) > 1 else 'it'} out."
        )
    wanted = {**dict.fromkeys(asked), **_DEFAULTS, **given}
    wanted["plans"] = whole_number("plans", wanted["plans"], 1, 1_000_000, SearchError)
    for name, least, most in (("tolerance", 0, 1), ("reach", 1, math.inf)):
        value = as_real(wanted[name])
        if value is None or not least <= value < most:
            raise SearchError(f"{name} must be a number >= {least} and below {most}, but is {shown(wanted[name])}.")
    if wanted["objective"] is not None and not callable(wanted["objective"]):
        raise SearchError(f"the objective must be a function of a Candidate, but is {wanted['objective']!r}.")
    return way, wanted


def _planning(method: str | None, heuristic: Heuristic | None, seed: int, effort: float) -> tuple[str, Settings]:
    """The method that plans candidates, and its settings."""
    if method is None:
        method = "auto" if heuristic is None else "best_fit"
    if not is_one_of(method, PACKERS):
        raise MethodError(f"limits are searched with one of {', '.join(PACKERS)}, but the method is {shown(method)}.")
    if heuristic is not None and method not in FITS:
        raise MethodError(f"a heuristic is for {' and '.join(FITS)}, but the method is {method!r}; leave one out.")
    return method, Settings("product" if heuristic is None else heuristic, seed, effort=effort)


def _kept(
    histogram: SizeHistogram, way: str, wanted: dict[str, Any], multiple_of: int, oversize: str
) -> tuple[SizeHistogram, int]:
    """The histogram without the graphs that exceed the smallest limits, and how many these are."""
    if not is_one_of(oversize, ("error", "drop")):
        raise SearchError(f"unknown oversize {shown(oversize)}; choose 'error' or 'drop'.")
    space = space_of(histogram, multiple_of)
    smallest: Row | None = None
    if wanted["ranges"] is not None:
        wanted["ranges"] = values_of(wanted["ranges"], space.components)
        wanted["rows"] = combinations(wanted["ranges"], space)
        smallest = tuple(map(min, zip(*wanted["rows"], strict=True)))
    elif way in ("graphs_per_batch", "budget") and oversize == "drop":
        number = wanted["graphs_per_batch"]
        if way == "budget":
            number = Price(wanted["budget"], wanted["cost"], space.components).scale(space)
        smallest = space.rounded_down(number * m for m in space.mean)
    if smallest is None:
        return histogram, 0
    limits = Limits.from_components(dict(zip(histogram.components, smallest, strict=True)))
    kept, dropped = without_oversize(histogram, limits, oversize)
    if dropped:
        warnings.warn(f"{dropped} of {histogram.num_graphs} graphs exceed {limits!r} and are left out.", stacklevel=3)
    return kept, dropped


def _searched(evaluation: Evaluation, space: Space, way: str, wanted: dict[str, Any], scoring: Scoring) -> int:
    """Search in one way; return the number of the candidate to advise."""
    plans, reach = wanted["plans"], float(wanted["reach"])
    if way == "grid":
        return search_grid(evaluation, wanted["rows"], scoring)
    if way == "target":
        rule = Reaching(wanted["target"], space)
        if wanted["ranges"] is not None:
            return search_target_in_ranges(evaluation, wanted["rows"], rule)
        return search_target(evaluation, space, rule, reach, plans)
    if way == "graphs_per_batch":
        return search_graphs_per_batch(evaluation, space, wanted["graphs_per_batch"], plans)
    if way == "budget":
        return search_budget(evaluation, space, Price(wanted["budget"], wanted["cost"], space.components), plans)
    return search_auto(evaluation, space, reach, plans, scoring)


def _aim(way: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, as plain data."""
    aim = {name: wanted[name] for name in sorted(_HEEDED[way]) if wanted[name] is not None}
    if "objective" in aim:
        aim["objective"] = getattr(aim["objective"], "__name__", type(aim["objective"]).__name__)
    for name in {"ranges", "target", "cost"} & set(aim):
        if isinstance(aim[name], Mapping):
            aim[name] = {str(component): _plain(value) for component, value in aim[name].items()}
    return {name: _plain(value) for name, value in aim.items()}


def _plain(value: Any) -> Any:
    """A number or a list of numbers that JSON can hold."""
    if isinstance(value, str | dict):
        return value
    if hasattr(value, "__iter__"):
        return [int(v) for v in value]
    return int(value) if isinstance(value, Integral) else float(value)
