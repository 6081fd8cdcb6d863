"""Near-optimal packing: run stages until the lower bound is met or the effort is used up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.planning.bounds.effort import Effort, work_of
from dgl_tuplepack.planning.bounds.instance import Instance, as_instance, needed_packs
from dgl_tuplepack.planning.bounds.quick import quick_bound
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.fit import fit_within
from dgl_tuplepack.planning.packing.heuristics import as_priority
from dgl_tuplepack.planning.packing.patterns import Patterns, as_plan, joined
from dgl_tuplepack.planning.packing.settings import Settings
from dgl_tuplepack.planning.packing.stages.minimum_bin_slack import Tuning, completed, minimum_bin_slack
from dgl_tuplepack.planning.packing.stages.sequence import (
    LAST_NEW_TURN,
    MOST_ROUNDS,
    MOST_TURNS,
    Best,
    Round,
    best_fits,
    close_gap,
    fill_levels,
    raise_bound,
    round_lp,
    search_longer,
    set_pace,
    split_exactly,
)
from dgl_tuplepack.planning.plan import PackPlan

Stage = Callable[[Round], None]

# A turn runs the stages in this order: the first compile little, and prove many plans optimal. Each stage
# decides whether to run in a turn.
STAGES: tuple[Stage, ...] = (
    raise_bound,
    search_longer,
    best_fits,
    fill_levels,
    close_gap,
    round_lp,
    split_exactly,
    set_pace,
)


def auto(histogram: SizeHistogram, limits: Limits, settings: Settings, stages: tuple[Stage, ...] = STAGES) -> PackPlan:
    """Pack as tightly as the effort allows, and stop as soon as a lower bound is met.

    The first plan always finishes. Then the `stages` follow, turn by turn: best fit, stronger bounds,
    and more and longer searches. The seed decides where samples start.

    Effort counts work, so equal seeds give equal plans without a `time_limit`. More effort or time continues the
    same search, so the plan is never worse. Time and memory: see the stages and ``docs/benchmarks/planning.md``,
    which also shows how much each stage gains.
    """
    effort, instance = settings.work, as_instance(histogram, limits)
    bound = quick_bound(instance)
    best = Best(*first_patterns(histogram, limits, instance, bound, settings.seed, effort), bound)
    share = work_of(1) - effort.spent
    for number in range(MOST_ROUNDS if settings.effort else 0):
        if best.proven or effort.exhausted:
            break
        start = _first_sample(settings.seed) + number * MOST_TURNS
        _run(Round(histogram, limits, instance, best, number, start, effort.portion(share)), stages)
        # The second round continues up to an effort of 10; each later round doubles the effort.
        share = work_of(5 * 2**number if number else 9)
    method = f"auto:{best.method}{', time limit' if settings.time_limit is not None else ''}"
    return as_plan(best.patterns, histogram, limits, method, settings, bound=min(best.bound, best.packs))


def _run(current: Round, stages: tuple[Stage, ...]) -> None:
    """Run turns of all stages, until the bound is met, the effort of the round is used up, or none can do more."""
    for current.turn in range(MOST_TURNS):
        before = current.effort.left
        for stage in stages:
            if current.done:
                return
            stage(current)
        # Later turns only search longer; a turn that spends nothing has nothing left to try.
        if current.turn > LAST_NEW_TURN and current.effort.left == before:
            return


# With more size classes, best fit is far better than minimum bin slack. Best fit is slow if packs hold many
# graphs, or if there are many graphs of each size.
_MANY_CLASSES = 15_000
_MANY_GRAPHS, _MANY_OF_A_SIZE = 200, 10
# Work of the instance, its bound and the plan, per entry of `sizes` and component.
_WORK_PER_SIZE = 5
# Up to this many entries of `sizes`, best fit may pack all classes at once; else it packs them in parts.
_MOST_TOGETHER = 200_000
_CLASSES_OF_A_PART = 6000
_MOST_WORK_TOGETHER, _MOST_WORK_OF_PARTS = 30_000_000, 60_000_000
# Fewest packs that a share may have.
_PACKS_OF_A_SHARE = 256


def first_patterns(
    histogram: SizeHistogram, limits: Limits, instance: Instance, bound: int, seed: int, effort: Effort
) -> tuple[Patterns, str]:
    """Return the first patterns of "auto", which are also its result with an effort of 0, and their method."""
    tuning, shares = Tuning(steps=100, turn=_first_sample(seed)), 1
    graphs, packs = histogram.num_graphs, needed_packs(instance)
    if len(histogram) > _MANY_CLASSES:
        effort.spend(_WORK_PER_SIZE * instance.sizes.size * len(instance.limits))
        if graphs <= min(_MANY_GRAPHS * packs, _MANY_OF_A_SIZE * len(histogram)):
            patterns = _fitted(histogram, limits, effort)
            if patterns is not None:
                return patterns, "best_fit product"
            tuning = replace(tuning, steps=25, walk=25)
        # With this many shares, one share has about as many graphs as dividing the counts leaves over.
        equal = math.isqrt(graphs // len(histogram))
        # Many graphs of each size, and many in a pack.
        if graphs > 2 * equal * packs:
            shares = max(1, min(equal, packs // _PACKS_OF_A_SHARE))
            tuning = replace(tuning, steps=50, walk=50)
    always = Effort(1 << 62)
    patterns = _repeated(instance, shares, bound, tuning, always)
    effort.spend(always.spent)
    return patterns, "minimum_bin_slack"


def _fitted(histogram: SizeHistogram, limits: Limits, effort: Effort) -> Patterns | None:
    """Return the patterns of best fit; None if it takes too long, or priorities would overflow."""
    try:
        priority = as_priority("product", limits)
    except MethodError:
        return None
    classes = len(histogram)
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
    """Fill packs with an equal share of the graphs of each class, repeat these, and then pack the other graphs."""
    share, classes = instance.with_counts(instance.counts // shares)
    patterns = minimum_bin_slack(share, target=bound // shares, tuning=tuning, effort=effort)
    assert patterns is not None
    repeated = Patterns(patterns.offsets, classes[patterns.classes], patterns.multiplicities, patterns.repeats * shares)
    packed = completed(instance, repeated, tuning, effort)
    assert packed is not None
    return packed


def _first_sample(seed: int) -> float:
    """Return the number from which samples start, below 2**20; the seed 0 gives 0."""
    return float(key_of(seed, 0, 1) >> np.uint64(44)) if seed else 0.0
