"""Lower bounds on the number of packs."""

from __future__ import annotations

from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.sizes import GraphSizes, exact_sum


def lower_bound(histogram: SizeHistogram, limits: Limits) -> int:
    """Number of packs that no plan within `limits` can stay below.

    The largest of three bounds: content / limit of each component, rounded up (the continuous bound, L1 in
    Martello & Toth 1990, "Knapsack Problems", chapter 8); graphs / cap, rounded up; and, for each component,
    the graphs that take more than half of the limit, no two of which can share a pack.

    Raises
    ------
    LimitsError
        The limits are for other components than the histogram.
    GraphTooLargeError
        A size exceeds the limits, so there is no plan at all.

    Notes
    -----
    Time O(C k), exact integer arithmetic.

    Examples
    --------
    >>> from dgl_tuplepack import load_example
    >>> lower_bound(load_example("ogbg-molhiv"), Limits(nodes=222, edges=502))
    3743
    """
    limits = limits.aligned(histogram.components)
    check_sizes(histogram, limits)
    bounds = [-(-total // limits.maxima[name]) for name, total in histogram.totals().items()]
    if limits.graphs is not None:
        bounds.append(-(-histogram.num_graphs // limits.graphs))
    for column, limit in enumerate(limits.values):
        bounds.append(exact_sum(histogram.counts[histogram.sizes[:, column] > limit // 2]))
    return max(1, *bounds)


def check_sizes(histogram: SizeHistogram, limits: Limits) -> None:
    """Refuse size classes that exceed the limits; name graphs where they are known, else sizes.

    Raises
    ------
    GraphTooLargeError
        At least one size exceeds the limits.
    """
    classes = GraphSizes(histogram.sizes, histogram.components)
    fits = limits.fits(classes)
    if fits.all():
        return
    if histogram.graph_classes is not None:
        limits.check(classes.take(histogram.graph_classes))
    limits.check(classes, counts=histogram.counts)
