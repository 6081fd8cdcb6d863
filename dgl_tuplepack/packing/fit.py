"""What best fit and first fit share: from a histogram to a plan through one compiled loop."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._checks import INT64_MAX
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.kernels.histogram_fit import Placing, fit_histogram, patterns_of
from dgl_tuplepack.kernels.priority import priorities
from dgl_tuplepack.kernels.random import derive_key, shuffle_segments
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing.heuristics import Priority, as_priority
from dgl_tuplepack.packing.patterns import Patterns, as_plan
from dgl_tuplepack.packing.settings import Settings
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.sizes import IntArray


def fit(
    method: str,
    histogram: SizeHistogram,
    limits: Limits,
    settings: Settings,
    *,
    fullest_first: bool,
    by_the_text: bool = False,
) -> PackPlan:
    """Place size classes, largest priority first, into groups of identical packs."""
    priority = as_priority(settings.heuristic, limits)
    found = fit_patterns(histogram, limits, priority, settings, fullest_first=fullest_first, by_the_text=by_the_text)
    return as_plan(found, histogram, limits, method, settings, heuristic=priority.name)


def fit_patterns(
    histogram: SizeHistogram,
    limits: Limits,
    priority: Priority,
    settings: Settings,
    *,
    fullest_first: bool,
    by_the_text: bool = False,
) -> Patterns:
    """Patterns of `fit`, before they become a plan."""
    key = derive_key(np.uint64(settings.seed), np.uint64(0), np.uint64(len(histogram)))
    groups = fit_histogram(
        histogram.sizes,
        histogram.counts,
        order_of(histogram, priority, key if settings.random_ties else None),
        limits.array,
        INT64_MAX if limits.graphs is None else limits.graphs,
        priority.rule,
        # A kernel returns a key as a plain int.
        Placing(fullest_first, by_the_text, settings.random_ties, np.uint64(key)),
    )
    return Patterns(*patterns_of(groups))


def order_of(histogram: SizeHistogram, priority: Priority, key: np.uint64 | None = None) -> IntArray:
    """Size classes by priority, then size, then count, all falling; with a key, equal priorities at random."""
    values = priorities(priority.rule, histogram.sizes)
    if key is None:
        columns = [histogram.counts, *histogram.sizes.T[::-1], values]
    else:
        ties = np.arange(len(histogram))
        shuffle_segments(ties, np.array([0, len(ties)]), key)
        columns = [ties, values]
    return np.lexsort(columns)[::-1].astype(np.int64)
