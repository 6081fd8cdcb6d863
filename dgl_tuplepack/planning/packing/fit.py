"""Best fit and first fit decreasing on a histogram: one compiled loop with three switches."""

from __future__ import annotations

from functools import partial

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.planning.bounds.effort import Effort
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.heuristics import Priority, as_priority
from dgl_tuplepack.planning.packing.patterns import Patterns, as_plan
from dgl_tuplepack.planning.packing.settings import Settings
from dgl_tuplepack.planning.plan import PackPlan

# Work of sorting, for each class. A unit of work is a step of the kernel on sizes of two components.
_WORK_PER_CLASS = 40


def _fit(method: str, histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Put each graph into an open pack with room for it, largest sizes first.

    "best_fit" chooses the fullest such pack, "first_fit" the emptiest (the bin packing literature calls this worst
    fit). Both methods give exactly the results of the paper's code, including two traits that cost packs. First, once a
    graph of a size is placed, the other graphs of this size skip a pack if the heuristic (see `heuristics`) gives the
    room left in it the same priority as the size. Second, if no open pack has room for a size, each remaining graph of
    that size opens a new pack. "first_fit_by_text" is first fit as the paper's text describes it: without the first
    trait.

    Time O(G (log G + B + G / B)) at worst for G groups of identical packs, in blocks of B = 32; near O(G log G) in
    practice, since most blocks are skipped. G is between C, the number of size classes, and a few times C. Memory
    O(G k). See ``docs/benchmarks/planning.md``.

    Source: Krell et al. 2022 (arXiv 2209.06354), "tuple longest-pack-first histogram packing" and "tuple
    shortest-pack-first histogram packing", which the paper calls the first-fit variant; section 2.2 has the text.
    Differences from the paper: the heuristic "minimum" is the true minimum, and sizes may have any number of
    components.
    """
    priority = as_priority(settings.heuristic, limits)
    patterns = fit_patterns(method, histogram, limits, priority, settings)
    return as_plan(patterns, histogram, limits, method, settings, heuristic=priority.name)


best_fit = partial(_fit, "best_fit")
first_fit = partial(_fit, "first_fit")
first_fit_by_text = partial(_fit, "first_fit_by_text")


def fit_patterns(
    method: str, histogram: SizeHistogram, limits: Limits, priority: Priority, settings: Settings
) -> Patterns:
    """Return the patterns that a method of this file makes ("best_fit", "first_fit" or "first_fit_by_text")."""
    patterns = fit_within(method, histogram, limits, priority, settings, Effort(1 << 62))
    assert patterns is not None
    return patterns


def fit_within(
    method: str, histogram: SizeHistogram, limits: Limits, priority: Priority, settings: Settings, effort: Effort
) -> Patterns | None:
    """Return the patterns that a method of this file makes; None if the effort does not suffice."""
    # Kernels are compiled when they are imported, and not every plan needs these.
    from dgl_tuplepack._core.kernels.histogram_fit import Placing, fit_histogram, patterns_of
    from dgl_tuplepack._core.kernels.priority import priorities

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
