"""Near-optimal packing: run stages until the number of packs meets the lower bound, or the effort is used up."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.planning.bounds.instance import Instance, as_instance, needed_packs, quick_bound
from dgl_tuplepack.planning.bounds.pricing import Effort, work_of
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.fit import as_plan, fit_within
from dgl_tuplepack.planning.packing.heuristics import Settings, as_priority
from dgl_tuplepack.planning.packing.stages.dealing import dealt_near, work_of_dealing
from dgl_tuplepack.planning.packing.stages.minimum_bin_slack import Tuning, completed, minimum_bin_slack
from dgl_tuplepack.planning.packing.stages.sequence import MOST_ROUNDS, MOST_TURNS, STAGES, Best, Round, Stage, run
from dgl_tuplepack.planning.plan import PackPlan, Patterns, joined


def auto(histogram: SizeHistogram, limits: Limits, settings: Settings, stages: tuple[Stage, ...] = STAGES) -> PackPlan:
    """Pack as tightly as the effort allows, and stop as soon as the number of packs meets the lower bound.

    The first plan is always finished. More effort or time continues the same search, so the plan never gets worse.
    """
    effort, instance = settings.work, as_instance(histogram, limits)
    bound = quick_bound(instance)
    best = Best(*first_patterns(histogram, limits, instance, bound, settings.seed, effort), bound)
    portion = work_of(1) - effort.spent
    for number in range(MOST_ROUNDS if settings.effort else 0):
        if best.proven or effort.exhausted:
            break
        # The offset of the samples (see `Tuning.turn`): it works like a seed. Each turn adds 1, so all turns differ.
        start = _first_sample(settings.seed) + number * MOST_TURNS
        run(Round(histogram, limits, instance, best, number, start, effort.portion(portion)), stages)
        # The second round continues up to an effort of 10; each later round doubles the effort so far.
        portion = work_of(5 * 2**number if number else 9)
    method = f"auto:{best.method}{', time limit' if settings.time_limit is not None else ''}"
    return as_plan(best.patterns, histogram, limits, method, settings, bound=min(best.bound, best.packs))


# With more size classes, best fit needs far fewer packs than minimum bin slack. But best fit is slow if a pack holds
# more than _MANY_GRAPHS graphs, or a class more than _MANY_OF_A_SIZE graphs, on average.
_MANY_CLASSES, _MANY_GRAPHS, _MANY_OF_A_SIZE = 15_000, 200, 10
# With more graphs than this in a pack, dealing comes before best fit; its repair may take _REPAIR_WORK units of work
# for each graph and component. _DEAL is a purpose for `key_of`.
_MANY_IN_A_PACK, _REPAIR_WORK, _DEAL = 6, 40, 9
# Work of making the instance, its bound and the plan, for each number in the array `sizes` and each component.
_WORK_PER_SIZE = 5
# Best fit packs all classes together if the array `sizes` has at most _MOST_TOGETHER numbers, and the work is at most
# _MOST_WORK_TOGETHER; otherwise it packs parts of the classes separately.
_MOST_TOGETHER = 200_000
_CLASSES_OF_A_PART = 6000
_MOST_WORK_TOGETHER, _MOST_WORK_OF_PARTS = 30_000_000, 60_000_000
# A share of `_repeated` needs at least about this many packs.
_PACKS_OF_A_SHARE = 256


def first_patterns(
    histogram: SizeHistogram, limits: Limits, instance: Instance, bound: int, seed: int, effort: Effort
) -> tuple[Patterns, str]:
    """Return the first patterns of "auto" and the name of their method."""
    sample, classes = _first_sample(seed), len(histogram)
    if classes <= _MANY_CLASSES:
        return _repeated(instance, 1, bound, Tuning(steps=100, turn=sample), effort), "minimum_bin_slack"
    effort.spend(_WORK_PER_SIZE * instance.sizes.size * len(instance.limits))
    graphs, packs = histogram.num_graphs, needed_packs(instance)
    if graphs > _MANY_IN_A_PACK * packs:
        # The first attempt must not run out of effort.
        allowed = Effort(max(work_of(1) - effort.spent, 3 * work_of_dealing(instance, packs)))
        targets = [bound + bound // 100, bound + bound // 1000, bound]
        key = key_of(int(sample), 0, _DEAL)
        patterns = dealt_near(instance, targets, packs + packs // 50, key, _REPAIR_WORK, allowed)
        effort.spend(allowed.spent)
        if patterns is not None:
            return patterns, "deal_and_repair"
    suits_best_fit = graphs <= min(_MANY_GRAPHS * packs, _MANY_OF_A_SIZE * classes)
    fitted = _fitted(histogram, limits, effort) if suits_best_fit else None
    if fitted is not None:
        return fitted, "best_fit product"
    # With `balanced` shares, the rest that `_repeated` packs last is about as large as one share.
    balanced = math.isqrt(graphs // classes)
    shares = 1
    if graphs > 2 * balanced * packs:
        shares = max(1, min(balanced, packs // _PACKS_OF_A_SHARE))
        tuning = Tuning(steps=50, walk=50, turn=sample)
    elif suits_best_fit:
        tuning = Tuning(steps=25, walk=25, turn=sample)
    else:
        tuning = Tuning(steps=100, turn=sample)
    return _repeated(instance, shares, bound, tuning, effort), "minimum_bin_slack"


def _fitted(histogram: SizeHistogram, limits: Limits, effort: Effort) -> Patterns | None:
    """Return the patterns of best fit; None if best fit takes too long, or its priorities would overflow."""
    try:
        priority = as_priority("product", limits)
    except MethodError:
        return None
    classes = len(histogram)
    # Each attempt is (number of parts, most work for all parts).
    attempts = [(-(-classes // _CLASSES_OF_A_PART), _MOST_WORK_OF_PARTS)]
    if histogram.sizes.size <= _MOST_TOGETHER:
        attempts.insert(0, (1, _MOST_WORK_TOGETHER))
    for parts, work in attempts:
        allowed, found = Effort(work), list[Patterns]()
        for first in range(parts):
            part = SizeHistogram(histogram.sizes[first::parts], histogram.counts[first::parts], histogram.components)
            patterns = fit_within("best_fit", part, limits, priority, Settings(), allowed)
            if patterns is None:
                break
            found.append(patterns.with_classes(np.arange(first, classes, parts)[patterns.classes]))
        effort.spend(allowed.spent)
        if len(found) == parts:
            return joined(found)
    return None


def _repeated(instance: Instance, shares: int, bound: int, tuning: Tuning, effort: Effort) -> Patterns:
    """Divide each class into `shares` equal shares; pack one share, repeat its packs, then pack the rest."""
    share, classes = instance.with_counts(instance.counts // shares)
    # The first plan must not run out of effort; its work is counted afterwards.
    always = Effort(1 << 62)
    patterns = minimum_bin_slack(share, target=bound // shares, tuning=tuning, effort=always)
    assert patterns is not None
    repeated = replace(patterns.with_classes(classes[patterns.classes]), repeats=patterns.repeats * shares)
    packed = completed(instance, repeated, tuning, always)
    assert packed is not None
    effort.spend(always.spent)
    return packed


def _first_sample(seed: int) -> float:
    """Return the offset of the samples in the first turn: 0 for the seed 0, always below 2**20."""
    return float(key_of(seed, 0, 1) >> np.uint64(44)) if seed else 0.0
