"""Best fit and first fit decreasing on a histogram, in one compiled loop; and the paper's baselines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.planning.bounds.instance import as_instance, quick_bound
from dgl_tuplepack.planning.bounds.pattern_lp import Effort
from dgl_tuplepack.planning.buckets import Buckets
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.heuristics import Priority, Settings, as_priority
from dgl_tuplepack.planning.plan import PackPlan, Patterns, of_packs
from dgl_tuplepack.planning.sizes import components_of_kind

# Work of sorting, for each class. A unit of work is a step of the kernel on sizes of two components.
_WORK_PER_CLASS = 40
# The largest number of graphs for next fit: with this many, it needs two GiB of memory and some seconds.
_MOST_GRAPHS = 1 << 25


def as_plan(
    patterns: Patterns,
    histogram: SizeHistogram,
    limits: Limits,
    method: str,
    settings: Settings,
    *,
    heuristic: str | None = None,
    bound: int | None = None,
    buckets: Buckets | None = None,
) -> PackPlan:
    """Make a plan from patterns; without a `bound`, it has the bound in closed form."""
    bound = quick_bound(as_instance(histogram, limits)) if bound is None else bound
    arrays = patterns.offsets, patterns.classes, patterns.multiplicities, patterns.repeats
    random_ties = settings.random_ties and heuristic is not None
    return PackPlan(
        histogram, limits, *arrays, bound, method, heuristic, settings.seed, random_ties, buckets=buckets
    )  # fmt: skip


def _fit(method: str, histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Put each graph into an open pack with room for it, largest sizes first.

    "best_fit" chooses the fullest such pack, "first_fit" the emptiest (elsewhere called worst fit), exactly as the
    paper's code. Two of its traits cost packs: once a graph of a size is placed, the other graphs of this size skip
    packs whose room has the same priority as the size; and if no open pack has room for a size, each remaining graph of
    that size opens a new pack. "first_fit_by_text" has no first trait, as in the paper's text. Time near O(G log G) in
    practice for G groups of identical packs; memory O(G k).

    Source: Krell et al. 2022 (arXiv 2209.06354), "tuple longest-pack-first histogram packing" and "tuple
    shortest-pack-first histogram packing"; section 2.2 has the text. Differs: "minimum" is the true minimum.
    """
    priority = as_priority(settings.heuristic, limits)
    patterns = fit_within(method, histogram, limits, priority, settings, Effort(1 << 62))
    assert patterns is not None
    return as_plan(patterns, histogram, limits, method, settings, heuristic=priority.name)


def fit_within(
    method: str, histogram: SizeHistogram, limits: Limits, priority: Priority, settings: Settings, effort: Effort
) -> Patterns | None:
    """Return the patterns that a method of this file makes; None if the effort does not suffice."""
    # Kernels are compiled when they are imported, and not every plan needs these.
    from dgl_tuplepack._core.kernels.histogram_fit import Placing, fit_histogram, patterns_of, priorities

    sorting, per_step = _WORK_PER_CLASS * len(histogram), (1 + len(histogram.components)) / 3
    key = key_of(settings.seed, 0, len(histogram))
    # Sort classes by priority, then size, then count, all descending; with `random_ties`, by priority, then at random.
    ties = [histogram.counts, *histogram.sizes.T[::-1]]
    if settings.random_ties:
        ties = [shuffled(np.arange(len(histogram)), key)]
    order = np.lexsort([*ties, priorities(priority.rule, histogram.sizes)])[::-1].astype(np.int64)
    # groups: one row for each group of identical packs; no rows if the effort did not suffice.
    groups, steps = fit_histogram(
        histogram.sizes,
        histogram.counts,
        order,
        limits.array,
        INT64_MAX if limits.graphs is None else limits.graphs,
        priority.rule,
        Placing(method == "best_fit", method == "first_fit_by_text", settings.random_ties, key),
        int((effort.left - sorting) / per_step),
    )
    effort.spend(sorting + int(per_step * steps))
    return Patterns(*patterns_of(groups)) if len(groups) else None


def none(histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Put every graph into its own pack."""
    number = len(histogram)
    alone = Patterns(np.arange(number + 1), np.arange(number), np.ones(number, dtype=np.int64), histogram.counts)
    return as_plan(alone, histogram, limits, "none", settings)


def _by_one_kind(kind: str, histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Pack by best fit within the limits on nodes (`kind` "node") or on edges only, with the priority of that kind.

    The plan has the other limits raised to the largest content of its packs.
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
    plan = _fit("best_fit", histogram, relaxed, replace(settings, heuristic=kind))
    needed = {name: max(limits.maxima[name], most) for name, most in plan.effective_limits.maxima.items()}
    raised = Limits.from_components(needed, limits.graphs)
    return as_plan(plan.patterns, histogram, raised, f"{kind}_only", settings)


def next_fit(histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Shuffle all graphs, and fill one pack after the other; time O(N k), memory O(N), at most 2^25 graphs.

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


Method = Callable[[SizeHistogram, Limits, Settings], PackPlan]

FITS: dict[str, Method] = {
    "best_fit": partial(_fit, "best_fit"),
    "first_fit": partial(_fit, "first_fit"),
    "first_fit_by_text": partial(_fit, "first_fit_by_text"),
    "none": none,
    "node_only": partial(_by_one_kind, "node"),
    "edge_only": partial(_by_one_kind, "edge"),
    "next_fit": next_fit,
}
