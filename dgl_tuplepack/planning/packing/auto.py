"""Near-optimal packing: run stages until the lower bound is met or the effort is used up."""

from __future__ import annotations

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
from dgl_tuplepack.planning.packing.patterns import Patterns, as_plan
from dgl_tuplepack.planning.packing.settings import Settings
from dgl_tuplepack.planning.packing.stages.minimum_bin_slack import Tuning, minimum_bin_slack
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

# A turn runs the stages in this order: the first need few kernels, and prove many plans optimal. Each stage
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

    The first plan always finishes. Then the `stages` follow, turn by turn: the paper's heuristics, stronger bounds,
    and more and longer searches. The seed decides where samples start.

    Work is counted, so equal seeds give equal plans, unless a `time_limit` is given. More effort or time continues the
    same search, so the plan is never worse. Time and memory: see the stages and ``docs/complexity.md``, which also
    shows how much each stage gains.
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
        if current.turn > LAST_NEW_TURN and current.effort.left == before:
            return


# With more size classes, best fit is far better than minimum bin slack. Best fit is slow if packs hold many
# graphs, or if there are many graphs of each size.
_MANY_CLASSES = 15_000
_MANY_GRAPHS, _MANY_OF_A_SIZE = 200, 10
_MOST_FIT_WORK = 95_000_000


def first_patterns(
    histogram: SizeHistogram, limits: Limits, instance: Instance, bound: int, seed: int, effort: Effort
) -> tuple[Patterns, str]:
    """Return the first patterns of "auto", which are also its result with an effort of 0, and their method."""
    tuning = Tuning(steps=100, turn=_first_sample(seed))
    few_graphs = histogram.num_graphs <= min(_MANY_GRAPHS * needed_packs(instance), _MANY_OF_A_SIZE * len(histogram))
    if len(histogram) > _MANY_CLASSES and few_graphs:
        patterns = _fitted(histogram, limits, effort)
        if patterns is not None:
            return patterns, "best_fit product"
        tuning = replace(tuning, steps=25, walk=25)
    always = Effort(1 << 62)
    patterns = minimum_bin_slack(instance, bound, tuning, always)
    effort.spend(always.spent)
    assert patterns is not None
    return patterns, "minimum_bin_slack"


def _fitted(histogram: SizeHistogram, limits: Limits, effort: Effort) -> Patterns | None:
    """Return the patterns of best fit; None if it takes too long, or priorities would overflow."""
    allowed = Effort(_MOST_FIT_WORK)
    try:
        priority = as_priority("product", limits)
    except MethodError:
        return None
    patterns = fit_within("best_fit", histogram, limits, priority, Settings(), allowed)
    effort.spend(allowed.spent)
    return patterns


def _first_sample(seed: int) -> float:
    """Return the number from which samples start, below 2**20; the seed 0 gives 0."""
    return float(key_of(seed, 0, 1) >> np.uint64(44)) if seed else 0.0
