"""Pricing (see `pricing`) by a search for packs; it suits packs of few graphs, with limits of any size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgl_tuplepack.planning.bounds.instance import Instance
from dgl_tuplepack.planning.bounds.pricing import SHIFT, Effort, Priced, as_integers
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

# A pack begins with the first of its classes, in the order in which the search tries classes. _MOST_STEPS is the most
# steps of the search for packs that begin with one class.
_MOST_STEPS = 50_000
# With fewer components than this number, a step takes as long as with this number.
_FEWEST_COMPONENTS = 3
# Number of classes for which one call of the kernel searches; the effort is checked between calls.
_CLASSES_PER_SLICE = 64
# `linear_duals` returns packs that use more than 1 / _FULL of the limit of one component.
_FULL = 1.1
# 1 in units of 2**-SHIFT, plus a margin, since the duals of the LP's solution are inexact.
_ONE = (1 << SHIFT) + (1 << (SHIFT - 24))


@dataclass(frozen=True, eq=False)
class Searched(Priced):
    """Duals priced by search, with the packs that are worth more than 1."""

    # Patterns worth more than 1, the most valuable first: graphs of each class, int64 [M, C].
    found: IntArray

    def contents(self, duals: FloatArray, most: int) -> IntArray:
        """Return the first `most` patterns in `found` that are worth more than 1 under `duals`, int64 ``[M, C]``."""
        return self.found[self.found @ duals > 1 + 1e-7][:most]


def by_search(instance: Instance, duals: FloatArray, effort: Effort) -> Searched:
    """Find the most valuable packs by a search; the highest worth of a pack gives the bound that the duals prove.

    The search allows at most as many graphs of a class as exist. The bound is 0 if the search for any class was cut
    off, by the effort or by _MOST_STEPS. Time: see ``kernels.pack_search``.

    Source: Farley 1990, "A note on bounding a class of linear programming problems, including cutting stock
    problems", for the bound.
    """
    from dgl_tuplepack._core.kernels.pack_search import Classes, search_packs, tails

    values = as_integers(duals)
    worthy = np.flatnonzero(values)
    shares = (instance.sizes[worthy] / instance.limits).mean(axis=1)
    order = worthy[np.argsort(-(values[worthy] / shares), kind="stable")]
    sizes = np.ascontiguousarray(instance.sizes[order])
    classes = Classes(sizes, values[order], instance.counts[order], tails(sizes, values[order], instance.limits))
    # worth[i]: the highest worth of a pack that begins with class order[i]; not above _ONE if the search finds no pack.
    worth, complete = np.zeros(len(order), dtype=np.int64), True
    # The packs of worth above _ONE; their columns follow `order`.
    packs = [np.zeros((0, len(order)), dtype=np.int64)]
    for first in range(0, len(order), _CLASSES_PER_SLICE):
        if effort.exhausted:
            complete = False
            break
        last = min(first + _CLASSES_PER_SLICE, len(order))
        contents = np.zeros((last - first, len(order)), dtype=np.int64)
        # `steps` is negative if the search for one of these classes was cut off.
        steps = search_packs(classes, instance.limits, first, last, _ONE, _MOST_STEPS, contents, worth[first:last])
        effort.spend(abs(steps) * max(len(instance.limits), _FEWEST_COMPONENTS) // 2 + (last - first) * len(order))
        complete = complete and steps >= 0
        packs.append(contents[worth[first:last] > _ONE])
    best_first = np.argsort(-worth[worth > _ONE], kind="stable")
    found = np.zeros((len(best_first), len(values)), dtype=np.int64)
    found[:, order] = np.concatenate(packs)[best_first]
    most = max(_ONE, int(worth.max(initial=0))) if complete else 0
    return Searched(instance, values, most, found)


def linear_duals(instance: Instance, effort: Effort) -> Searched:
    """Return duals proportional to the sizes in one component; `found` has nearly full packs to start the LP with."""
    points = [instance.sizes[:, column] / limit for column, limit in enumerate(instance.limits.tolist())]
    best = max(points, key=lambda duals: float(duals @ instance.counts))
    found = by_search(instance, np.minimum(_FULL * best, 1.0), effort).found
    # Under the duals `best`, no pack is worth more than 1, since no pack exceeds the limit of the chosen component.
    return Searched(instance, as_integers(best), 1 << SHIFT, found)
