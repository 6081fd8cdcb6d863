"""Next fit in random order: what batch samplers with a size limit do while they stream."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._checks import INT64_MAX
from dgl_tuplepack._random import key_of, shuffled
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.kernels.next_fit import next_fit_offsets
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing.patterns import Patterns, as_plan, joined, of_packs
from dgl_tuplepack.packing.settings import Settings
from dgl_tuplepack.plan import PackPlan

# Takes a GiB of memory and some seconds.
MOST_GRAPHS = 1 << 25
# Graphs whose packs become patterns together.
_SLICE = 1 << 22


def next_fit(histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Shuffle all graphs by the seed, fill one pack, and open the next one when a graph does not fit.

    It is a baseline to compare with, not a way to save padding.

    Time O(N k), memory O(N); at most 2^25 graphs.

    Source: Johnson 1973, "Near-optimal bin packing algorithms" (next fit), on randomly ordered items.
    """
    check_few_enough(histogram.num_graphs)
    items = shuffled(np.repeat(np.arange(len(histogram)), histogram.counts), key_of(settings.seed, 0, 0))
    cap = INT64_MAX if limits.graphs is None else limits.graphs
    pack_offsets = next_fit_offsets(histogram.sizes, items, limits.array, cap)
    slices: list[Patterns] = []
    first = 0
    while first < len(pack_offsets) - 1:
        last = max(first + 1, int(np.searchsorted(pack_offsets, pack_offsets[first] + _SLICE, side="right")) - 1)
        packs = np.repeat(np.arange(last - first), np.diff(pack_offsets[first : last + 1]))
        slices.append(of_packs(packs, items[pack_offsets[first] : pack_offsets[last]]))
        first = last
    return as_plan(joined(slices), histogram, limits, "next_fit", settings)


def check_few_enough(graphs: int) -> None:
    """Refuse more graphs than next fit takes with a MethodError."""
    if graphs > MOST_GRAPHS:
        raise MethodError(
            f"next fit takes graphs one by one, at most {MOST_GRAPHS:,} of them, but there are {graphs:,}; choose a "
            "method that works on the histogram ('auto', 'best_fit', 'first_fit')."
        )
