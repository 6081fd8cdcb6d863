"""Near-optimal packing: several methods in turn, until the lower bound is met or the effort is used up."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from dgl_tuplepack.bounds import lifted_bound
from dgl_tuplepack.bounds.effort import Effort, work_of
from dgl_tuplepack.bounds.instance import Instance, as_instance
from dgl_tuplepack.bounds.quick import quick_bound
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.kernels.random import derive_key
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing.fit import fit_patterns
from dgl_tuplepack.packing.heuristics import NAMES, Heuristic
from dgl_tuplepack.packing.minimum_bin_slack import Tuning, minimum_bin_slack
from dgl_tuplepack.packing.patterns import Patterns
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.sizes import components_of_kind

# The paper's heuristics join in where they cost little.
_MOST_FIT_CLASSES = 4096
# Graphs of a pack left to the search, in the order tried; infinity: no sampling.
_KEPT = (5.0, float("inf"), 3.0, 8.0, 4.0)
_MOST_STEPS = 1 << 20


@dataclass
class State:
    """What the search has so far."""

    instance: Instance
    effort: Effort
    bound: int
    turn: float
    patterns: Patterns | None = None
    packs: int = 0
    method: str = ""
    relaxations: list[object] = field(default_factory=list)

    def offer(self, patterns: Patterns | None, method: str) -> None:
        """Keep the patterns if they need fewer packs than those so far."""
        if patterns is not None and (self.patterns is None or patterns.num_packs < self.packs):
            self.patterns, self.packs, self.method = patterns, patterns.num_packs, method

    @property
    def done(self) -> bool:
        """Whether the best plan is proven optimal, or the effort used up."""
        return self.packs <= self.bound or self.effort.exhausted


def auto(
    histogram: SizeHistogram,
    limits: Limits,
    heuristic: Heuristic,
    seed: int,
    random_ties: bool,
    effort: float = 1.0,
    time_limit: float | None = None,
    on_interrupt: str = "raise",
) -> PackPlan:
    """Pack as tightly as the effort allows, and stop as soon as a lower bound is met.

    Minimum bin slack comes first and always finishes; the paper's heuristics, stronger bounds, and more and
    longer searches follow. `heuristic` and `random_ties` have no effect.

    Notes
    -----
    Work is counted, so equal seeds give equal plans, unless a `time_limit` is given. Time and memory: see the methods.
    """
    deadline = None if time_limit is None else time.monotonic() + time_limit
    instance = as_instance(histogram, limits)
    turn = float(derive_key(np.uint64(seed), np.uint64(0), np.uint64(1)) >> np.uint64(44)) if seed else 0.0
    state = State(instance, Effort(work_of(effort), deadline), quick_bound(instance), turn)
    interrupted = False
    first = Tuning(steps=100, turn=state.turn)
    state.offer(minimum_bin_slack(instance, state.bound, first, Effort(1 << 62)), "minimum_bin_slack")
    try:
        _improve(state, histogram, limits)
    except KeyboardInterrupt:
        if on_interrupt == "raise":
            raise
        interrupted = True
    assert state.patterns is not None
    best = state.patterns
    suffix = ", interrupted" if interrupted else (", time limit" if time_limit is not None else "")
    return PackPlan(
        histogram, limits, best.offsets, best.classes, best.multiplicities, best.repeats,
        min(state.bound, state.packs), f"auto:{state.method}{suffix}", None, seed,
    )  # fmt: skip


def _improve(state: State, histogram: SizeHistogram, limits: Limits) -> None:
    if len(histogram) <= _MOST_FIT_CLASSES and not state.done:
        _best_fits(state, histogram, limits)
    steps = 2000
    for turn in range(1000):
        if state.done:
            return
        if turn == 1:
            state.bound, _ = lifted_bound(state.instance, state.bound, state.packs, state.effort)
        tuning = Tuning(steps=steps, kept=_KEPT[turn % len(_KEPT)], turn=state.turn + turn)
        state.offer(minimum_bin_slack(state.instance, state.bound, tuning, state.effort), "minimum_bin_slack")
        steps = min(steps * 2, _MOST_STEPS)


def _best_fits(state: State, histogram: SizeHistogram, limits: Limits) -> None:
    """Best fit with each of the paper's heuristics that applies."""
    for name in NAMES:
        if name in ("node", "edge") and not components_of_kind(limits.components, name + "s"):
            continue
        try:
            state.offer(fit_patterns(histogram, limits, name, 0, False, fullest_first=True), f"best_fit {name}")
        except MethodError:
            # Its priorities would overflow.
            continue
        state.effort.spend(100 * len(histogram))
