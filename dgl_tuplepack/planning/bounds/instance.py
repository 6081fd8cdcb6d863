"""The packing problem as the algorithms need it, its relaxations, and lower bounds in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX
from dgl_tuplepack.planning.histogram import SizeHistogram, distinct_rows
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.sizes import FloatArray, IntArray, exact_sum

# A few classes usually suffice to see that one limit does not imply another.
_FEW_CLASSES = 16
# Mixtures of more components than this would take longer than the plan, and hardly ever give the highest bound.
_MIXED = 8


@dataclass(frozen=True, eq=False)
class Instance:
    """A vector packing problem: C size classes of d components, d >= 1, without a separate cap on graphs."""

    # Size of each class, int64 [C, d], within `limits`.
    sizes: IntArray
    # Number of graphs of each class, int64 [C], >= 1.
    counts: IntArray
    # Limit of each component, int64 [d].
    limits: IntArray

    @property
    def num_graphs(self) -> int:
        """Number of graphs of all classes together."""
        return exact_sum(self.counts)

    def totals(self) -> list[int]:
        """Return the exact sum of each component over all graphs."""
        return [exact_sum(column, self.counts) for column in self.sizes.T]

    def with_counts(self, counts: IntArray) -> tuple[Instance, IntArray]:
        """Return the instance with new `counts` ``[C]``, without empty classes; and the indices of the kept classes."""
        classes = np.flatnonzero(counts)
        return Instance(np.ascontiguousarray(self.sizes[classes]), counts[classes], self.limits), classes


def as_instance(histogram: SizeHistogram, limits: Limits) -> Instance:
    """Return the problem of packing a histogram within `limits`, one for each component; size classes keep their order.

    The cap becomes a component in which every graph has size 1, unless no pack can exceed it. Components that another
    limit implies, or that all graphs together fit, are left out.
    """
    sizes, maxima = histogram.sizes, limits.array
    if limits.graphs is not None and _most_graphs(histogram, maxima) > limits.graphs:
        sizes = np.column_stack([sizes, np.ones(len(sizes), dtype=np.int64)])
        maxima = np.append(maxima, limits.graphs)
    # The last total is for the component of the cap, if there is one.
    totals = [*histogram.totals().values(), histogram.num_graphs][: len(maxima)]
    keep = _binding(sizes, maxima, totals)
    return Instance(np.ascontiguousarray(sizes[:, keep]), histogram.counts, maxima[keep])


def _most_graphs(histogram: SizeHistogram, maxima: IntArray) -> int:
    """Return an upper bound on the graphs in one pack: how many of the smallest fit, in the tightest component."""
    most = histogram.num_graphs
    for column, limit in zip(histogram.sizes.T, maxima.tolist(), strict=True):
        order = np.argsort(column, kind="stable")
        values, counts = column[order], histogram.counts[order]
        # filled[i]: total size of the i + 1 smallest classes. It fits into int64, as the totals of a histogram do.
        filled = np.cumsum(values * counts)
        whole = int(np.searchsorted(filled, limit, side="right"))
        if whole < len(values):
            left = limit - (int(filled[whole - 1]) if whole else 0)
            most = min(most, exact_sum(counts[:whole]) + left // int(values[whole]))
    return most


def _binding(sizes: IntArray, maxima: IntArray, totals: list[int]) -> list[int]:
    """Return the indices of the components that can decide whether graphs fit together; at least one index."""
    kept = list(range(len(maxima)))
    # The products of sizes and limits may overflow int64; then they are Python integers.
    number = object if int(maxima.max()) ** 2 > INT64_MAX else np.int64
    rows, limits = sizes.astype(number, copy=False), maxima.astype(number, copy=False)
    for column in reversed(range(len(maxima))):
        # implying: components whose limits imply the limit of `column`. In these, no graph uses a smaller share.
        implying = np.array([other for other in kept if other != column], dtype=np.int64)
        for some in (rows[:_FEW_CLASSES], rows):
            less = some[:, implying] * limits[column] < some[:, [column]] * limits[implying]
            implying = implying[~less.any(axis=0)]
        if len(kept) > 1 and (totals[column] <= maxima[column] or len(implying)):
            kept.remove(column)
    return kept


def scarcity(sizes: IntArray, counts: IntArray, limits: IntArray) -> FloatArray:
    """Return about how many packs the total of each component would fill, float64 ``[d]``."""
    return np.asarray((sizes / limits * counts[:, None]).sum(axis=0), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A relaxed instance: it has fewer constraints, so each packing of the original instance is valid for it too."""

    instance: Instance
    # The class in `instance` of each class of the original, int64 [C]; -1 for a class that is left out.
    classes: IntArray
    # Whether `instance` has all components, so that its packings are valid for the original too.
    whole: bool


def projected(instance: Instance, columns: list[int]) -> Relaxation:
    """Return the relaxation that keeps only the components `columns`, without graphs that have no size in them.

    Classes of equal size are merged. The sizes and the limit of each component are divided by the greatest common
    divisor of the sizes; the limit is rounded down.
    """
    sizes = instance.sizes[:, columns]
    present = sizes.any(axis=1)
    classes = np.full(len(sizes), -1, dtype=np.int64)
    if not present.any():
        # No graph is left, but an instance needs one: use a single graph of size 1, which needs one pack.
        ones = np.ones(1, dtype=np.int64)
        return Relaxation(Instance(ones[:, None], ones, ones), classes, whole=False)
    distinct, classes[present], _ = distinct_rows(sizes[present])
    counts = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(counts, classes[present], instance.counts[present])
    limits = np.ascontiguousarray(instance.limits[columns])
    common = np.maximum(np.gcd.reduce(distinct, axis=0), 1)
    merged = Instance(np.ascontiguousarray(distinct // common), counts, limits // common)
    return Relaxation(merged, classes, whole=set(columns) == set(range(len(instance.limits))))


def needed_packs(instance: Instance) -> int:
    """Return the continuous bound: the largest value of total / limit over the components, rounded up; at least 1."""
    totals = instance.totals()
    limits: list[int] = instance.limits.tolist()
    return max(1, *(-(-total // limit) for total, limit in zip(totals, limits, strict=True)))


def quick_bound(instance: Instance) -> int:
    """Return the largest bound in closed form, of all components and of even mixtures of the 8 scarcest; O(C log C k).

    Source: Martello & Toth 1990, "Knapsack Problems", chapter 8 (L1, L2); for mixtures, Caprara & Toth 2001, "Lower
    bounds and algorithms for the 2-dimensional vector packing problem".
    """
    return max(1, *(large_bound(sizes, instance.counts, limit) for sizes, limit in _mixtures(instance)))


def _mixtures(instance: Instance) -> Iterator[tuple[IntArray, int]]:
    """Yield (sizes int64 ``[C]``, limit) of one component: each component, and mixtures of two of the scarcest.

    In a mixture, a size is the sum of the shares of both limits, and the limit is 2, both times the product of the
    limits. A mixture is left out if its sums could overflow int64.
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

    Graphs above limit / 2 are large: each needs its own pack. For a threshold `a` <= limit / 2, medium graphs, from `a`
    to limit / 2, fit next to large graphs up to limit - `a` only. If they exceed this room, more packs are needed. The
    result is the highest bound over all thresholds, and at least total / limit.
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
