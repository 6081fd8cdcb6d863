"""Lower bounds on the number of packs."""

from __future__ import annotations

import warnings

import numpy as np

from dgl_tuplepack._core.checks import OVERSIZE, choice
from dgl_tuplepack.errors import LimitsError
from dgl_tuplepack.planning.bounds.instance import Instance, Relaxation, as_instance, projected, quick_bound
from dgl_tuplepack.planning.bounds.pattern_lp import (
    Effort,
    PatternLP,
    Priced,
    effort_of,
    price,
    pricing_work,
    starting_point,
)
from dgl_tuplepack.planning.histogram import SizeHistogram, as_histogram
from dgl_tuplepack.planning.limits import Limits, as_limits
from dgl_tuplepack.planning.sizes import GraphSizes

# With more size classes, the pattern LP would take too long.
_MOST_LP_CLASSES = 3000
# Work to make a relaxation (see `projected`), for each size class.
_WORK_PER_CLASS = 10


def lower_bound(
    histogram: SizeHistogram | GraphSizes, limits: Limits, effort: float = 1.0, time_limit: float | None = None
) -> int:
    """Return a lower bound on the number of packs of any plan within `limits`.

    The result is the largest of these bounds: total / limit of each component, the cap on graphs included; bounds from
    large graphs (Martello & Toth, Caprara & Toth); bounds from maximal dual feasible functions; and the bound of the
    pattern LP, which is solved by column generation. Each is evaluated in exact integer arithmetic.

    Parameters
    ----------
    histogram, limits
        Graphs to pack, and inclusive maxima of one pack.
    effort, time_limit
        Work allowed: 1 takes at most about a second; 0 allows only the bounds in closed form. Also stop after
        `time_limit` seconds, if given, and return the best bound so far.

    Raises
    ------
    SizesError, LimitsError, GraphTooLargeError, MethodError
        As in `pack`.

    Examples
    --------
    >>> from dgl_tuplepack import Limits, load_example
    >>> histogram, limits = load_example("ogbg-molhiv"), Limits(nodes=222, edges=502)
    >>> lower_bound(histogram, limits, effort=0), lower_bound(histogram, limits)
    (3743, 3744)
    """
    allowed = effort_of(effort, time_limit)
    histogram = as_histogram(histogram)
    limits = as_limits(limits).filled(histogram.components, histogram.totals())
    check_sizes(histogram, limits)
    instance = as_instance(histogram, limits)
    bound = quick_bound(instance)
    if effort > 0:
        bound, points = lifted_bound(instance, bound, histogram.num_graphs, allowed)
        # Solve the LP of only the best relaxation.
        for relaxation, point in points[:1]:
            classes = len(relaxation.instance.counts)
            if classes <= _MOST_LP_CLASSES:
                program = PatternLP(np.zeros((0, classes), dtype=np.int64), point, price)
                program.solve(histogram.num_graphs, allowed)
                bound = max(bound, program.bound)
    return bound


def lifted_bound(
    instance: Instance, bound: int, target: int, effort: Effort
) -> tuple[int, list[tuple[Relaxation, Priced]]]:
    """Return the best bound from lifted duals of relaxations, and the relaxations with their duals, best bound first.

    `bound` is the best bound so far; no further relaxation is tried once it reaches `target`.
    """
    # The components that each relaxation keeps.
    every = range(len(instance.limits))
    pairs = [[first, second] for first in every for second in range(first)] if len(every) > 2 else []
    columns = [list(every), *pairs, *([only] for only in every if len(every) > 1)]
    points: list[tuple[Relaxation, Priced]] = []
    for chosen in columns:
        if bound >= target or effort.exhausted:
            break
        relaxation = projected(instance, chosen)
        effort.spend(_WORK_PER_CLASS * len(instance.counts))
        # For each chosen component, `starting_point` fills two tables: to price duals, and to lift them.
        work = 2 * len(chosen) * pricing_work(relaxation.instance)
        if work > effort.left // 4:
            continue
        if not effort.affords(work):
            break
        point = starting_point(relaxation.instance, effort)
        points.append((relaxation, point))
        bound = max(bound, point.bound)
    points.sort(key=lambda pair: -pair[1].exact)
    return bound, points


def check_sizes(histogram: SizeHistogram, limits: Limits) -> None:
    """Raise GraphTooLargeError if a size class exceeds the limits; name the graphs if the histogram has them."""
    classes = GraphSizes(histogram.sizes, histogram.components)
    if histogram.graph_classes is not None and not limits.fits(classes).all():
        limits.check(classes.take(histogram.graph_classes))
    limits.check(classes, counts=histogram.counts)


def without_oversize(histogram: SizeHistogram, limits: Limits, oversize: str) -> tuple[SizeHistogram, int]:
    """Return the histogram without graphs that exceed the limits, and how many these are; warn about them.

    Raise GraphTooLargeError if no graph would remain, or if `oversize` is "error" and a graph is too large.
    """
    choice("oversize", oversize, OVERSIZE, LimitsError)
    fits = limits.fits(GraphSizes(histogram.sizes, histogram.components))
    if oversize == "error" or not fits.any():
        check_sizes(histogram, limits)
    if fits.all():
        return histogram, 0
    kept = SizeHistogram(histogram.sizes[fits], histogram.counts[fits], histogram.components)
    dropped = histogram.num_graphs - kept.num_graphs
    # With this `stacklevel`, the warning points at the line that calls `search_limits` or `write_report`.
    warnings.warn(f"{dropped} of {histogram.num_graphs} graphs exceed {limits!r} and are left out.", stacklevel=3)
    return kept, dropped
