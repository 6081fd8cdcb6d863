"""Near-optimal packing: run stages until the lower bound is met or the effort is used up."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.planning.bounds.effort import Effort, work_of
from dgl_tuplepack.planning.bounds.instance import Instance, as_instance
from dgl_tuplepack.planning.bounds.quick import quick_bound
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.minimum_bin_slack import Tuning, minimum_bin_slack
from dgl_tuplepack.planning.packing.patterns import Patterns, as_plan
from dgl_tuplepack.planning.packing.settings import Settings
from dgl_tuplepack.planning.packing.stages import (
    MOST_ROUNDS,
    MOST_TURNS,
    Best,
    Round,
    best_fits,
    close_gap,
    closing_work,
    fill_levels,
    raise_bound,
    round_lp,
    search_longer,
    set_pace,
    split_exactly,
)
from dgl_tuplepack.planning.plan import PackPlan

Stage = Callable[[Round], None]

# In the order in which a turn runs them. Each stage decides itself whether to run in a turn.
STAGES: tuple[Stage, ...] = (
    best_fits,
    fill_levels,
    search_longer,
    close_gap,
    raise_bound,
    round_lp,
    split_exactly,
    set_pace,
)


def auto(histogram: SizeHistogram, limits: Limits, settings: Settings, stages: tuple[Stage, ...] = STAGES) -> PackPlan:
    """Pack as tightly as the effort allows, and stop as soon as a lower bound is met.

    Minimum bin slack comes first and always finishes. Then the `stages` follow, turn by turn: the paper's heuristics,
    stronger bounds, and more and longer searches. The seed decides where samples start.

    Work is counted, so equal seeds give equal plans, unless a `time_limit` is given. More effort or time continues the
    same search and is never worse, if both efforts are below 1 or both at least 1. From 1 on, the gap is also closed
    for small instances and for few graphs per pack, with extra work. Time and memory: see the stages and
    ``docs/complexity.md``, which also shows how much each stage gains.
    """
    limit = settings.time_limit
    deadline = None if limit is None else time.monotonic() + limit
    instance = as_instance(histogram, limits)
    bound = quick_bound(instance)
    best = Best(first_patterns(instance, bound, settings.seed), "minimum_bin_slack", bound)
    # Efforts below 1 are for plans that are made over and over.
    closing = closing_work(instance, best.packs) if settings.effort >= 1 else 0
    effort = Effort(work_of(settings.effort, len(histogram)) + int(settings.effort * closing), deadline)
    for number in range(MOST_ROUNDS):
        if best.proven or effort.exhausted:
            break
        # The first round has the share of an effort of 1, each later round as much as all before it.
        share = 2.0 ** max(0, number - 1)
        portions = effort.portion(work_of(share, len(histogram))), effort.portion(int(share * closing))
        start = _first_sample(settings.seed) + number * MOST_TURNS
        _run(Round(histogram, limits, instance, best, number, start, *portions), stages)
    method = f"auto:{best.method}{', time limit' if limit is not None else ''}"
    return as_plan(best.patterns, histogram, limits, method, settings, bound=min(best.bound, best.packs))


def _run(current: Round, stages: tuple[Stage, ...]) -> None:
    """Run turns of all stages, until the bound is met or the effort of the round is used up."""
    for current.turn in range(MOST_TURNS):
        for stage in stages:
            if current.done:
                return
            stage(current)


def first_patterns(instance: Instance, bound: int, seed: int) -> Patterns:
    """Return the first patterns of "auto", which are also its result with an effort of 0."""
    patterns = minimum_bin_slack(instance, bound, Tuning(steps=100, turn=_first_sample(seed)), Effort(1 << 62))
    assert patterns is not None
    return patterns


def _first_sample(seed: int) -> float:
    """Return the number from which samples start."""
    return float(key_of(seed, 0, 1) >> np.uint64(44)) if seed else 0.0
