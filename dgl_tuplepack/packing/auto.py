"""Near-optimal packing: several methods in turn, until the lower bound is met or the effort is used up."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from dgl_tuplepack.bounds import lifted_bound
from dgl_tuplepack.bounds.effort import Effort, work_of
from dgl_tuplepack.bounds.instance import Instance, Relaxation, as_instance, projected
from dgl_tuplepack.bounds.pattern_lp import PatternLP
from dgl_tuplepack.bounds.pricing import Priced
from dgl_tuplepack.bounds.quick import quick_bound
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.kernels.random import derive_key
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing.closing import closed
from dgl_tuplepack.packing.exact_split import exactly_split
from dgl_tuplepack.packing.fit import fit_patterns
from dgl_tuplepack.packing.heuristics import NAMES, as_priority
from dgl_tuplepack.packing.level_filling import level_filling
from dgl_tuplepack.packing.minimum_bin_slack import Tuning, minimum_bin_slack
from dgl_tuplepack.packing.parts import closed_by_parts
from dgl_tuplepack.packing.pattern_rounding import rounded
from dgl_tuplepack.packing.patterns import Patterns, as_plan
from dgl_tuplepack.packing.relaxed import merged, spread
from dgl_tuplepack.packing.repacking import repacked
from dgl_tuplepack.packing.settings import Settings
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.sizes import components_of_kind

# The paper's heuristics join in where they cost little.
_MOST_FIT_CLASSES = 4096
_MOST_SUM_CLASSES = 15_000
_MOST_FIT_GRAPHS = 1000
# Graphs of a pack left to the search, in the order tried; infinity: no sampling.
_KEPT = (5.0, 4.0, 3.0, float("inf"), 8.0)
_FIRST_STEPS = 2000
_MOST_STEPS = 1 << 20
_MOST_TURNS = 1000
_MOST_STAGES = 30
_TURNS_BEFORE_LP = 2
_WORK_PER_TRIAL = 20_000
_WORK_PER_PATTERN = 30
_PATIENCE = 0.8
_CLOSE = 20
_REPACK_SHARE = 0.1
_REPACKED = "+repacking"
# Packs above the bound, and graphs in a pack, up to which packs are filled exactly; and the part of the effort.
_EXACT_GAP = 3
_MOST_EXACT_GRAPHS = 64
_EXACT_SHARE = 0.1
# Level filling pays where packs hold many graphs.
_MANY_GRAPHS = 4
_MOST_LP_CLASSES = 2500
# Closing the gap pays for few classes, with few graphs in all or in a pack; and by parts, where packs hold very few.
_FEW_CLASSES = 400
_FEW_GRAPHS = 400
_MOST_PER_PACK = 8.0
_MOST_GRAPHS_IN_PARTS = 4000
_MOST_PER_PACK_IN_PARTS = 3.5
_MOST_DIVES = 40
_PARTS_IN_VAIN = 6
# Some seconds' worth; most instances need a tenth of it.
_CLOSING_WORK, _CLOSING_WORK_PER_GRAPH = 350_000_000, 200_000
_MOST_START_COLUMNS = 2000
_LP_SHARE = 0.4


@dataclass
class State:
    """What the search has so far."""

    instance: Instance
    effort: Effort
    bound: int
    turn: float
    closing: Effort
    patterns: Patterns | None = None
    packs: int = 0
    method: str = ""

    def search(self, steps: int, turn: int) -> None:
        """Minimum bin slack anew, with `steps` steps for each pattern."""
        if not self.done:
            tuning = Tuning(steps=steps, kept=_KEPT[turn % len(_KEPT)], turn=self.turn + turn)
            self.offer(minimum_bin_slack(self.instance, self.bound, tuning, self.effort), "minimum_bin_slack")

    def offer(self, patterns: Patterns | None, method: str) -> None:
        """Keep the patterns if they need fewer packs than those so far."""
        if patterns is not None and (self.patterns is None or patterns.num_packs < self.packs):
            self.patterns, self.packs, self.method = patterns, patterns.num_packs, method

    @property
    def done(self) -> bool:
        """Whether the best plan is proven optimal, or the effort used up."""
        return self.packs <= self.bound or self.effort.exhausted


def auto(histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Pack as tightly as the effort allows, and stop as soon as a lower bound is met.

    Minimum bin slack comes first and always finishes; the paper's heuristics, stronger bounds, and more and
    longer searches follow. The seed decides where samples start.

    Notes
    -----
    Work is counted, so equal seeds give equal plans, unless a `time_limit` is given. More effort, or time, goes the
    same way further and gives no worse plan, on either side of 1: from an effort of 1 on, the gap of small instances
    and of those with few graphs a pack is closed as well, with work of its own, and the search takes another way. Time
    and memory: see the methods and ``docs/complexity.md``.
    """
    limit = settings.time_limit
    deadline = None if limit is None else time.monotonic() + limit
    instance = as_instance(histogram, limits)
    turn = _first_turn(settings.seed)
    bound = quick_bound(instance)
    first = first_patterns(instance, bound, settings.seed)
    # Less than the usual effort is for plans that are made again and again.
    closing = _closing_work(instance, first.num_packs) if settings.effort >= 1 else 0
    whole = Effort(work_of(settings.effort, len(histogram)) + int(settings.effort * closing), deadline)
    state = State(instance, whole, bound, turn, Effort(0))
    state.offer(first, "minimum_bin_slack")
    interrupted = False
    try:
        for stage in range(_MOST_STAGES):
            # The first stage is planned for an effort of 1, each later one for as much as all before it.
            share = 2.0 ** max(0, stage - 1)
            state.effort = whole.part(work_of(share, len(histogram)))
            state.closing = whole.part(int(share * closing))
            state.turn = turn + stage * _MOST_TURNS
            _improve(state, histogram, limits, stage)
            if state.packs <= state.bound or whole.exhausted:
                break
    except KeyboardInterrupt:
        if settings.on_interrupt == "raise":
            raise
        interrupted = True
    assert state.patterns is not None
    suffix = (", time limit" if limit is not None else "") + (", interrupted" if interrupted else "")
    bound, method = min(state.bound, state.packs), f"auto:{state.method}{suffix}"
    return as_plan(state.patterns, histogram, limits, method, settings, bound=bound)


