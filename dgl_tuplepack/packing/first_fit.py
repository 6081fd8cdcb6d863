"""First fit decreasing on a histogram."""

from __future__ import annotations

from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing.fit import fit
from dgl_tuplepack.packing.settings import Settings
from dgl_tuplepack.plan import PackPlan


def first_fit(histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Put each graph into the emptiest open pack that can take it, largest sizes first.

    Packs come out evenly filled; they are usually more than those of `best_fit`.

    Notes
    -----
    Time and memory as in `best_fit`.

    Source: Krell et al. 2022 (arXiv 2209.06354), "tuple shortest-pack-first histogram packing"; the paper
    calls it the first-fit variant.
    """
    return fit("first_fit", histogram, limits, settings, fullest_first=False)
