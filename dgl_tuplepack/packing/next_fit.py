"""Next fit in random order: what batch samplers with a size limit do while they stream."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._checks import INT64_MAX
from dgl_tuplepack._random import key_of, shuffled
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.kernels.next_fit import next_fit_offsets
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing.patterns import as_plan, of_packs
from dgl_tuplepack.packing.settings import Settings
from dgl_tuplepack.plan import PackPlan

# Takes two GiB of memory and some seconds.
MOST_GRAPHS = 1 << 25


def next_fit(histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Shuffle all graphs by the seed, fill one pack, and open the next one when a graph does not fit.

    It is a baseline to compare with, not a way to save padding.

    Time O(N k), memory O(N); at most 2^25 graphs.

    Source: Johnson 1973, "Near-optimal bin packing algorithms" (next fit), on randomly ordered items.
    """
    if histogram.num_graphs > MOST_GRAPHS:
        raise MethodError(
            f"next fit takes graphs one by one, at most {MOST_GRAPHS:,} of them, but there are "
            f"{histogram.num_graphs:,}; choose a method that works on the histogram ('auto', 'best_fit', 'first_fit')."
        )
    items = shuffled(np.repeat(np.arange(len(histogram)), histogram.counts), key_of(settings.seed, 0, 0))
    cap = INT64_MAX if limits.graphs is None else limits.graphs
    pack_offsets = next_fit_offsets(histogram.sizes, items, limits.array, cap)
    packs = np.repeat(np.arange(len(pack_offsets) - 1), np.diff(pack_offsets))
    return as_plan(of_packs(packs, items), histogram, limits, "next_fit", settings)
