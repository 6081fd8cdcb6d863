"""Pricing for the pattern LP by search: for packs of few graphs, with limits of any size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgl_tuplepack.planning.bounds.effort import Effort
from dgl_tuplepack.planning.bounds.instance import Instance
from dgl_tuplepack.planning.bounds.pricing import SHIFT, Priced, as_integers
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

# Most steps of the search for packs that begin with one class.
_MOST_STEPS = 50_000
# A step takes as long for fewer components as for this many.
_FEWEST_COMPONENTS = 3
# Classes that one call of the kernel searches.
_CLASSES_PER_SLICE = 64
# The packs to start from are filled to at least 1 / _FULL.
_FULL = 1.1
# Duals of the LP's solution are inexact in the last digits: packs worth less than this do not improve it.
_ONE = (1 << SHIFT) + (1 << (SHIFT - 24))


@dataclass(frozen=True, eq=False)
class Searched(Priced):
    """Duals priced by search, with the packs that are worth more than 1."""

    # Patterns worth more than 1, the most valuable first, int64 [M, C].
    found: IntArray

    def contents(self, duals: FloatArray, most: int) -> IntArray:
        """Return the best packs, at most one for each class that a pack may begin with."""
        return self.found[self.found @ duals > 1 + 1e-7][:most]


def by_search(instance: Instance, duals: FloatArray, effort: Effort) -> Searched:
    """Find the packs of the highest worth, and with them the bound that the duals prove.

    No pack holds more graphs of a class than exist, so the bound is stronger than the bound of `price`. The bound is 0
    if the search was cut off.

    Exact in integers. Time: see ``kernels.pack_search``.

    Source: Farley 1990, "A note on bounding a class of linear programming problems, including cutting stock
    problems", for the bound.
    """
    from dgl_tuplepack._core.kernels.pack_search import Classes, search_packs, tails

    values = as_integers(duals)
    worthy = np.flatnonzero(values)
    # Highest worth first, relative to the share of a pack that a graph needs.
    shares = (instance.sizes[worthy] / instance.limits).mean(axis=1)
    order = worthy[np.argsort(-(values[worthy] / shares), kind="stable")]
    sizes = np.ascontiguousarray(instance.sizes[order])
    classes = Classes(sizes, values[order], instance.counts[order], tails(sizes, values[order], instance.limits))
    rows, worth, complete = [np.zeros((0, len(values)), dtype=np.int64)], [np.zeros(0, dtype=np.int64)], True
    for first in range(0, len(order), _CLASSES_PER_SLICE):
        if effort.exhausted:
            complete = False
            break
        last = min(first + _CLASSES_PER_SLICE, len(order))
        contents, best = np.zeros((last - first, len(order)), dtype=np.int64), np.zeros(last - first, dtype=np.int64)
        steps = search_packs(classes, instance.limits, first, last, _ONE, _MOST_STEPS, contents, best)
        effort.spend(abs(steps) * max(len(instance.limits), _FEWEST_COMPONENTS) // 2 + (last - first) * len(order))
        complete = complete and steps >= 0
        better = np.flatnonzero(best > _ONE)
        found = np.zeros((len(better), len(values)), dtype=np.int64)
        found[:, order] = contents[better]
        rows.append(found)
        worth.append(best[better])
    values_found = np.concatenate(worth)
    most = max(_ONE, int(values_found.max(initial=0))) if complete else 0
    return Searched(instance, values, most, np.concatenate(rows)[np.argsort(-values_found, kind="stable")])


def linear_duals(instance: Instance, effort: Effort) -> Searched:
    """Return the best duals that are linear in one component, with full packs to start from."""
    points = [instance.sizes[:, column] / limit for column, limit in enumerate(instance.limits.tolist())]
    best = max(points, key=lambda duals: float(duals @ instance.counts))
    found = by_search(instance, np.minimum(_FULL * best, 1.0), effort).found
    # No pack is worth more than 1.
    return Searched(instance, as_integers(best), 1 << SHIFT, found)
