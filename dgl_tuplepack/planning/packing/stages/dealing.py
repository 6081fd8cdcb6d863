"""Deal all graphs to a given number of packs, and repair packs that exceed a limit by exchanging graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.planning.bounds.instance import Instance, needed_packs
from dgl_tuplepack.planning.bounds.pattern_lp import Effort
from dgl_tuplepack.planning.packing.stages.minimum_bin_slack import Tuning, completed
from dgl_tuplepack.planning.plan import Patterns, of_packs
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

# More graphs than this are divided into equal shares; only one share is dealt to packs, and its patterns repeat.
_MOST_GRAPHS = 1 << 20
# Units of work (see `Effort`) for each graph; and products of a direction and a load in a unit (see `dealt_evenly`).
_WORK_PER_GRAPH, _PRODUCTS_PER_WORK = 12, 40
# Unused places in each pack, which let graphs move.
_FREE = 16
# If more than one pack in _LEFT_OVER exceeds a limit after the repair, it has failed.
_LEFT_OVER = 4
# Sizes are scaled so that each limit is about _SCALE. If loads could add up to more than _MOST, nothing is exchanged.
_SCALE, _MOST = 1 << 26, 1 << 62
# Graphs are dealt to groups of at most this many packs.
GROUP = 1000
# Directions are scaled to _DIRECTION, and loads so that products of full packs are about _PRODUCT, in int32.
_DIRECTION, _PRODUCT = 1 << 9, 1 << 28


if TYPE_CHECKING:
    from dgl_tuplepack._core.kernels.deal_and_repair import Packs


def dealt_near(
    instance: Instance, targets: Sequence[int], most: int, key: np.uint64, work: int, effort: Effort
) -> Patterns | None:
    """Pack all graphs into about ``targets[0]`` packs, then ``targets[1]``, fewer, and so on, while this saves packs.

    An attempt may spend `work` on the repair, for each graph and component. None if none has at most `most` packs.
    """
    best: Patterns | None = None
    budget = work * min(instance.num_graphs, _MOST_GRAPHS) * len(instance.limits)
    for target in targets:
        if target > most:
            continue
        if effort.left < work_of_dealing(instance, target):
            break
        patterns = dealt(instance, target, key_of(int(key), target, 0), budget, effort)
        if patterns is None or patterns.num_packs > most:
            break
        best, most = patterns, patterns.num_packs - 1
    return best


def work_of_dealing(instance: Instance, packs: int) -> int:
    """Return the units of work of `dealt`, without the repair."""
    shares = -(-instance.num_graphs // _MOST_GRAPHS)
    graphs, packs = instance.num_graphs // shares, packs // shares
    groups = -(-packs // GROUP)
    runs = min(graphs, groups * len(instance.counts))
    return graphs * _WORK_PER_GRAPH + runs * packs // max(groups, 1) * len(instance.limits) // _PRODUCTS_PER_WORK


def dealt(instance: Instance, target: int, key: np.uint64, budget: int, effort: Effort) -> Patterns | None:
    """Pack all graphs into `target` packs, or a few more; return None if that fails, or if the effort runs out.

    All packs get graphs at the same time, the largest first (see `dealt_evenly`). Packs that exceed a limit then
    exchange graphs (see `OpenPacks.repair`, at most `budget` units of work), or lose graphs to minimum bin slack.
    """
    shares = -(-instance.num_graphs // _MOST_GRAPHS)
    counts = instance.counts // shares
    # The graphs that equal shares leave over get packs of their own.
    left_over = instance.with_counts(instance.counts % shares)[0]
    number = (target - (needed_packs(left_over) if shares > 1 else 0)) // shares
    if number <= 0 or not counts.any():
        return None
    effort.spend(work_of_dealing(instance, number))
    fractions = instance.sizes / instance.limits
    order = np.argsort(-fractions.sum(axis=1), kind="stable")
    classes = np.repeat(order, counts[order])
    assigned = dealt_evenly(fractions, classes, number)
    packs = OpenPacks.of(instance.sizes, instance.limits, assigned, classes, number, _FREE)
    effort.spend(packs.repair(moves=True, key=key, budget=min(budget, 3 * effort.left // 4)))
    exceeding = packs.exceeding()
    if effort.exhausted or len(exceeding) > number // _LEFT_OVER:
        return None
    for pack in exceeding.tolist():
        packs.counts[pack] = _shortened(instance, packs.members[pack, : packs.counts[pack]])
    patterns = of_packs(np.repeat(np.arange(number), packs.counts), packs.graphs)
    return completed(instance, replace(patterns, repeats=patterns.repeats * shares), Tuning(), effort)


def _shortened(instance: Instance, members: IntArray) -> int:
    """Reorder the graphs of a pack so that the first of them are within the limits; return their number."""
    number = len(members)
    while True:
        sizes = instance.sizes[members[:number]]
        above = sizes.sum(axis=0) - instance.limits
        if (above <= 0).all():
            return number
        # The graph that is taken out is the one whose size is closest to the excess.
        chosen = int((np.abs(np.maximum(above, 0) - sizes) / instance.limits).sum(axis=1).argmin())
        number -= 1
        members[[chosen, number]] = members[[number, chosen]]


@dataclass(frozen=True, eq=False)
class OpenPacks:
    """P packs of up to M graphs each, which may be exchanged, within `limits` ``[d]``.

    Row p of `members` ``[P, M]`` begins with the ``counts[p]`` graphs of pack p, as rows of `sizes` ``[N, d]``.
    """

    sizes: IntArray
    limits: IntArray
    members: IntArray
    counts: IntArray

    @classmethod
    def of(
        cls, sizes: IntArray, limits: IntArray, assigned: IntArray, rows: IntArray, packs: int, free: int
    ) -> OpenPacks:
        """Make packs with `free` unused places; graph i, of the size ``sizes[rows[i]]``, is in ``assigned[i]``."""
        counts = np.bincount(assigned, minlength=packs)
        members = np.zeros((packs, int(counts.max()) + free), dtype=np.int64)
        order = np.argsort(assigned, kind="stable")
        places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        members[assigned[order], places] = rows[order]
        return cls(sizes, limits, members, counts)

    @property
    def graphs(self) -> IntArray:
        """The rows of all packs, one pack after the other."""
        return self.members[np.arange(self.members.shape[1]) < self.counts[:, None]]

    @property
    def loads(self) -> IntArray:
        """Total size of each pack, int64 ``[P, d]``."""
        sums = np.zeros((len(self.graphs) + 1, len(self.limits)), dtype=np.int64)
        np.cumsum(self.sizes[self.graphs], axis=0, out=sums[1:])
        ends = np.cumsum(self.counts)
        loads: IntArray = sums[ends] - sums[ends - self.counts]
        return loads

    def exceeding(self) -> IntArray:
        """Return the packs that exceed a limit."""
        return np.flatnonzero((self.loads > self.limits).any(axis=1))

    def repair(self, *, moves: bool, key: np.uint64, budget: int) -> int:
        """Exchange (with `moves`, also move) graphs until no pack exceeds a limit; return the work, about `budget`."""
        from dgl_tuplepack._core.kernels.deal_and_repair import repair

        if (scaled := self._scaled()) is None:
            return 0
        return repair(*scaled, moves, 1, key, budget)[1]

    def stir(self, chosen: IntArray, *, key: np.uint64, rounds: int, budget: int) -> int:
        """Exchange random graphs of the packs `chosen` with all packs, within the limits; return the work done."""
        from dgl_tuplepack._core.kernels.deal_and_repair import stir

        if (scaled := self._scaled()) is None:
            return 0
        return stir(*scaled, chosen, key, rounds, budget)

    def _scaled(self) -> tuple[IntArray, IntArray, Packs] | None:
        """Return the first arguments of the kernels, or None if sums could overflow."""
        from dgl_tuplepack._core.kernels.deal_and_repair import Packs

        scale = max(_SCALE, int(self.limits.max()))
        if scale * len(self.counts) * len(self.limits) > _MOST:
            return None
        factors = scale // self.limits
        nothing = np.zeros((1, len(self.limits)), dtype=np.int64)
        sizes = np.vstack([self.sizes * factors, nothing])
        return sizes, self.limits * factors, Packs(self.members, self.counts, self.loads * factors)


def dealt_evenly(shares: FloatArray, rows: IntArray, packs: int) -> IntArray:
    """Deal graphs to packs so that all loads are nearly equal; return the pack of each graph, int64 ``[N]``.

    Graph i, with ``shares[rows[i]]`` of the limits, goes to the pack whose load has the smallest scalar product with
    its size; large graphs should come first. Time O(N P d) for groups of P <= 1,000 packs, each of which gets a sample
    of the graphs; less if rows repeat.
    """
    from dgl_tuplepack._core.kernels.deal_and_repair import deal

    # A graph of size 0 has the direction 0.
    directions = (shares / np.maximum(shares.max(axis=1), 1e-300)[:, None] * _DIRECTION).astype(np.int32)
    steps = (shares * (_PRODUCT // (_DIRECTION * shares.shape[1]))).astype(np.int32)
    assigned = np.empty(len(rows), dtype=np.int64)
    groups, first = -(-packs // GROUP), 0
    for group in range(groups):
        of_group = np.ascontiguousarray(rows[group::groups])
        number = packs // groups + (group < packs % groups)
        chosen = np.empty(len(of_group), dtype=np.int64)
        deal(directions, steps, of_group, number, chosen)
        assigned[group::groups] = first + chosen
        first += number
    return assigned
