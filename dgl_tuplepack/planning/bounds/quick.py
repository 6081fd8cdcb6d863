"""Lower bounds in closed form, computed in exact integer arithmetic, and cheap enough for every plan."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX
from dgl_tuplepack.planning.bounds.instance import Instance, scarcity
from dgl_tuplepack.planning.sizes import IntArray

# Mixtures of more components than this would take longer than the plan, and hardly ever give the highest bound.
_MIXED = 8


def quick_bound(instance: Instance) -> int:
    """Return the largest lower bound in closed form, of all components and of even mixtures of the 8 scarcest.

    Time O(C log C k) for k components.

    Source: Martello & Toth 1990, "Knapsack Problems", chapter 8 (L1, L2), for one component; Caprara & Toth 2001,
    "Lower bounds and algorithms for the 2-dimensional vector packing problem", for mixtures of components.
    """
    return max(1, *(large_bound(sizes, instance.counts, limit) for sizes, limit in _mixtures(instance)))


def _mixtures(instance: Instance) -> Iterator[tuple[IntArray, int]]:
    """Yield problems with one component: each component of the instance, and even mixtures of two of the scarcest.

    A problem is (sizes int64 ``[C]``, limit). Each pack of the instance is within this limit. In a mixture, the size of
    a graph is the sum of its shares of both limits, and the limit is 2; both are multiplied by the product of the two
    original limits, which gives integers. A mixture is left out if its sums could overflow int64.
    """
    limits = instance.limits.tolist()
    yield from zip(instance.sizes.T, limits, strict=True)
    totals = instance.totals()
    scarcest = np.argsort(-scarcity(instance.sizes, instance.counts, instance.limits), kind="stable")[:_MIXED]
    for first, second in combinations(sorted(scarcest.tolist(), reverse=True), 2):
        ours, theirs = limits[first], limits[second]
        if ours * totals[second] + theirs * totals[first] + 2 * ours * theirs <= INT64_MAX:
            yield instance.sizes[:, first] * theirs + instance.sizes[:, second] * ours, 2 * ours * theirs


def large_bound(sizes: IntArray, counts: IntArray, limit: int) -> int:
    """Return the bound L2 of Martello & Toth for one component, with `sizes` and `counts` int64 ``[C]``.

    Graphs above limit / 2 are large: each needs its own pack. For a threshold `a` <= limit / 2, the graphs of sizes
    from `a` to limit / 2 are medium. They do not fit next to large graphs above limit - `a`, but can fill the room next
    to the other large graphs. If they exceed this room, more packs are needed. The result is the highest bound over all
    thresholds, and at least total / limit.
    """
    order = np.argsort(sizes)
    ascending, numbers = sizes[order], counts[order]
    # total[i], graphs[i]: total size and number of all graphs of the i smallest classes. These sums fit int64: the
    # totals of a histogram fit, and `_mixtures` checks the sums of mixtures.
    total, graphs = _sums(ascending * numbers), _sums(numbers)
    # Indices in `ascending`: classes from `first_large` on are large. For `a` = thresholds[t], classes from
    # first_medium[t] to `first_large` are medium, and large classes from first_alone[t] on are above limit - `a`.
    first_large = int(np.searchsorted(ascending, limit // 2, side="right"))
    thresholds = np.concatenate([[0], ascending[:first_large]])
    first_medium = np.searchsorted(ascending, thresholds)
    first_alone = np.maximum(np.searchsorted(ascending, limit - thresholds, side="right"), first_large)
    # room[i]: total room next to the graphs of the i smallest large classes. Next to a large graph, the room is smaller
    # than the graph, so the total fits int64.
    room = _sums((limit - ascending[first_large:]) * numbers[first_large:])
    excess = total[first_large] - total[first_medium] - room[first_alone - first_large]
    large = int(graphs[-1] - graphs[first_large])
    bound = large + max(0, -(-int(excess.max()) // limit))
    return max(bound, -(-int(total[-1]) // limit))


def _sums(numbers: IntArray) -> IntArray:
    """Return the sums of the first 0, 1, ..., n of n numbers, int64 ``[n + 1]``."""
    return np.concatenate([[0], np.cumsum(numbers)])
