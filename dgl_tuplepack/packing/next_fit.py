"""Next fit in random order: what batch samplers with a size limit do while they stream."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._checks import INT64_MAX
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.kernels.next_fit import next_fit_offsets
from dgl_tuplepack.kernels.random import derive_key, shuffle_segments
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing.patterns import Patterns, as_plan
from dgl_tuplepack.packing.settings import Settings
from dgl_tuplepack.plan import PackPlan

_MOST_GRAPHS = 1 << 31


def next_fit(histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Shuffle all graphs by the seed, fill one pack, and open the next one when a graph does not fit.

    A baseline to compare with, not a way to save padding.

    Notes
    -----
    Time O(N k), memory O(N).

    Source: Johnson 1973, "Near-optimal bin packing algorithms" (next fit), on randomly ordered items.
    """
    if histogram.num_graphs > _MOST_GRAPHS:
        raise MethodError(
            f"next fit takes graphs one by one, at most {_MOST_GRAPHS}, but there are {histogram.num_graphs}; "
            "choose a method that works on the histogram."
        )
    items = np.repeat(np.arange(len(histogram)), histogram.counts)
    shuffle_segments(items, np.array([0, len(items)]), derive_key(np.uint64(settings.seed), np.uint64(0), np.uint64(0)))
    cap = INT64_MAX if limits.graphs is None else limits.graphs
    pack_offsets = next_fit_offsets(histogram.sizes, items, limits.array, cap)
    packs = np.repeat(np.arange(len(pack_offsets) - 1), np.diff(pack_offsets))
    # Entries: the distinct (pack, class) pairs in ascending order.
    keys, multiplicities = np.unique(packs * len(histogram) + items, return_counts=True)
    offsets = np.searchsorted(keys // len(histogram), np.arange(len(pack_offsets)))
    repeats = np.ones(len(pack_offsets) - 1, dtype=np.int64)
    patterns = Patterns(offsets.astype(np.int64), keys % len(histogram), multiplicities, repeats)
    return as_plan(patterns, histogram, limits, "next_fit", settings)
