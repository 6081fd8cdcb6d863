"""The paper's three baselines: one graph a pack, and packing by one kind of component alone.

Source: Krell et al. 2022 (arXiv 2209.06354), Table 2.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from dgl_tuplepack._checks import INT64_MAX
from dgl_tuplepack.bounds.instance import as_instance
from dgl_tuplepack.bounds.quick import quick_bound
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing.fit import fit
from dgl_tuplepack.packing.heuristics import Heuristic
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.sizes import components_of_kind


def none(histogram: SizeHistogram, limits: Limits, heuristic: Heuristic, seed: int, random_ties: bool) -> PackPlan:
    """Give every graph a pack of its own; `heuristic` and `random_ties` have no effect."""
    classes = np.arange(len(histogram))
    ones = np.ones(len(histogram), dtype=np.int64)
    offsets = np.arange(len(histogram) + 1)
    bound = quick_bound(as_instance(histogram, limits))
    return PackPlan(histogram, limits, offsets, classes, ones, histogram.counts, bound, "none", None, seed)


def _by_one_kind(
    kind: str, histogram: SizeHistogram, limits: Limits, heuristic: Heuristic, seed: int, random_ties: bool
) -> PackPlan:
    """Best fit that looks at one kind of component and ignores the limits of all others.

    The packs exceed the ignored limits, so the limits of this plan are raised to what its packs need;
    `heuristic` has no effect, since the priority is the kind itself.
    """
    heeded = components_of_kind(histogram.components, kind + "s")
    if not heeded:
        raise MethodError(
            f"the method '{kind}_only' needs a component that counts {kind}s, but the sizes have "
            f"{list(histogram.components)}; choose another method."
        )
    # The largest number that no sum can exceed stands for "no limit".
    totals = list(histogram.totals().values())
    maxima = {
        name: limit if column in heeded else min(max(totals[column], 1), INT64_MAX)
        for column, (name, limit) in enumerate(limits.maxima.items())
    }
    relaxed = Limits.from_components(maxima, limits.graphs)
    plan = fit(f"{kind}_only", histogram, relaxed, kind, seed, random_ties, fullest_first=True)
    needed = {name: max(limits.maxima[name], used) for name, used in plan.effective_limits.maxima.items()}
    raised = Limits.from_components(needed, limits.graphs)
    return PackPlan(
        histogram, raised, plan.offsets, plan.classes, plan.multiplicities, plan.repeats,
        quick_bound(as_instance(histogram, raised)), plan.method, None, seed,
    )  # fmt: skip


node_only = partial(_by_one_kind, "node")
edge_only = partial(_by_one_kind, "edge")