def first_patterns(instance: Instance, bound: int, seed: int) -> Patterns:
    """What "auto" begins with, and what it comes to with an effort of 0."""
    first = Tuning(steps=100, turn=_first_turn(seed))
    found = minimum_bin_slack(instance, bound, first, Effort(1 << 62))
    assert found is not None
    return found


def _first_turn(seed: int) -> float:
    """Where samples start."""
    key = derive_key(np.uint64(seed), np.uint64(0), np.uint64(1))
    return float(key >> np.uint64(44)) if seed else 0.0


def _improve(state: State, histogram: SizeHistogram, limits: Limits, stage: int) -> None:
    """One method after the other, until the bound is met or the effort is used up."""
    instance, effort = state.instance, state.effort
    graphs_per_pack = instance.num_graphs / state.packs
    if stage == 0 and len(histogram) <= _MOST_SUM_CLASSES and graphs_per_pack <= _MOST_FIT_GRAPHS and not state.done:
        _best_fits(state, histogram, limits)
    if stage == 0 and graphs_per_pack > _MANY_GRAPHS and not state.done:
        state.offer(level_filling(instance, state.bound, effort), "level_filling")
    # Where patterns repeat often, the LP with a table comes first.
    close_at = 0 if instance.num_graphs <= _MOST_GRAPHS_IN_PARTS else _TURNS_BEFORE_LP + 1
    steps = _FIRST_STEPS
    relaxations: list[tuple[Relaxation, Priced]] = []
    for turn in range(_MOST_TURNS):
        before = effort.left
        state.search(steps, turn)
        spent = before - effort.left
        if turn == close_at and not state.closing.exhausted and not state.done:
            # Duals of small tables cost next to nothing, and exact filling is quick where it suffices.
            state.bound, _ = lifted_bound(instance, state.bound, state.packs, effort.part(effort.left // 20))
            if graphs_per_pack > _MANY_GRAPHS:
                _split(state, graphs_per_pack, stage * _MOST_TURNS)
            _close(state)
        if turn == 0 and not state.done:
            state.bound, relaxations = lifted_bound(instance, state.bound, state.packs, effort)
        if turn == _TURNS_BEFORE_LP and not state.done:
            _pattern_lp(state, relaxations)
        _split(state, graphs_per_pack, stage * _MOST_TURNS + turn)
        # Close to the bound as much work again goes into repacking; and all that is left, where a longer search
        # would not come to its end.
        growth = min(4.0, _PATIENCE * effort.left / max(spent, 1))
        last = growth < 1.3
        floor = effort.left - spent if state.packs - state.bound <= _CLOSE else effort.left
        trial = 0
        while effort.left > (0 if last else floor) and not state.done:
            _repack(state, 2 * steps, (stage * _MOST_TURNS + turn) * _MOST_TURNS + trial)
            trial += 1
        if state.done:
            return
        steps = min(int(growth * steps), _MOST_STEPS)


def _pattern_lp(state: State, relaxations: list[tuple[Relaxation, Priced]]) -> None:
    """Better bounds from relaxations, and patterns from the LP of all components."""
    for relaxation, point in relaxations:
        relaxed = relaxation.instance
        classes = len(relaxed.counts)
        if state.done or classes > _MOST_LP_CLASSES:
            return
        columns = np.zeros((0, classes), dtype=np.int64)
        if relaxation.whole and state.patterns is not None:
            columns = merged(state.patterns, relaxation).dense(classes, _MOST_START_COLUMNS)
        # Rounding pays where patterns repeat; else the LP is for its bound alone.
        repeating = state.instance.num_graphs >= 4 * classes
        share = _LP_SHARE if repeating else _LP_SHARE / 3
        effort = state.effort.part(int(share * state.effort.left))
        program = PatternLP(columns, point)
        program.solve(state.packs, effort)
        state.bound = max(state.bound, program.bound)
        columns, repeats = program.solution()
        if relaxation.whole and len(columns) and not state.done:
            for found in rounded(relaxed, columns, repeats, state.turn, state.effort):
                state.offer(spread(found, relaxation, state.instance.counts), "pattern_lp")


def _closing_work(instance: Instance, packs: int) -> int:
    """Work that closing the gap is worth at an effort of 1; 0 where it does not pay."""
    graphs, classes = instance.num_graphs, len(instance.counts)
    small = classes <= _FEW_CLASSES and graphs <= max(_FEW_GRAPHS, _MOST_PER_PACK * packs)
    by_parts = graphs <= min(_MOST_GRAPHS_IN_PARTS, _MOST_PER_PACK_IN_PARTS * packs)
    if small:
        return _CLOSING_WORK
    return _CLOSING_WORK + _CLOSING_WORK_PER_GRAPH * graphs if by_parts else 0


def _close(state: State) -> None:
    """The pattern LP with searched packs, and dives; larger instances part by part."""
    if state.done or state.patterns is None:
        return
    relaxation = projected(state.instance, list(range(len(state.instance.limits))))
    relaxed, seed, effort = relaxation.instance, int(state.turn), state.closing
    found, bound = merged(state.patterns, relaxation), state.bound
    if len(relaxed.counts) <= _FEW_CLASSES:
        bound, found = closed(relaxed, found, bound, seed, _MOST_DIVES, effort)
    else:
        found = closed_by_parts(relaxed, found, bound, seed, _PARTS_IN_VAIN, effort.part(effort.left // 2))
        if found.num_packs > bound and len(relaxed.counts) <= _MOST_LP_CLASSES:
            # Parts that save no pack are a sign that the bound is weak.
            bound, found = closed(relaxed, found, bound, seed, 0, effort.part(effort.left // 2))
        found = closed_by_parts(relaxed, found, bound, seed + _MOST_TURNS // 2, _MOST_TURNS, effort)
    state.bound = bound
    state.offer(spread(found, relaxation, state.instance.counts), "diving")


def _split(state: State, graphs_per_pack: float, trial: int) -> None:
    """Fill some packs exactly, where the bound is near.

    As many less as would meet the bound, else one pack less, as long as that works.
    """
    fewer = state.packs - state.bound
    if fewer > _EXACT_GAP or graphs_per_pack > _MOST_EXACT_GRAPHS:
        return
    while fewer > 0 and not state.done:
        assert state.patterns is not None
        effort = state.effort.part(int(_EXACT_SHARE * state.effort.left))
        seed = int(state.turn) + trial
        state.effort.spend(_WORK_PER_PATTERN * state.packs)
        packs = state.packs
        state.offer(exactly_split(state.instance, state.patterns, fewer, seed, effort), "exact_split")
        if state.packs == packs and fewer == 1:
            return
        fewer = 1


def _repack(state: State, steps: int, trial: int) -> None:
    assert state.patterns is not None
    tuning = Tuning(steps=steps, kept=_KEPT[trial % len(_KEPT)], turn=state.turn + trial)
    effort = state.effort.part(int(_REPACK_SHARE * state.effort.left))
    found = repacked(state.instance, state.patterns, tuning, trial, effort)
    state.effort.spend(_WORK_PER_TRIAL + _WORK_PER_PATTERN * len(state.patterns) + len(state.patterns.classes) // 2)
    if found is not None:
        method = state.method.removesuffix(_REPACKED)
        fewer = found.num_packs < state.packs
        state.patterns, state.packs = found, found.num_packs
        state.method = method + _REPACKED if fewer else state.method


def _best_fits(state: State, histogram: SizeHistogram, limits: Limits) -> None:
    """Best fit with each of the paper's heuristics that applies."""
    # Only the two that are strongest on average, where each takes tens of milliseconds.
    for name in NAMES if len(histogram) <= _MOST_FIT_CLASSES else ("product", "sum"):
        if name in ("node", "edge") and not components_of_kind(limits.components, name + "s"):
            continue
        try:
            priority = as_priority(name, limits)
        except MethodError:
            # Its priorities would overflow.
            continue
        found = fit_patterns(histogram, limits, priority, Settings(), fullest_first=True)
        state.offer(found, f"best_fit {name}")
        state.effort.spend(100 * len(histogram))
