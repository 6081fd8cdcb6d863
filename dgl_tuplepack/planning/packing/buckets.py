"""Packs of several buckets: choose the graphs of each bucket, and pack them with any of the packing methods."""

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
    """Plan packs of several buckets, from the largest bucket to the smallest.

    For each bucket, `method` packs all remaining graphs, so that small graphs fill the room next to large graphs. A
    pack is kept only if one of its graphs is too large for all smaller buckets. The smallest bucket usually has the
    most packs, so only this bucket is planned with an effort above 0. In the end, each pack gets the smallest bucket
    that holds it.
    """
    buckets = buckets.filled(histogram.components, histogram.totals())
    # smallest[c]: index of the smallest bucket that holds a graph of class c.
    smallest = buckets.smallest_for(histogram.sizes, np.ones(len(histogram), dtype=np.int64))
    left, kept, plan = histogram.counts.copy(), list[Patterns](), None
    for bucket in reversed(range(len(buckets))):
        # needs[c]: whether class c fits this bucket, but no smaller bucket. Bucket 0 packs all graphs that are left.
        needs = smallest == bucket
        if not (left[needs] if bucket else left).any():
            continue
        classes = np.flatnonzero(left)
        remaining = SizeHistogram(histogram.sizes[classes], left[classes], histogram.components)
        plan = method(remaining, buckets[bucket], replace(settings, effort=0.0) if bucket else settings)
        patterns = Patterns(plan.offsets, classes[plan.classes], plan.multiplicities, plan.repeats)
        if bucket:
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
