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
# With fewer components, a step takes as long as with this many.
_FEWEST_COMPONENTS = 3
# One call of the kernel searches the packs that begin with any of this many classes.
_CLASSES_PER_SLICE = 64
# The packs that start the LP are filled to at least 1 / _FULL.
_FULL = 1.1
# The worth above which a pack improves the LP, in units of 2**-SHIFT: 1, plus a margin, as the LP's duals are inexact.
_ONE = (1 << SHIFT) + (1 << (SHIFT - 24))


@dataclass(frozen=True, eq=False)
class Searched(Priced):
    """Duals priced by search, with the packs that are worth more than 1."""

    # Patterns worth more than 1, the most valuable first, int64 [M, C].
    found: IntArray

    def contents(self, duals: FloatArray, most: int) -> IntArray:
        """Return the best packs, most valuable first; no two packs in `found` begin with the same class."""
        return self.found[self.found @ duals > 1 + 1e-7][:most]


def by_search(instance: Instance, duals: FloatArray, effort: Effort) -> Searched:
    """Find the packs of the highest worth by search, and with them the bound that the duals prove.

    No pack holds more graphs of a class than exist, so the bound is stronger than the bound of `price`. The bound is 0
    if the search was cut off, by the effort or by its limit of steps.

    Exact in integers. Time: see ``kernels.pack_search``.

    Source: Farley 1990, "A note on bounding a class of linear programming problems, including cutting stock
    problems", for the bound.
    """
    from dgl_tuplepack._core.kernels.pack_search import Classes, search_packs, tails

    values = as_integers(duals)
    worthy = np.flatnonzero(values)
    # Sort classes by worth / share of a pack that a graph needs, highest first.
    shares = (instance.sizes[worthy] / instance.limits).mean(axis=1)
    order = worthy[np.argsort(-(values[worthy] / shares), kind="stable")]
    sizes = np.ascontiguousarray(instance.sizes[order])
    classes = Classes(sizes, values[order], instance.counts[order], tails(sizes, values[order], instance.limits))
    # The patterns found, their worth, and whether the search was complete so far.
    rows, worth, complete = [np.zeros((0, len(values)), dtype=np.int64)], [np.zeros(0, dtype=np.int64)], True
    for first in range(0, len(order), _CLASSES_PER_SLICE):
        if effort.exhausted:
            complete = False
            break
        last = min(first + _CLASSES_PER_SLICE, len(order))
        # contents[i], best[i]: the best pack that begins with class first + i (in this order), and its worth.
        contents, best = np.zeros((last - first, len(order)), dtype=np.int64), np.zeros(last - first, dtype=np.int64)
        # The number of steps is negative if a search was cut off.
        steps = search_packs(classes, instance.limits, first, last, _ONE, _MOST_STEPS, contents, best)
        effort.spend(abs(steps) * max(len(instance.limits), _FEWEST_COMPONENTS) // 2 + (last - first) * len(order))
        complete = complete and steps >= 0
        better = np.flatnonzero(best > _ONE)
        found = np.zeros((len(better), len(values)), dtype=np.int64)
        # Back to the order of the instance's classes.
        found[:, order] = contents[better]
        rows.append(found)
        worth.append(best[better])
    values_found = np.concatenate(worth)
    most = max(_ONE, int(values_found.max(initial=0))) if complete else 0
    return Searched(instance, values, most, np.concatenate(rows)[np.argsort(-values_found, kind="stable")])


def linear_duals(instance: Instance, effort: Effort) -> Searched:
    """Return duals proportional to the sizes in one component, and nearly full packs to start the LP with.

    The dual of a class is its size in the component, divided by the limit. The component with the best bound is chosen.
    """
    points = [instance.sizes[:, column] / limit for column, limit in enumerate(instance.limits.tolist())]
    best = max(points, key=lambda duals: float(duals @ instance.counts))
    found = by_search(instance, np.minimum(_FULL * best, 1.0), effort).found
    # No pack is worth more than 1, since it keeps the limit of that component.
    return Searched(instance, as_integers(best), 1 << SHIFT, found)
