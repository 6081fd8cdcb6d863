"""Packs of several shapes: which graphs go to which shape, planned by the other packing methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from dgl_tuplepack.bounds.instance import as_instance
from dgl_tuplepack.bounds.quick import quick_bound
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.ladder import Ladder
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing.patterns import Patterns, joined
from dgl_tuplepack.packing.settings import Settings
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.sizes import FloatArray, IntArray, components_of_kind

Method = Callable[[SizeHistogram, Limits, Settings], PackPlan]

# A pack costs this much more than its slots if a smaller shape could hold each of its graphs: larger batches than asked
# for have to pay for themselves by less padding.
_SURCHARGE = 0.02
# Shares of the emptiest packs of a shape that are offered to the next larger one, in the order tried.
_SHARES = (0.01, 0.05, 0.2, 0.5)
# Results, the best first, from which they are offered, and those that are planned again with effort.
_OFFERED = 4
_FINAL = 2


def pack_ladder(
    histogram: SizeHistogram,
    ladder: Ladder,
    method: Method,
    filling: tuple[Method, ...],
    settings: Settings,
    thorough: bool = True,
) -> PackPlan:
    """Plan packs of several shapes with few slots.

    Minimises the node and edge slots of all packs, one reserved node of each type included; a pack whose graphs a
    smaller shape could hold one by one counts 2 % more. Components without a limit do not count. No optimum is
    guaranteed.

    From the largest shape to the smallest: all graphs that remain are packed into the shape, packs with a graph that
    has to have the shape are kept, and the graphs of the others go on to smaller shapes. So small graphs fill the room
    beside large ones. The smallest shape is packed by `method`, the others by each of `filling` in turn. This is done
    without effort for every subset of the shapes that takes all graphs. From the best four of them, the emptiest packs
    of each shape are offered to the next larger shape, and the best result is planned again with the effort asked for.
    Each pack has the smallest shape that takes its content. Not `thorough`: only the subset of all shapes is packed,
    by the first of `filling`.

    Time: up to 60 times that of `method` without effort for each shape, and once with it. Memory: that of `method`.
    """
    filled = ladder.filled(histogram.components, histogram.totals())
    needed = filled.smallest_for(histogram.sizes, np.ones(len(histogram), dtype=np.int64))
    reserved = len(components_of_kind(ladder.components, "nodes"))
    slots = np.array([sum(limits.values) + reserved for limits in ladder], dtype=np.float64)
    packing = _Packing(histogram, filled, method, needed, slots)
    quick = replace(settings, effort=0.0)
    demands = [packing.demand(levels) for levels in _subsets(needed, len(ladder))]
    if not thorough:
        return packing.plan_of(packing.packed(demands[0], filling[0], quick), settings)
    found = [packing.packed(demand, fill, quick) for demand in demands for fill in filling]
    found.sort(key=lambda each: each.cost)
    offered = sorted((_offered_upwards(packing, each, quick) for each in found[:_OFFERED]), key=lambda each: each.cost)
    if settings.effort > 0:
        again = [packing.packed(each.demand, each.filling, settings) for each in offered[:_FINAL]]
        offered = sorted([*again, *offered], key=lambda each: each.cost)
    return packing.plan_of(offered[0], settings)


@dataclass(frozen=True, eq=False)
class _Found:
    """Patterns that hold every graph, and how they were made.

    `demand` has the graphs of each class that have to have at least a shape, int64 ``[shapes, C]``; `filling` packed
    all shapes but the smallest.
    """

    demand: IntArray
    filling: Method
    patterns: Patterns
    # Shape of each pattern, int64 [Q].
    shapes: IntArray
    cost: float
    method: str
    heuristic: str | None


@dataclass(frozen=True, eq=False)
class _Packing:
    """How graphs are packed into shapes, once it is said which of them have to have which shape.

    `needed` is the smallest shape that takes a graph of each class, int64 ``[C]``; `slots` are those of a pack of each
    shape.
    """

    histogram: SizeHistogram
    ladder: Ladder
    method: Method
    needed: IntArray
    slots: FloatArray

    def demand(self, levels: IntArray) -> IntArray:
        """Return the demand where all graphs of a class have to have the shape of `levels`, int64 ``[C]``."""
        return np.where(np.arange(len(self.ladder))[:, None] == levels, self.histogram.counts, 0)

    def packed(self, demand: IntArray, filling: Method, settings: Settings) -> _Found:
        """Pack all graphs, shape by shape, the largest first."""
        left, parts, plans = demand.copy(), [], list[PackPlan]()
        levels = int(demand.any(axis=1).sum())
        if settings.time_limit is not None:
            settings = replace(settings, time_limit=settings.time_limit / levels)
        for shape in reversed(range(len(self.ladder))):
            if not left[shape].any():
                continue
            counts = left[: shape + 1].sum(axis=0)
            classes = np.flatnonzero(counts)
            part = SizeHistogram(self.histogram.sizes[classes], counts[classes], self.histogram.components)
            packer = filling if left[:shape].any() else self.method
            plan = packer(part, self.ladder[shape], settings)
            plans.append(plan)
            patterns = Patterns(plan.offsets, classes[plan.classes], plan.multiplicities, plan.repeats)
            kept = _kept(patterns, left[shape])
            parts.append(kept)
            _take(left[: shape + 1], kept.packed(len(counts)))
        patterns = joined(parts)
        contents = patterns.contents(self.histogram.sizes)
        shapes = self.ladder.smallest_for(contents, patterns.graphs)
        spare = np.maximum.reduceat(self.needed[patterns.classes], patterns.offsets[:-1]) < shapes
        cost = float((patterns.repeats * self.slots[shapes] * np.where(spare, 1 + _SURCHARGE, 1.0)).sum())
        method = ", ".join(dict.fromkeys(plan.method for plan in plans))
        return _Found(demand, filling, patterns, shapes, cost, method, plans[-1].heuristic)

    def plan_of(self, found: _Found, settings: Settings) -> PackPlan:
        """Return the plan of a result."""
        largest, p = self.ladder.largest, found.patterns
        bound = quick_bound(as_instance(self.histogram, largest))
        return PackPlan(
            self.histogram, largest, p.offsets, p.classes, p.multiplicities, p.repeats, bound, found.method,
            found.heuristic, settings.seed, settings.random_ties and found.heuristic is not None, ladder=self.ladder,
        )  # fmt: skip


def _subsets(needed: IntArray, shapes: int) -> Iterator[IntArray]:
    """Yield, for each subset of shapes that takes all graphs, the smallest of its shapes for each class."""
    for number in reversed(range(1, shapes + 1)):
        for chosen in combinations(range(shapes), number):
            if chosen[-1] >= needed.max():
                allowed = np.array(chosen)
                yield allowed[np.searchsorted(allowed, needed)]


def _kept(patterns: Patterns, demand: IntArray) -> Patterns:
    """Return the packs that hold the graphs of a demand, int64 ``[C]``, and no packs without one of them."""
    missing = demand.copy()
    rows, repeats = list[int](), list[int]()
    for row in range(len(patterns)):
        entries = slice(int(patterns.offsets[row]), int(patterns.offsets[row + 1]))
        classes, multiplicities = patterns.classes[entries], patterns.multiplicities[entries]
        wanted = int((-(-missing[classes] // multiplicities)).max())
        if wanted > 0:
            packs = min(wanted, int(patterns.repeats[row]))
            missing[classes] = np.maximum(missing[classes] - packs * multiplicities, 0)
            rows.append(row)
            repeats.append(packs)
    return patterns.take(np.array(rows), np.array(repeats))


def _take(left: IntArray, packed: IntArray) -> None:
    """Subtract packed graphs, int64 ``[C]``, from those of all shapes ``[shapes, C]``, the largest shape first."""
    packed = packed.copy()
    for row in left[::-1]:
        taken = np.minimum(row, packed)
        row -= taken
        packed -= taken


def _offered_upwards(packing: _Packing, best: _Found, settings: Settings) -> _Found:
    """Return the better of `best` and packings where graphs of its emptiest packs have to have a larger shape."""
    sizes = packing.histogram.sizes
    for shape in range(len(packing.ladder) - 1):
        for share in _SHARES:
            rows = np.flatnonzero(best.shapes == shape)
            if not len(rows):
                break
            filled = best.patterns.contents(sizes)[rows] / packing.ladder[shape].array
            rows = rows[np.argsort(filled.mean(axis=1), kind="stable")]
            most = int(share * best.patterns.repeats[rows].sum()) + 1
            before = np.concatenate([[0], np.cumsum(best.patterns.repeats[rows])[:-1]])
            repeats = np.minimum(best.patterns.repeats[rows], most - before)
            offered = best.patterns.take(rows[repeats > 0], repeats[repeats > 0]).packed(len(sizes))
            demand = best.demand.copy()
            below = demand[: shape + 1].sum(axis=0)
            moved = np.minimum(offered, below)
            _take(demand[: shape + 1], moved)
            demand[shape + 1] += moved
            found = packing.packed(demand, best.filling, settings)
            best = found if found.cost < best.cost else best
    return best
