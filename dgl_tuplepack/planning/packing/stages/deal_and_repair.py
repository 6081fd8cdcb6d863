"""Deal all graphs to a given number of packs, and repair packs that exceed a limit by exchanging graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.planning.bounds.effort import Effort
from dgl_tuplepack.planning.bounds.instance import Instance, needed_packs
from dgl_tuplepack.planning.packing.patterns import Patterns, of_packs
from dgl_tuplepack.planning.packing.repair import GROUP, OpenPacks, dealt_evenly
from dgl_tuplepack.planning.packing.stages.minimum_bin_slack import Tuning, completed
from dgl_tuplepack.planning.sizes import IntArray

# More graphs than this are divided into equal shares; only one share is dealt to packs, and its patterns repeat.
_MOST_GRAPHS = 1 << 20
# Units of work (see `Effort`) for each graph; and products of a direction and a load in a unit (see `dealt_evenly`).
_WORK_PER_GRAPH, _PRODUCTS_PER_WORK = 12, 40
# Unused places in each pack, which let graphs move.
_FREE = 16
# If more than one pack in _LEFT_OVER exceeds a limit after the repair, it has failed.
_LEFT_OVER = 4


def dealt_near(
    instance: Instance, targets: Sequence[int], most: int, key: np.uint64, work: int, effort: Effort
) -> Patterns | None:
    """Pack all graphs into about ``targets[0]`` packs, then into ``targets[1]``, fewer, and so on (see `dealt`).

    Leave out targets above `most`, and stop at the first attempt that saves no pack. An attempt may spend `work` units
    on the repair, for each graph and component. Return None if no patterns have at most `most` packs, or if the effort
    runs out.
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

    All packs get graphs at the same time, the largest graph first, so that their loads become nearly equal in every
    component (see `dealt_evenly`). Then packs that exceed a limit exchange graphs with other packs (see
    `OpenPacks.repair`), with at most `budget` units of work. If some packs still exceed a limit, graphs are taken out
    of them and packed by minimum bin slack.

    Time O(N P d) to deal N graphs, at most 2^20, to groups of P packs, at most 1,000; plus the repair.
    """
    shares = -(-instance.num_graphs // _MOST_GRAPHS)
    counts = instance.counts // shares
    # The graphs that equal shares leave over get packs of their own.
    left_over = instance.with_counts(instance.counts % shares)[0]
    number = (target - (needed_packs(left_over) if shares > 1 else 0)) // shares
    if number <= 0 or not counts.any():
        return None
    effort.spend(work_of_dealing(instance, number))
    parts = instance.sizes / instance.limits
    order = np.argsort(-parts.sum(axis=1), kind="stable")
    classes = np.repeat(order, counts[order])
    assigned = dealt_evenly(parts, classes, number)
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
