"""Deal all graphs to a given number of packs, and repair packs that exceed a limit by exchanging graphs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dgl_tuplepack.planning.bounds.effort import Effort
from dgl_tuplepack.planning.bounds.instance import Instance
from dgl_tuplepack.planning.packing.patterns import Patterns, of_packs
from dgl_tuplepack.planning.packing.repair import GROUP, OpenPacks, dealt_evenly
from dgl_tuplepack.planning.packing.stages.minimum_bin_slack import Tuning, completed
from dgl_tuplepack.planning.sizes import IntArray

# More graphs than this are divided into equal shares; only one share is dealt to packs, and its patterns repeat.
_MOST_GRAPHS = 1 << 20
# Units of work (see `Effort`) for each graph; and products of a direction and a load in a unit (see `dealt_evenly`).
_WORK_PER_GRAPH, _PRODUCTS_PER_WORK = 20, 40
# The attempts of `dealt_near` deal to 1, 2, 4, ... times bound / _PART packs above the bound, minus 1, until a plan is
# at most bound / _ENOUGH packs above it.
_ATTEMPTS, _PART, _ENOUGH = 5, 4000, 1000
# Units of work of the repair in an attempt, for each graph and component.
_REPAIR_WORK = 120
# Unused places in each pack, which let graphs move.
_FREE = 16
# If more than one pack in _LEFT_OVER exceeds a limit after the repair, it has failed.
_LEFT_OVER = 4


def dealt_near(instance: Instance, bound: int, most: int, key: np.uint64, effort: Effort) -> Patterns | None:
    """Pack all graphs into at most `most` packs: into few more packs than `bound`, or into more and more (see `dealt`).

    Return None if the attempts fail, or if the effort runs out.
    """
    best: Patterns | None = None
    budget = _REPAIR_WORK * min(instance.num_graphs, _MOST_GRAPHS) * len(instance.limits)
    for attempt in range(_ATTEMPTS):
        target = bound - 1 + max(1, bound // _PART) * (1 << attempt)
        enough = most < bound + bound // _ENOUGH
        if enough or target > most or effort.left < work_of_dealing(instance, target):
            break
        patterns = dealt(instance, target, key + np.uint64(attempt), budget, effort)
        if patterns is not None and patterns.num_packs <= most:
            best, most = patterns, patterns.num_packs - 1
    return best


def work_of_dealing(instance: Instance, packs: int) -> int:
    """Return the units of work of `dealt`, without the repair."""
    graphs, groups = min(instance.num_graphs, _MOST_GRAPHS), -(-packs // GROUP)
    runs = min(graphs, groups * len(instance.counts))
    return graphs * _WORK_PER_GRAPH + runs * (packs // groups) * len(instance.limits) // _PRODUCTS_PER_WORK


def dealt(instance: Instance, target: int, key: np.uint64, budget: int, effort: Effort) -> Patterns | None:
    """Pack all graphs into `target` packs, or a few more; return None if that fails, or if the effort runs out.

    All packs get graphs at the same time, the largest graph first, so that their loads become nearly equal in every
    component (see `dealt_evenly`). Then packs that exceed a limit exchange graphs with other packs (see
    `OpenPacks.repair`), with at most `budget` units of work. If some packs still exceed a limit, graphs are taken out
    of them and packed by minimum bin slack.

    Time O(N P d) to deal N graphs, at most 2^20, to groups of P packs, at most 2,000; plus the repair.
    """
    shares = max(1, -(-instance.num_graphs // _MOST_GRAPHS))
    counts, number = instance.counts // shares, target // shares
    if number == 0 or not counts.any():
        return None
    effort.spend(work_of_dealing(instance, number))
    parts = instance.sizes / instance.limits
    order = np.argsort(-parts.sum(axis=1), kind="stable")
    classes = np.repeat(order, counts[order])
    assigned = dealt_evenly(parts, classes, number)
    packs = OpenPacks.of(instance.sizes, instance.limits, assigned, classes, number, _FREE)
    effort.spend(packs.repair(moves=True, key=key, budget=min(budget, effort.left // 2)))
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
