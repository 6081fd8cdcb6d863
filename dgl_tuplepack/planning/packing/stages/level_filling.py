"""Level filling: fill a fixed number of packs, all at the same time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dgl_tuplepack.planning.bounds.effort import Effort
from dgl_tuplepack.planning.bounds.instance import Instance, scarcity
from dgl_tuplepack.planning.packing.patterns import Patterns, of_packs
from dgl_tuplepack.planning.packing.stages.minimum_bin_slack import Tuning, completed
from dgl_tuplepack.planning.sizes import IntArray

# More graphs than this are divided into equal shares; only one share is dealt to packs, and its patterns repeat.
_MOST_ITEMS = 1 << 20
# Graphs dealt between two checks of the effort, and units of work (see `Effort`) for each graph.
_ITEMS_PER_SLICE = 1 << 17
_WORK_PER_ITEM = 20


def level_filling(instance: Instance, target: int, effort: Effort) -> Patterns | None:
    """Deal all graphs, largest first, to `target` packs. Graphs that do not fit are packed by minimum bin slack.

    This works well if packs hold many graphs and there is a cap on graphs. Return None if the effort does not suffice,
    or if `target` is smaller than the number of equal shares (see `_MOST_ITEMS`).

    Time O(C + n log P) to deal n graphs, at most 2^20, to P packs; memory O(n + P d).

    Source: Graham 1969, "Bounds on multiprocessing timing anomalies" (longest processing time first). Differs from it:
    with a cap on graphs, the next graph goes to the pack with the highest ratio of free room to the number of graphs
    that the pack may still get.
    """
    # counts[c]: number of graphs of class c in one share. packs: number of packs for one share.
    shares = max(1, -(-instance.num_graphs // _MOST_ITEMS))
    counts = instance.counts // shares
    packs = target // shares
    if packs == 0 or effort.left < _WORK_PER_ITEM * int(counts.sum()):
        return None
    dealt = _dealt(instance, counts, packs, effort)
    if dealt is None:
        return None
    return completed(instance, replace(dealt, repeats=dealt.repeats * shares), Tuning(), effort)


def _dealt(instance: Instance, counts: IntArray, packs: int, effort: Effort) -> Patterns | None:
    """Deal ``counts[c]`` graphs of each class c to `packs` packs.

    Leave out graphs that do not fit, and empty packs. Return None if the effort runs out.
    """
    from dgl_tuplepack._core.kernels.level_filling import Packs, deal

    limits = instance.limits
    # The component of the cap, in which every graph counts 1; -1 if there is none.
    counting = np.flatnonzero((instance.sizes == 1).all(axis=0))
    cap = int(counting[0]) if len(counting) else -1
    scarce = scarcity(instance.sizes, instance.counts, limits)
    if cap >= 0:
        scarce[cap] = 0
    weights = scarce / max(float(scarce.max()), 1e-300) / limits
    order = np.argsort(-(instance.sizes * weights).sum(axis=1), kind="stable")
    # items[i]: size class of graph i, largest graph first. assigned[i]: the pack of graph i, -1 if it did not fit.
    items = np.repeat(order, counts[order])
    # The kernel deals the next graph to the pack with the highest key, so at first every pack gets a graph.
    room, keys = np.repeat(limits[None], packs, axis=0), np.full(packs, np.finfo(np.float64).max)
    filled = Packs(room, np.arange(packs), keys, weights, cap)
    assigned = np.full(len(items), -1, dtype=np.int64)
    # length: number of packs that may still get graphs. `deal` writes `assigned`.
    length = packs
    for first in range(0, len(items), _ITEMS_PER_SLICE):
        if effort.exhausted:
            return None
        dealt = slice(first, first + _ITEMS_PER_SLICE)
        length = deal(instance.sizes, items[dealt], filled, length, assigned[dealt])
        effort.spend(_WORK_PER_ITEM * len(items[dealt]))
    placed = assigned >= 0
    return of_packs(assigned[placed], items[placed])
