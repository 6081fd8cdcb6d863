"""The packing problem as the algorithms need it: the cap on graphs is a component; redundant limits are removed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX
from dgl_tuplepack.planning.histogram import SizeHistogram, distinct_rows
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.sizes import FloatArray, IntArray, exact_sum


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
    """Return the problem of packing the graphs of a histogram within `limits`; size classes keep their order.

    The cap becomes a component in which every graph has size 1, unless no pack can exceed the cap. A component is left
    out if the limit of another component implies its limit, or if all graphs together are within its limit. `limits`
    has a limit for each component of the histogram.
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


# A few classes usually suffice to see that one limit does not imply another.
_FEW_CLASSES = 16


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
    rows: IntArray
    # Whether `instance` has all components, so that its packings are valid for the original too.
    whole: bool


def projected(instance: Instance, columns: list[int]) -> Relaxation:
    """Return the relaxation that keeps only the components `columns`.

    Graphs of size 0 in all these components are left out, and classes of equal size in these components are merged.
    The sizes and the limit of each component are divided by the greatest common divisor of the sizes; the limit is
    rounded down.
    """
    sizes = instance.sizes[:, columns]
    present = sizes.any(axis=1)
    rows = np.full(len(sizes), -1, dtype=np.int64)
    if not present.any():
        # No graph is left, but an instance needs one: use a single graph of size 1, which needs one pack.
        ones = np.ones(1, dtype=np.int64)
        return Relaxation(Instance(ones[:, None], ones, ones), rows, whole=False)
    distinct, rows[present], _ = distinct_rows(sizes[present])
    counts = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(counts, rows[present], instance.counts[present])
    limits = np.ascontiguousarray(instance.limits[columns])
    common = np.maximum(np.gcd.reduce(distinct, axis=0), 1)
    merged = Instance(np.ascontiguousarray(distinct // common), counts, limits // common)
    return Relaxation(merged, rows, whole=set(columns) == set(range(len(instance.limits))))


def needed_packs(instance: Instance) -> int:
    """Return the continuous bound: the largest value of total / limit over the components, rounded up; at least 1."""
    totals = instance.totals()
    limits: list[int] = instance.limits.tolist()
    return max(1, *(-(-total // limit) for total, limit in zip(totals, limits, strict=True)))
