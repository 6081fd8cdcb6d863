"""Bounds in closed form: exact, and cheap enough for every plan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX
from dgl_tuplepack.planning.bounds.instance import Instance
from dgl_tuplepack.planning.sizes import IntArray


def quick_bound(instance: Instance) -> int:
    """Return the largest of several lower bounds in closed form.

    They are the continuous bound and the bounds from large graphs (see `large_bound`), for every component and for the
    even mixture of every two components (see `_mixtures`).

    Time O(C log C k²) for k components, exact integer arithmetic.

    Source: Martello & Toth 1990, "Knapsack Problems", chapter 8 (L1, L2), for one component; Caprara & Toth 2001,
    "Lower bounds and algorithms for the 2-dimensional vector packing problem", for mixtures of components.
    """
    return max(1, *(large_bound(sizes, instance.counts, limit) for sizes, limit in _mixtures(instance)))


def _mixtures(instance: Instance) -> Iterator[tuple[IntArray, int]]:
    """Yield one-dimensional relaxations as (sizes, limit): each component, and the even mixture of each pair.

    In a mixture, the size of a graph is the sum of its shares of both limits, and the limit is 2. The sizes and the
    limit of the mixture are then multiplied by the product of the two original limits, which gives integers. A mixture
    is left out if its sums could overflow int64.
    """
    limits = instance.limits.tolist()
    yield from zip(instance.sizes.T, limits, strict=True)
    totals = instance.totals()
    for first in range(len(limits)):
        for second in range(first):
            ours, theirs = limits[first], limits[second]
            if ours * totals[second] + theirs * totals[first] + 2 * ours * theirs <= INT64_MAX:
                yield instance.sizes[:, first] * theirs + instance.sizes[:, second] * ours, 2 * ours * theirs


def large_bound(sizes: IntArray, counts: IntArray, limit: int) -> int:
    """Return the bound L2 of Martello & Toth for sizes int64 ``[C]`` and a limit of one component.

    Graphs above limit / 2 are large: no two of them share a pack, so each needs a pack of its own. Now choose a
    threshold a <= limit / 2, and consider the graphs of sizes a to limit / 2. They do not fit next to large graphs
    above limit - a. They can fill the room next to the other large graphs; if they exceed this room, the rest of them
    needs more packs. The result is the highest bound over all thresholds; the threshold 0 gives at least the continuous
    bound.
    """
    order = np.argsort(sizes)
    values, numbers = sizes[order], counts[order]
    # filled[i], graphs[i]: content and number of the graphs of the i smallest classes. Sums fit int64: the totals of a
    # histogram do, and `_mixtures` checks the sums of mixtures.
    filled = np.concatenate([[0], np.cumsum(values * numbers)])
    graphs = np.concatenate([[0], np.cumsum(numbers)])
    # Classes from `half` on are large. For each threshold a: classes from `begins` on are at least a, and classes from
    # `alone` on are large and above limit - a.
    half = int(np.searchsorted(values, limit // 2, side="right"))
    thresholds = np.concatenate([[0], values[:half]])
    begins = np.searchsorted(values, thresholds)
    alone = np.maximum(np.searchsorted(values, limit - thresholds, side="right"), half)
    large = int(graphs[-1] - graphs[half])
    # room[i]: room next to the graphs of the first i large classes. It is at most their content, so it fits int64.
    room = np.concatenate([[0], np.cumsum((limit - values[half:]) * numbers[half:])])
    # For each threshold: the content of the graphs of sizes a to limit / 2, minus this room.
    left = filled[half] - filled[begins] - room[alone - half]
    bound = large + max(0, -(-int(left.max()) // limit))
    return max(bound, -(-int(filled[-1]) // limit))
