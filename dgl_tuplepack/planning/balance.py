"""Distribute graphs over parts so that each component has nearly the same total in every part."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.checks import whole_number
from dgl_tuplepack._core.kernels.place import place
from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.planning.sizes import FloatArray, GraphSizes, IntArray

MOST_PARTS = 2**20


def balanced_parts(sizes: GraphSizes, parts: int) -> IntArray:
    """Assign each graph to one of `parts` parts, and balance all components at once; return the part of each graph.

    Graphs of equal size are dealt to all parts in turn, the same number to each part. The remaining graphs follow,
    largest first: each goes to the part in which it raises the sum of squared loads least. A load is the total of one
    component in one part, divided by the mean over all parts. With fewer graphs than parts, some parts stay empty.

    Time O(N log N + R P k) for R remaining graphs, P parts and k components.

    Examples
    --------
    >>> balanced_parts(GraphSizes([[3, 4], [2, 2], [3, 4], [2, 2]]), 2).tolist()
    [0, 0, 1, 1]
    """
    parts = whole_number("the number of parts", parts, 1, MOST_PARTS, SizesError)
    array = sizes.array[:, sizes.array.any(axis=0)]
    if parts == 1 or not array.size:
        return np.zeros(len(array), np.int64)
    # With these weights, the mean load of a component is 1.
    weights = np.ascontiguousarray(array / (array.sum(axis=0, dtype=np.float64) / parts))
    assigned = _dealt(array, parts)
    remaining, dealt = np.flatnonzero(assigned < 0), np.flatnonzero(assigned >= 0)
    loads = np.zeros((parts, weights.shape[1]))
    np.add.at(loads, assigned[dealt], weights[dealt])
    largest_first = remaining[np.argsort(-weights[remaining].max(axis=1), kind="stable")]
    # `place` writes the parts to `assigned`, and updates `loads`.
    place(weights, largest_first, loads, assigned)
    return assigned


def _dealt(array: IntArray, parts: int) -> IntArray:
    """Deal graphs of equal size to all parts, equally often; return the part of each graph, -1 if not dealt."""
    order = np.lexsort(array.T)
    rows = array[order]
    # firsts, counts: first row and number of rows of each distinct size. turn[i]: rows of the same size before row i.
    firsts = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]).any(axis=1)))
    counts = np.diff(np.append(firsts, len(rows)))
    turn = np.arange(len(rows)) - np.repeat(firsts, counts)
    number_dealt = np.repeat(counts // parts * parts, counts)
    assigned = np.empty(len(rows), np.int64)
    assigned[order] = np.where(turn < number_dealt, turn % parts, -1)
    return assigned


def totals_of(array: IntArray, assigned: IntArray, parts: int) -> IntArray:
    """Return the total of each component in each part, int64 ``[P, k]``; graph i of `array` is in ``assigned[i]``."""
    totals = np.zeros((parts, array.shape[1]), np.int64)
    np.add.at(totals, assigned, array)
    return totals


def imbalance_of(totals: IntArray) -> FloatArray:
    """Return, for each component, the largest of the `totals` ``[P, k]`` divided by their mean; 1 if all are 0."""
    return _quotients(totals.max(axis=0), totals.mean(axis=0))


def imbalance_bound(sizes: GraphSizes, parts: int) -> FloatArray:
    """Return a lower bound on the imbalance of each component, float64 ``[k]``, for any assignment of whole graphs."""
    total = sizes.array.sum(axis=0)
    # Some part has at least the mean total, rounded up; and some part has the largest graph.
    least = np.maximum(-(-total // parts), sizes.array.max(axis=0, initial=0))
    return _quotients(least, total / parts)


def _quotients(largest: IntArray, mean: FloatArray) -> FloatArray:
    quotients: FloatArray = np.divide(largest, mean, out=np.ones(len(mean)), where=mean > 0)
    return quotients
