"""Minimum bin slack on a histogram: fill one pack after another as full as a bounded search can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dgl_tuplepack.planning.bounds.instance import Instance, needed_packs, scarcity
from dgl_tuplepack.planning.bounds.pattern_lp import Effort
from dgl_tuplepack.planning.plan import Patterns, joined
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

if TYPE_CHECKING:
    from dgl_tuplepack._core.kernels.bin_slack import Classes, Goal, Left, Pack

# One call of the kernel writes at most this many patterns, and runs about this many steps.
_MOST_PATTERNS, _SLICE = 1 << 15, 2_000_000
# In the first half of its steps, the search tries at most this many choices at each depth before it backtracks.
_WIDTH = 6
# The weight of a component is (its scarcity / highest scarcity) ** 2**_DOUBLINGS.
_DOUBLINGS = 6
# The search for a pack ends early if the pack wastes at most this fraction of the waste that the target allows.
_ACCEPTED_WASTE = 0.5
# Samples are used only if a pack is expected to hold more than this many graphs.
_SAMPLE_FROM = 1.5
# Units of work (see `Effort`) of a step, of a call of `_fill`, and of each class in such a call.
_WORK_PER_STEP, _WORK_PER_FILLING, _WORK_PER_CLASS = 2, 20_000, 40


@dataclass(frozen=True)
class Tuning:
    """How `minimum_bin_slack` searches."""

    # Maximum number of search steps for one pattern.
    steps: int = 2000
    # Additional steps that the search may use only to finish its current descent.
    walk: int = 400
    # The search chooses at least this many graphs of each pack; the others are a sample. Infinity: no sampling.
    kept: float = 5.0
    # Offset of the samples; it works like a seed.
    turn: float = 0.0


def minimum_bin_slack(instance: Instance, target: int, tuning: Tuning, effort: Effort) -> Patterns | None:
    """Fill one pack after another as full as possible; return None if the effort runs out.

    If the graphs would fit into fewer than `target` packs, each pack may waste some room. Time O(C log C) for each call
    of `_fill`, and O((S + E) log C) for each pattern of E entries, with S = `tuning.steps`.

    Source: Gupta & Ho 1999, "A new heuristic algorithm for the one-dimensional bin-packing problem"; Fleszar & Hindi
    2002, "New heuristics for one-dimensional bin-packing" (MBS', which fixes the first item). Differs from both: it
    packs a histogram, its search is bounded, it weights components by scarcity, and most of each pack is a sample of
    all remaining graphs, so that the last packs get as good a mix of sizes as the first.
    """
    filled: list[Patterns] = []
    # remaining[i]: number of graphs of class classes[i] that are not packed yet.
    classes = np.arange(len(instance.counts))
    remaining = instance.counts.copy()
    while len(classes):
        found, complete = _fill(instance, classes, remaining, target, tuning, effort)
        if not complete:
            return None
        filled += found
        target -= sum(patterns.num_packs for patterns in found)
        # `_fill` has reduced `remaining`.
        alive = remaining > 0
        classes, remaining = classes[alive], remaining[alive]
    return joined(filled)


def completed(instance: Instance, patterns: Patterns, tuning: Tuning, effort: Effort) -> Patterns | None:
    """Return `patterns` with added packs for the graphs that are not in them; None if the effort runs out."""
    remaining = instance.counts - patterns.packed(len(instance.counts))
    if not remaining.any():
        return patterns
    rest, rest_classes = instance.with_counts(remaining)
    packed = minimum_bin_slack(rest, needed_packs(rest), tuning, effort)
    return None if packed is None else joined([patterns, packed.with_classes(rest_classes[packed.classes])])


def _fill(
    instance: Instance, classes: IntArray, remaining: IntArray, target: int, tuning: Tuning, effort: Effort
) -> tuple[list[Patterns], bool]:
    """Fill packs with the same weights and order of classes, for many steps; reduce `remaining`, int64 ``[C]``.

    Return patterns, and whether the effort sufficed.
    """
    from dgl_tuplepack._core.kernels.bin_slack import BLOCK, PACKS, STEPS, Classes, Goal, Left, Pack, tree_of

    sizes = instance.sizes[classes]
    scarce = scarcity(sizes, remaining, instance.limits)
    needed = max(float(scarce.max()), 1.0)
    weights = _weights(scarce)
    shares = sizes / instance.limits
    # Sort classes by the weighted sum of their shares, then by their largest share, both descending.
    order = np.lexsort((shares.max(axis=1), (shares * weights).sum(axis=1)))[::-1]
    sizes, weights = np.ascontiguousarray(sizes[order]), weights / instance.limits
    smallest = np.ascontiguousarray(np.minimum.accumulate(sizes[::-1], axis=0)[::-1])
    lows = np.minimum.reduceat(sizes, np.arange(0, len(order), BLOCK), axis=0)
    hardest = np.argsort(-shares[order].max(axis=1), kind="stable")
    ordered = Classes(sizes, (sizes * weights).sum(axis=1), smallest, lows, hardest)
    # spare: the fraction of the limit of the scarcest component that each of `target` packs may waste.
    spare = max(1 - needed / target, 0.0) if target > 0 else 0.0
    numbers = remaining[order]
    graphs_per_pack = float(numbers.sum()) / needed
    # The kernel is compiled for writable arrays and float settings only, hence the copy and the conversions.
    goal = Goal(
        instance.limits.copy(), weights, spare * _ACCEPTED_WASTE + 1e-12, tuning.steps, tuning.walk, _WIDTH,
        graphs_per_pack, float(tuning.kept), float(tuning.turn),
    )  # fmt: skip
    sampled = graphs_per_pack > max(_SAMPLE_FROM, tuning.kept)
    tree = tree_of(numbers) if sampled else np.zeros(0, dtype=np.int64)
    left = Left(numbers, np.arange(len(numbers) + 1), tree)
    pack = Pack(
        room=np.empty_like(instance.limits), amount=np.zeros_like(numbers), touched=np.empty_like(numbers),
        best=np.empty(1 + 2 * len(numbers), np.int64), stack=np.empty((3, len(numbers)), np.int64), least=np.empty(1),
    )  # fmt: skip
    filled: list[Patterns] = []
    steps_left = max(_SLICE, 64 * len(numbers))
    # The state of the kernel between calls; see `_slice`.
    state = np.zeros(5, dtype=np.int64)
    while steps_left > 0 and numbers.any() and not effort.exhausted:
        # The samples of each call begin at other graphs.
        patterns = _slice(ordered, left, goal._replace(turn=goal.turn + float(state[PACKS])), pack, state)
        filled.append(patterns.with_classes(classes[order[patterns.classes]]))
        effort.spend(_WORK_PER_STEP * int(state[STEPS]))
        steps_left -= int(state[STEPS])
    complete = steps_left <= 0 or not numbers.any()
    effort.spend(_WORK_PER_FILLING + _WORK_PER_CLASS * len(numbers))
    remaining[order] = numbers
    return filled, complete


def _slice(classes: Classes, left: Left, goal: Goal, pack: Pack, state: IntArray) -> Patterns:
    """Call the kernel once; return the patterns that it found, and update `state`."""
    from dgl_tuplepack._core.kernels.bin_slack import ENTRIES, PATTERNS, STEPS, Written, fill_packs

    most = min(_MOST_PATTERNS, int(left.remaining.sum()))
    # Space for all classes twice, and about 8 entries for each pattern. The kernel stops if the space left is less than
    # one entry for each class.
    entries = np.empty((2, 2 * len(left.remaining) + 8 * most), dtype=np.int64)
    written = Written(np.zeros(most + 1, np.int64), entries[0], entries[1], np.empty(most, np.int64))
    # PACKS and HARD (see `kernels.bin_slack`) carry over.
    state[[ENTRIES, PATTERNS, STEPS]] = 0
    fill_packs(classes, left, goal, pack, written, _SLICE, state)
    used, found = state[ENTRIES], state[PATTERNS]
    ends = found + 1, used, used, found
    return Patterns(*(array[:end].copy() for array, end in zip(written, ends, strict=True)))


def _weights(scarce: FloatArray) -> FloatArray:
    """Return the weight of each component, float64 ``[d]``: 1 for the scarcest, lower for less scarce components."""
    weights = scarce / max(float(scarce.max()), 1e-300)
    for _ in range(_DOUBLINGS):
        weights *= weights
    weights[weights < 0.01] = 0
    # If all weights are 0, all graphs have size 0 and fit anywhere.
    return weights if weights.any() else np.ones(len(weights))
