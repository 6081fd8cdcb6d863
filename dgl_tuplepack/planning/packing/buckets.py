"""Packs of several shapes: choose the graphs of each shape, and pack them with another packing method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dgl_tuplepack.planning.bounds.instance import as_instance
from dgl_tuplepack.planning.bounds.quick import quick_bound
from dgl_tuplepack.planning.buckets import Buckets
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.patterns import Patterns, joined
from dgl_tuplepack.planning.packing.settings import Settings
from dgl_tuplepack.planning.plan import PackPlan

Method = Callable[[SizeHistogram, Limits, Settings], PackPlan]


def pack_buckets(histogram: SizeHistogram, buckets: Buckets, method: Method, settings: Settings) -> PackPlan:
    """Plan packs of several shapes, from the largest shape to the smallest.

    For each shape, all remaining graphs are packed into it. Packs with a graph that no smaller shape holds are kept;
    graphs of the other packs remain for the smaller shapes. So small graphs fill the room next to large ones. Only the
    smallest shape, which has nearly all packs, is planned with effort. In the end each pack has the smallest shape
    that holds its content.
    """
    buckets = buckets.filled(histogram.components, histogram.totals())
    needed = buckets.smallest_for(histogram.sizes, np.ones(len(histogram), dtype=np.int64))
    left, kept, plan = histogram.counts.copy(), list[Patterns](), None
    for shape in reversed(range(len(buckets))):
        needs = needed == shape
        if not (left[needs] if shape else left).any():
            continue
        classes = np.flatnonzero(left)
        remaining = SizeHistogram(histogram.sizes[classes], left[classes], histogram.components)
        plan = method(remaining, buckets[shape], replace(settings, effort=0.0) if shape else settings)
        patterns = Patterns(plan.offsets, classes[plan.classes], plan.multiplicities, plan.repeats)
        if shape:
            rows = np.flatnonzero(np.logical_or.reduceat(needs[patterns.classes], patterns.offsets[:-1]))
            patterns = patterns.take(rows, patterns.repeats[rows])
        kept.append(patterns)
        left -= patterns.packed(len(left))
    assert plan is not None
    p, bound = joined(kept), quick_bound(as_instance(histogram, buckets.largest))
    return PackPlan(
        histogram, buckets.largest, p.offsets, p.classes, p.multiplicities, p.repeats, bound, plan.method,
        plan.heuristic, settings.seed, settings.random_ties and plan.heuristic is not None, buckets=buckets,
    )  # fmt: skip
