"""Best fit decreasing on a histogram."""

from __future__ import annotations

from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing.fit import fit
from dgl_tuplepack.packing.settings import Settings
from dgl_tuplepack.plan import PackPlan


def best_fit(histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Put each graph into the fullest open pack that can take it, largest sizes first.

    Few packs are the aim; how few is not guaranteed. Exactly the paper's results come out, with two traits
    of it that cost packs: once a graph of a size was placed, the search goes on from the next higher priority;
    and where no open pack can take a size, every graph left of it opens a pack of its own.

    Notes
    -----
    Time O(G (log G + B + G / B)) at worst for G groups of identical packs, with blocks of B = 32, and near
    O(G log G) in practice, since whole blocks are passed over; G is near C, or C times a small factor. Memory
    O(G k). See ``docs/complexity.md``.

    Source: Krell et al. 2022 (arXiv 2209.06354), "tuple longest-pack-first histogram packing". Differs in
    the true minimum (see `heuristics`), and counts any number of components.
    """
    return fit("best_fit", histogram, limits, settings, fullest_first=True)
