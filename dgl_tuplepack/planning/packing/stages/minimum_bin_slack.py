"""Minimum bin slack on a histogram: fill one pack after another as full as a bounded search can."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgl_tuplepack.planning.bounds.instance import Instance, needed_packs, scarcity
from dgl_tuplepack.planning.bounds.pattern_lp import Effort
from dgl_tuplepack.planning.plan import Patterns, joined
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

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
# Units of work (see `Effort`) of a step, of a `_Filling`, and of each class in a `_Filling`.
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

    If the graphs would fit into fewer than `target` packs, each pack may waste some room. Time O(C log C) for each
    `_Filling`, and O((S + E) log C) for each pattern of E entries, with S = `tuning.steps`.

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
        filling = _Filling(instance, classes, remaining, target, tuning)
        for patterns in filling.run(effort):
            filled.append(patterns)
            target -= patterns.num_packs
        if filling.stopped:
            return None
        # `run` has reduced `remaining`.
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


class _Filling:
    """A run of packs with the same component weights and the same order of classes."""

    def __init__(self, instance: Instance, classes: IntArray, remaining: IntArray, target: int, tuning: Tuning) -> None:
        from dgl_tuplepack._core.kernels.bin_slack import BLOCK, Classes, Goal, Left, Pack, tree_of

        sizes = instance.sizes[classes]
        scarce = scarcity(sizes, remaining, instance.limits)
        needed = max(float(scarce.max()), 1.0)
        weights = _weights(scarce)
        shares = sizes / instance.limits
        # Sort classes by the weighted sum of their shares, then by their largest share, both descending.
        order = np.lexsort((shares.max(axis=1), (shares * weights).sum(axis=1)))[::-1]
        self.classes, self.order, self.remaining = classes, order, remaining
        sizes, weights = np.ascontiguousarray(sizes[order]), weights / instance.limits
        self.sorted = Classes(
            sizes,
            keys=(sizes * weights).sum(axis=1),
            smallest=np.ascontiguousarray(np.minimum.accumulate(sizes[::-1], axis=0)[::-1]),
            lows=np.minimum.reduceat(sizes, np.arange(0, len(order), BLOCK), axis=0),
            hardest=np.argsort(-shares[order].max(axis=1), kind="stable"),
        )
        # spare: the fraction of the limit of the scarcest component that each of `target` packs may waste.
        spare = max(1 - needed / target, 0.0) if target > 0 else 0.0
        left = remaining[order]
        graphs_per_pack = float(left.sum()) / needed
        # The kernel is compiled for writable arrays and float settings only, hence the copy and the conversions.
        self.goal = Goal(
            instance.limits.copy(), weights, spare * _ACCEPTED_WASTE + 1e-12, tuning.steps, tuning.walk, _WIDTH,
            graphs_per_pack, float(tuning.kept), float(tuning.turn),
        )  # fmt: skip
        sampled = graphs_per_pack > max(_SAMPLE_FROM, tuning.kept)
        tree = tree_of(left) if sampled else np.zeros(0, dtype=np.int64)
        self.left = Left(left, np.arange(len(left) + 1), tree)
        self.pack = Pack(
            room=np.empty_like(instance.limits),
            amount=np.zeros_like(left),
            touched=np.empty_like(left),
            best=np.empty(1 + 2 * len(left), dtype=np.int64),
            stack=np.empty((3, len(left)), dtype=np.int64),
            least=np.empty(1),
        )
        self.stopped = False

    def run(self, effort: Effort) -> list[Patterns]:
        """Fill packs until graphs, effort or steps are used up; return patterns. The caller's `remaining` changes."""
        filled: list[Patterns] = []
        remaining = self.left.remaining
        steps_left = max(_SLICE, 64 * len(remaining))
        # The state of the kernel between calls; see `_slice`.
        state = np.zeros(5, dtype=np.int64)
        while steps_left > 0 and remaining.any():
            if effort.exhausted:
                self.stopped = True
                break
            patterns, steps = self._slice(state)
            filled.append(patterns)
            effort.spend(_WORK_PER_STEP * steps)
            steps_left -= steps
        effort.spend(_WORK_PER_FILLING + _WORK_PER_CLASS * len(remaining))
        self.remaining[self.order] = remaining
        return filled

    def _slice(self, state: IntArray) -> tuple[Patterns, int]:
        """Call the kernel once; return the patterns that it found, and its number of steps."""
        from dgl_tuplepack._core.kernels.bin_slack import ENTRIES, PACKS, PATTERNS, STEPS, Written, fill_packs

        remaining = self.left.remaining
        most = min(_MOST_PATTERNS, int(remaining.sum()))
        # entries: a row of classes (positions in `order`) and a row of multiplicities, about 8 for each pattern.
        space = 2 * len(remaining) + 8 * most
        offsets = np.zeros(most + 1, dtype=np.int64)
        entries = np.empty((2, space), dtype=np.int64)
        repeats = np.empty(most, dtype=np.int64)
        # The samples of each call begin at other graphs.
        goal = self.goal._replace(turn=self.goal.turn + float(state[PACKS]))
        # PACKS and HARD (see `kernels.bin_slack`) carry over.
        state[[ENTRIES, PATTERNS, STEPS]] = 0
        # The kernel stops if the space left in `entries` is less than one entry for each class.
        written = Written(offsets, entries[0], entries[1], repeats)
        fill_packs(self.sorted, self.left, goal, self.pack, written, _SLICE, state)
        used, found = state[ENTRIES], state[PATTERNS]
        classes = self.classes[self.order[entries[0, :used]]]
        patterns = Patterns(offsets[: found + 1].copy(), classes, entries[1, :used].copy(), repeats[:found].copy())
        return patterns, int(state[STEPS])


def _weights(scarce: FloatArray) -> FloatArray:
    """Return the weight of each component, float64 ``[d]``: 1 for the scarcest, lower for less scarce components."""
    weights = scarce / max(float(scarce.max()), 1e-300)
    for _ in range(_DOUBLINGS):
        weights *= weights
    weights[weights < 0.01] = 0
    # If all weights are 0, all graphs have size 0 and fit anywhere.
    return weights if weights.any() else np.ones(len(weights))
