"""Methods to compare with: the paper's three baselines, and next fit.

Source of the baselines: Krell et al. 2022 (arXiv 2209.06354), Table 2.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.fit import fit_patterns
from dgl_tuplepack.planning.packing.heuristics import as_priority
from dgl_tuplepack.planning.packing.patterns import Patterns, as_plan, of_packs
from dgl_tuplepack.planning.packing.settings import Settings
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import components_of_kind

# The largest number of graphs for next fit: with this many, it needs two GiB of memory and some seconds.
_MOST_GRAPHS = 1 << 25


def none(histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Put every graph into its own pack."""
    classes = np.arange(len(histogram))
    ones = np.ones(len(histogram), dtype=np.int64)
    alone = Patterns(np.arange(len(histogram) + 1), classes, ones, histogram.counts)
    return as_plan(alone, histogram, limits, "none", settings)


def _by_one_kind(kind: str, histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Pack by best fit within the limits of one kind of component: numbers of nodes if `kind` is "node", or of edges.

    The packs may exceed the other limits, so the plan has these limits raised to the largest content of its packs.
    The heuristic in the settings is ignored.
    """
    counted = components_of_kind(histogram.components, kind + "s")
    if not counted:
        raise MethodError(
            f"the method '{kind}_only' needs a component that counts {kind}s, but the sizes have "
            f"{list(histogram.components)}; choose another method."
        )
    # No pack can exceed the total of a component, so the total as a limit means "no limit".
    totals = list(histogram.totals().values())
    maxima = {
        name: limit if column in counted else min(max(totals[column], 1), INT64_MAX)
        for column, (name, limit) in enumerate(limits.maxima.items())
    }
    relaxed = Limits.from_components(maxima, limits.graphs)
    method = f"{kind}_only"
    patterns = fit_patterns("best_fit", histogram, relaxed, as_priority(kind, relaxed), settings)
    used = as_plan(patterns, histogram, relaxed, method, settings).effective_limits.maxima
    needed = {name: max(limits.maxima[name], most) for name, most in used.items()}
    return as_plan(patterns, histogram, Limits.from_components(needed, limits.graphs), method, settings)


node_only = partial(_by_one_kind, "node")
edge_only = partial(_by_one_kind, "edge")


def next_fit(histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Shuffle all graphs by the seed; fill one pack, and open the next one as soon as a graph does not fit.

    Time O(N k), memory O(N); at most 2^25 graphs.

    Source: Johnson 1973, "Near-optimal bin packing algorithms" (next fit), on randomly ordered items.
    """
    from dgl_tuplepack._core.kernels.next_fit import next_fit_offsets

    if histogram.num_graphs > _MOST_GRAPHS:
        raise MethodError(
            f"next fit packs graphs one by one, at most {_MOST_GRAPHS:,} of them, but there are "
            f"{histogram.num_graphs:,}; choose a method that works on the histogram ('auto', 'best_fit', 'first_fit')."
        )
    # items: the class of each graph. Pack p holds items[pack_offsets[p]:pack_offsets[p + 1]].
    items = shuffled(np.repeat(np.arange(len(histogram)), histogram.counts), key_of(settings.seed, 0, 0))
    cap = INT64_MAX if limits.graphs is None else limits.graphs
    pack_offsets = next_fit_offsets(histogram.sizes, items, limits.array, cap)
    packs = np.repeat(np.arange(len(pack_offsets) - 1), np.diff(pack_offsets))
    return as_plan(of_packs(packs, items), histogram, limits, "next_fit", settings)
