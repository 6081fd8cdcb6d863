"""Near-optimal packing: run stages until the number of packs meets the lower bound, or the effort is used up.

Each stage checks whether to run in this turn, tries to improve the best patterns or the best bound, and counts its
work; ``docs/benchmarks/planning.md`` shows what each stage gains.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.planning.bounds import lifted_bound
from dgl_tuplepack.planning.bounds.instance import (
    Instance,
    Relaxation,
    as_instance,
    needed_packs,
    projected,
    quick_bound,
)
from dgl_tuplepack.planning.bounds.pattern_lp import Effort, PatternLP, Priced, price, work_of
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.fit import Settings, as_plan, as_priority, fit_within, names_for
from dgl_tuplepack.planning.packing.stages.closing import closed, closed_by_subproblems
from dgl_tuplepack.planning.packing.stages.dealing import dealt_near, work_of_dealing
from dgl_tuplepack.planning.packing.stages.exact_split import exactly_split
from dgl_tuplepack.planning.packing.stages.minimum_bin_slack import Tuning, completed, minimum_bin_slack
from dgl_tuplepack.planning.plan import PackPlan, Patterns, collected, joined, taken_packs
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

# No search reaches these numbers: the effort doubles with each round, and the steps grow with each turn.
_MOST_ROUNDS, _MOST_TURNS = 30, 1000
# More graphs than this in a pack, on average, are many. Units of work of one pass over all packs, for each pack.
_MANY_GRAPHS, _WORK_PER_PATTERN = 4, 30
# Best fit never checks the time limit, so it must be quick: all heuristics are tried with at most _MOST_FIT_CLASSES
# size classes, the two strongest with _MOST_SUM_CLASSES, and at most _MOST_FIT_GRAPHS graphs in a pack, on average.
_MOST_FIT_CLASSES, _MOST_SUM_CLASSES, _MOST_FIT_GRAPHS = 4096, 15_000, 1000
# Fraction of the remaining effort that best fit may use with each heuristic, and a turn of `deal_and_repair`.
_FIT_SHARE, _DEALING_SHARE = 0.2, 0.5
# The first turn deals to these numbers of packs above the bound, each times the bound / _PART.
_ABOVE, _PART = (3, 1, 0), 4000
# Work of a repair in the first turn, for each graph and component; each later turn allows _MORE_REPAIR times as much.
_REPAIR_WORK, _MORE_REPAIR = 120, 4
# Purposes for `key_of`: of the stage `deal_and_repair`, and of the first plan.
_DEAL, _FIRST_DEAL = 8, 9
# `Tuning.kept` in successive turns, and steps for each pattern.
_KEPT = (5.0, 4.0, 3.0, float("inf"), 8.0)
_FIRST_STEPS, _MOST_STEPS = 2000, 1 << 20
# Turns count from 0. After _LAST_NEW_TURN, only the stages that run in every turn remain.
_LP_TURN, _LAST_NEW_TURN = 2, 3
# An LP may have at most this many size classes.
_MOST_LP_CLASSES = 2500
# With more graphs in total than this, patterns repeat often, so `round_lp` runs in an earlier turn than `close_gap`.
_FEW_GRAPHS_IN_ALL = 4000
# When `close_gap` is worth its time. With more than _FEW_CLASSES classes, it solves subproblems.
_FEW_CLASSES, _FEW_GRAPHS = 400, 400
_MOST_PER_PACK, _MOST_PER_PACK_IN_SUBPROBLEMS = 8.0, 3.5
# Fraction of the remaining effort that `close_gap` may use, and its most dives for the whole instance.
_CLOSING_SHARE, _MOST_DIVES = 0.75, 40
# After this many subproblems in a row that save no pack, the bound may be too weak: raise it first.
_SUBPROBLEMS_IN_VAIN = 6
# The LP starts with at most this many of the best patterns, and may use this fraction of the remaining effort.
_MOST_START_COLUMNS, _LP_SHARE = 2000, 0.8
# Exact filling: most packs above the bound, most graphs per pack, and its fraction of the remaining effort.
_EXACT_GAP, _MOST_EXACT_GRAPHS, _EXACT_SHARE = 3, 64, 0.25
# One search with four times as many steps finds more than several with fewer. A search that is planned to use 80 % of
# the remaining effort ends before the effort runs out.
_MOST_GROWTH, _PATIENCE = 4.0, 0.8
# Repeats are rounded up from this fraction on; a threshold of 2 rounds none up. _STEPS: of minimum bin slack.
_THRESHOLDS, _STEPS = (2.0, 0.9, 0.7, 0.5), 20_000
# With more size classes, best fit needs far fewer packs than minimum bin slack. But best fit is slow if a pack holds
# more than _MOST_FITTED graphs, or a class more than _MANY_OF_A_SIZE graphs, on average.
_MANY_CLASSES, _MOST_FITTED, _MANY_OF_A_SIZE = 15_000, 200, 10
# With more graphs in a pack, dealing comes before best fit; its repair gets this much work per graph and component.
_MANY_IN_A_PACK, _FIRST_REPAIR_WORK = 6, 40
# Work of making the instance, its bound and the plan, for each number in the array `sizes` and each component.
_WORK_PER_SIZE = 5
# Best fit packs all classes together if the array `sizes` has at most _MOST_TOGETHER numbers, and the work is at most
# _MOST_WORK_TOGETHER; otherwise it packs parts of the classes separately.
_MOST_TOGETHER, _MOST_WORK_TOGETHER = 200_000, 30_000_000
_CLASSES_OF_A_PART, _MOST_WORK_OF_PARTS = 6000, 60_000_000
# A share of `_repeated` needs at least about this many packs.
_PACKS_OF_A_SHARE = 256


def auto(
    histogram: SizeHistogram, limits: Limits, settings: Settings, stages: tuple[Stage, ...] | None = None
) -> PackPlan:
    """Pack as tightly as the effort allows, by default with all stages.

    The first plan is always finished. More effort or time continues the same search, so the plan never gets worse.
    """
    effort, instance = settings.work, as_instance(histogram, limits)
    bound = quick_bound(instance)
    best = Best(*first_patterns(histogram, limits, instance, bound, settings.seed, effort), bound)
    portion = work_of(1) - effort.spent
    for number in range(_MOST_ROUNDS if settings.effort else 0):
        if best.proven or effort.exhausted:
            break
        # The offset of the samples (see `Tuning.turn`): it works like a seed. Each turn adds 1, so all turns differ.
        start = _first_sample(settings.seed) + number * _MOST_TURNS
        current = Round(histogram, limits, instance, best, number, start, effort.portion(portion))
        run(current, STAGES if stages is None else stages)
        # The second round continues up to an effort of 10; each later round doubles the effort so far.
        portion = work_of(5 * 2**number if number else 9)
    method = f"auto:{best.method}{', time limit' if settings.time_limit is not None else ''}"
    return as_plan(best.patterns, histogram, limits, method, settings, bound=min(best.bound, best.packs))


@dataclass
class Best:
    """The patterns with the fewest packs so far, the stage that made them, and the best lower bound."""

    patterns: Patterns
    method: str
    bound: int

    def __post_init__(self) -> None:
        self.packs = self.patterns.num_packs

    @property
    def proven(self) -> bool:
        """Whether the bound proves that no plan has fewer packs."""
        return self.packs <= self.bound

    def offer(self, patterns: Patterns | None, method: str) -> None:
        """Keep the patterns if they have fewer packs than the best patterns so far; ignore None."""
        if patterns is not None and patterns.num_packs < self.packs:
            self.patterns, self.packs, self.method = patterns, patterns.num_packs, method


@dataclass
class Round:
    """A round of "auto": turns of all stages with longer and longer searches, until the round's effort is used up."""

    histogram: SizeHistogram
    limits: Limits
    instance: Instance
    # Shared by all rounds.
    best: Best
    # number: rounds before this round. start: `Tuning.turn` in its first turn.
    number: int
    start: float
    effort: Effort
    turn: int = 0
    # The last search of `search_longer`: its steps for each pattern, its work, and whether more steps change nothing.
    # The next search has `growth` times as many steps.
    steps: int = 0
    spent: int = 0
    complete: bool = False
    growth: float = 1.0
    # The relaxations from `raise_bound`, each with the duals that prove its bound; best bound first.
    relaxations: list[tuple[Relaxation, Priced]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # The packs of the best patterns when the round begins, and their mean number of graphs.
        self.packs = self.best.packs
        self.graphs_per_pack = self.instance.num_graphs / self.packs

    @property
    def trial(self) -> int:
        """A different number for each turn of each round, 0 for the first."""
        return self.number * _MOST_TURNS + self.turn

    @property
    def done(self) -> bool:
        """Whether the best plan is proven optimal, or the effort is used up."""
        return self.best.proven or self.effort.exhausted


def raise_bound(current: Round) -> None:
    """Raise the bound by duals of relaxations; keep relaxations and duals for `round_lp` (first turn of each round)."""
    if current.turn == 0:
        best = current.best
        best.bound, current.relaxations = lifted_bound(current.instance, best.bound, best.packs, current.effort)


def best_fits(current: Round) -> None:
    """Run best fit with each applicable heuristic of the paper (first turn of the first round only)."""
    histogram, limits = current.histogram, current.limits
    few_graphs = current.graphs_per_pack <= _MOST_FIT_GRAPHS
    if current.trial or len(histogram) > _MOST_SUM_CLASSES or not few_graphs:
        return
    for name in names_for(limits.components) if len(histogram) <= _MOST_FIT_CLASSES else ("product", "sum"):
        portion = current.effort.portion(int(_FIT_SHARE * current.effort.left))
        current.best.offer(_best_fit(histogram, limits, name, portion), f"best_fit {name}")


def _best_fit(histogram: SizeHistogram, limits: Limits, heuristic: str, effort: Effort) -> Patterns | None:
    """Return the patterns of best fit; None if the effort does not suffice, or the priorities would overflow."""
    try:
        _, rule = as_priority(heuristic, limits)
    except MethodError:
        return None
    return fit_within("best_fit", histogram, limits, rule, Settings(), effort)


def deal_and_repair(current: Round) -> None:
    """Deal all graphs to the fewest packs that may suffice, and repair these packs (every turn, while this helps)."""
    instance, best, turn = current.instance, current.best, current.turn
    if current.graphs_per_pack <= _MANY_GRAPHS:
        return
    share = current.effort.portion(int(_DEALING_SHARE * current.effort.left))
    key = key_of(int(current.start), current.trial, _DEAL)
    targets, work = [best.packs - 1], _REPAIR_WORK * _MORE_REPAIR ** min(turn, 20)
    if not current.trial:
        targets = [best.bound + above * max(1, best.bound // _PART) for above in _ABOVE]
    elif best.method != "deal_and_repair":
        return
    best.offer(dealt_near(instance, targets, best.packs - 1, key, work, share), "deal_and_repair")


def search_longer(current: Round) -> None:
    """Run minimum bin slack with more steps for each pattern than in the turn before (every turn)."""
    growing = min(int(current.growth * current.steps), _MOST_STEPS)
    steps = growing if current.turn else _FIRST_STEPS
    if current.complete or len(current.best.patterns) * steps > current.effort.left:
        return
    current.steps = steps
    tuning = Tuning(steps=current.steps, kept=_KEPT[current.turn % len(_KEPT)], turn=current.start + current.turn)
    before = current.effort.left
    patterns = minimum_bin_slack(current.instance, current.best.bound, tuning, current.effort)
    spent, sampled = before - current.effort.left, current.graphs_per_pack > min(_KEPT)
    # Without samples, a search with more steps, but exactly as much work as the previous one, has tried everything.
    current.complete = spent == current.spent and not sampled
    current.spent = spent
    current.best.offer(patterns, "minimum_bin_slack")


def close_gap(current: Round) -> None:
    """Solve the pattern LP, and make dives; with many classes, do so for subproblems (one turn of each round)."""
    instance, best = current.instance, current.best
    graphs, classes = instance.num_graphs, len(instance.counts)
    few = classes <= _FEW_CLASSES and graphs <= max(_FEW_GRAPHS, _MOST_PER_PACK * current.packs)
    may_close = few or graphs <= min(_FEW_GRAPHS_IN_ALL, _MOST_PER_PACK_IN_SUBPROBLEMS * current.packs)
    if current.turn != (0 if graphs <= _FEW_GRAPHS_IN_ALL else _LAST_NEW_TURN) or not may_close:
        return
    effort = current.effort.portion(int(_CLOSING_SHARE * current.effort.left))
    # Exact filling comes first: if it succeeds, it is quick.
    if current.graphs_per_pack > _MANY_GRAPHS:
        _split(current, current.number * _MOST_TURNS)
    if current.done:
        return
    # This relaxation keeps all components; it merges equal sizes, and leaves out graphs of size 0.
    relaxation = projected(instance, list(range(len(instance.limits))))
    relaxed, seed = relaxation.instance, int(current.start)
    patterns = merged(best.patterns, relaxation)
    if len(relaxed.counts) <= _FEW_CLASSES:
        best.bound, patterns = closed(relaxed, patterns, best.bound, seed, _MOST_DIVES, effort)
    else:
        best.bound, patterns = _closed_with_many_classes(relaxed, patterns, best.bound, seed, effort)
    _offer_relaxed(current, patterns, relaxation, "diving")


def _closed_with_many_classes(
    instance: Instance, patterns: Patterns, bound: int, seed: int, effort: Effort
) -> tuple[int, Patterns]:
    """Solve subproblems, then raise the bound by the LP, then solve more subproblems; return what `closed` returns."""
    half = effort.portion(effort.left // 2)
    patterns = closed_by_subproblems(instance, patterns, bound, seed, _SUBPROBLEMS_IN_VAIN, half)
    if patterns.num_packs > bound and len(instance.counts) <= _MOST_LP_CLASSES:
        # The bound may be weak: raise it by the LP, without dives (0).
        bound, patterns = closed(instance, patterns, bound, seed, 0, effort.portion(effort.left // 2))
    # A different seed gives other subproblems. In practice, only the effort or the bound ends this search.
    return bound, closed_by_subproblems(instance, patterns, bound, seed + _MOST_TURNS // 2, _MOST_TURNS, effort)


def _offer_relaxed(current: Round, patterns: Patterns, relaxation: Relaxation, method: str) -> None:
    """If patterns of a relaxation with all components save packs, convert them to the instance, and keep them."""
    if patterns.num_packs < current.best.packs:
        current.best.offer(spread(patterns, relaxation, current.instance.counts), method)


def round_lp(current: Round) -> None:
    """Raise the bound by the LP of each relaxation; round the solution of the whole one to packs (one turn a round)."""
    if current.turn != _LP_TURN:
        return
    best, instance = current.best, current.instance
    for relaxation, point in current.relaxations:
        relaxed = relaxation.instance
        classes = len(relaxed.counts)
        if current.done or classes > _MOST_LP_CLASSES:
            return
        columns = np.zeros((0, classes), dtype=np.int64)
        if relaxation.whole:
            columns = merged(best.patterns, relaxation).dense(classes, _MOST_START_COLUMNS)
        # Rounding is worth its time only if patterns repeat.
        share = _LP_SHARE if instance.num_graphs >= 4 * classes else _LP_SHARE / 3
        program = PatternLP(columns, point, price)
        program.solve(best.packs, current.effort.portion(int(share * current.effort.left)))
        best.bound = max(best.bound, program.bound)
        columns, repeats = program.solution()
        if relaxation.whole and len(columns) and not current.done:
            for patterns in rounded(relaxed, columns, repeats, current.start, current.effort):
                _offer_relaxed(current, patterns, relaxation, "pattern_lp")


def split_exactly(current: Round) -> None:
    """If few packs are above the bound, empty some packs and fill fewer packs with their graphs (every turn)."""
    _split(current, current.trial)


def _split(current: Round, trial: int) -> None:
    """Try to save all packs above the bound in one step; if that fails, try to save one pack at a time."""
    best, effort = current.best, current.effort
    fewer = best.packs - best.bound
    if fewer > _EXACT_GAP or current.graphs_per_pack > _MOST_EXACT_GRAPHS:
        return
    while fewer > 0 and not current.done:
        portion = effort.portion(int(_EXACT_SHARE * effort.left))
        packs = best.packs
        effort.spend(_WORK_PER_PATTERN * packs)
        split = exactly_split(current.instance, best.patterns, fewer, int(current.start) + trial, portion)
        best.offer(split, "exact_split")
        if best.packs == packs and fewer == 1:
            return
        fewer = 1


def set_pace(current: Round) -> None:
    """Set `growth`, the factor by which `search_longer` increases its steps in the next turn (every turn)."""
    current.growth = min(_MOST_GROWTH, _PATIENCE * current.effort.left / max(current.spent, 1))


# A turn runs the stages in this order. The first stages need few compiled kernels, and prove many plans optimal.
Stage = Callable[[Round], None]
STAGES = (raise_bound, search_longer, deal_and_repair, best_fits, close_gap, round_lp, split_exactly, set_pace)


def run(current: Round, stages: tuple[Stage, ...]) -> None:
    """Run turns of all stages until the plan is proven optimal, the effort is used up, or no stage can do more."""
    # The stages read `current.turn`.
    for current.turn in range(_MOST_TURNS):
        before = current.effort.left
        for stage in stages:
            if current.done:
                return
            stage(current)
        # Turns after _LAST_NEW_TURN only search longer. If such a turn does no work, later turns cannot do more.
        if current.turn > _LAST_NEW_TURN and current.effort.left == before:
            return


def rounded(
    instance: Instance, columns: IntArray, repeats: FloatArray, turn: float, effort: Effort
) -> Iterator[Patterns]:
    """Yield packings made from a solution of the LP: its patterns `columns` ``[M, C]``, with their `repeats` ``[M]``.

    Minimum bin slack packs the graphs that the rounded repeats leave over; for `turn` see `Tuning`. Source: Waescher &
    Gau 1996, "Heuristics for the integer one-dimensional cutting stock problem" (residual heuristics).
    """
    order = np.argsort(-repeats, kind="stable")
    columns, repeats = columns[order], repeats[order]
    whole = np.floor(repeats + 1e-6)
    fraction = repeats - whole
    for threshold in _THRESHOLDS:
        repeated = (whole + (fraction >= threshold)).astype(np.int64)
        # `taken_packs` reduces `remaining`, and takes fewer packs if graphs run out.
        remaining = instance.counts.copy()
        taken = [taken_packs(remaining, *each) for each in zip(columns, repeated.tolist(), strict=True)]
        kept = collected((content, packs) for content, packs in taken if packs)
        if not remaining.any():
            yield kept
            continue
        # First search for at least 5 graphs of each pack and sample its other graphs; then search for all its graphs.
        for extra, searched_graphs in enumerate((5.0, float("inf"))):
            tuning = Tuning(steps=_STEPS, kept=searched_graphs, turn=turn + extra)
            patterns = completed(instance, kept, tuning, effort)
            if patterns is None:
                return
            yield patterns


def merged(patterns: Patterns, relaxation: Relaxation) -> Patterns:
    """Convert patterns of an instance to patterns of its relaxation; empty patterns are left out."""
    number = len(relaxation.instance.counts)
    # classes[i]: the relaxation's class of entry i, or -1. pattern[j]: the pattern of kept entry j.
    classes = relaxation.classes[patterns.classes]
    kept = classes >= 0
    pattern = np.repeat(np.arange(len(patterns)), np.diff(patterns.offsets))[kept]
    # keys: the distinct (pattern, class) pairs, each as one integer. entries[j]: index in `keys` of kept entry j.
    keys, entries = np.unique(pattern * number + classes[kept], return_inverse=True)
    multiplicities = np.zeros(len(keys), dtype=np.int64)
    np.add.at(multiplicities, entries.reshape(-1), patterns.multiplicities[kept])
    # present: the patterns that still have entries.
    present, starts = np.unique(keys // number, return_index=True)
    offsets = np.append(starts, len(keys)).astype(np.int64)
    return Patterns(offsets, keys % number, multiplicities, patterns.repeats[present])


def spread(patterns: Patterns, relaxation: Relaxation, counts: IntArray) -> Patterns:
    """Convert patterns that hold every graph of a `relaxation` with all components back to patterns of the instance.

    `counts` ``[C]`` has the instance's graphs. Graphs of size 0, which the relaxation leaves out, share one pack.
    """
    assert relaxation.whole
    order = np.argsort(relaxation.classes, kind="stable")
    begins = np.searchsorted(relaxation.classes[order], np.arange(len(relaxation.instance.counts)))
    # merged_classes[row]: the instance's classes that were merged into class `row`; used-up classes are removed.
    without_size, *merged_classes = [deque(group.tolist()) for group in np.split(order, begins)]
    # left[c]: graphs of class c that are in no pack yet.
    left = counts.tolist()
    packed: list[tuple[dict[int, int], int]] = []
    for pattern, repeats in enumerate(patterns.repeats.tolist()):
        entries = slice(int(patterns.offsets[pattern]), int(patterns.offsets[pattern + 1]))
        asked = list(zip(patterns.classes[entries].tolist(), patterns.multiplicities[entries].tolist(), strict=True))
        missing = repeats
        while missing > 0:
            content = _next_content(asked, merged_classes, left)
            # As many packs have this content as the graphs that are left allow.
            packs = min([missing, *(left[member] // number for member, number in content.items())])
            for member, number in content.items():
                left[member] -= packs * number
            packed.append((content, packs))
            missing -= packs
    if without_size:
        # One of the equal packs of packed[0] gets a row of its own, with all graphs of size 0.
        content, packs = packed.pop(0)
        if packs > 1:
            packed.insert(0, (content, packs - 1))
        packed.append((content | {member: int(counts[member]) for member in without_size}, 1))
    return collected(packed)


def _next_content(asked: list[tuple[int, int]], merged_classes: list[deque[int]], left: list[int]) -> dict[int, int]:
    """Return the content of the next pack of the pattern `asked`: pairs (class of the relaxation, number of graphs).

    The content has classes of the instance. Classes without graphs leave `merged_classes`.
    """
    content: dict[int, int] = {}
    for row, multiplicity in asked:
        members = merged_classes[row]
        missing = multiplicity
        while missing:
            taken = min(missing, left[members[0]])
            if taken:
                content[members[0]] = taken
            missing -= taken
            if missing:
                members.popleft()
    return content


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
        key = key_of(int(sample), 0, _FIRST_DEAL)
        patterns = dealt_near(instance, targets, packs + packs // 50, key, _FIRST_REPAIR_WORK, allowed)
        effort.spend(allowed.spent)
        if patterns is not None:
            return patterns, "deal_and_repair"
    suits_best_fit = graphs <= min(_MOST_FITTED * packs, _MANY_OF_A_SIZE * classes)
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
    """Return the patterns of best fit, perhaps in parts of the classes; None if that takes too long or overflows."""
    classes = len(histogram)
    # Each attempt is (number of parts, most work for all parts).
    attempts = [(-(-classes // _CLASSES_OF_A_PART), _MOST_WORK_OF_PARTS)]
    if histogram.sizes.size <= _MOST_TOGETHER:
        attempts.insert(0, (1, _MOST_WORK_TOGETHER))
    for parts, work in attempts:
        allowed, found = Effort(work), list[Patterns]()
        for first in range(parts):
            part = SizeHistogram(histogram.sizes[first::parts], histogram.counts[first::parts], histogram.components)
            patterns = _best_fit(part, limits, "product", allowed)
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
