"""Distribute graphs over parts so that every part has nearly the same total of every component."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dgl_tuplepack._core.checks import whole_number
from dgl_tuplepack._core.kernels.balance import place
from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.planning.sizes import BoolArray, FloatArray, GraphSizes, IntArray

MOST_PARTS = 2**20
# Pairs of parts that the local search looks at, for each part, and graphs of a part that it compares.
_PAIRS_PER_PART, _SAMPLE = 64, 400
# Gains below this are rounding errors.
_LEAST_GAIN = 1e-15


def balanced_parts(sizes: GraphSizes, parts: int, *, seed: int = 0) -> IntArray:
    """Assign each graph to one of `parts` parts, and balance all components at once.

    Each class of equal sizes is dealt out evenly. The remaining graphs follow, largest first, each to the part that it
    fits best. Then moves and swaps between two parts follow until none of them helps, or a number of them was tried.

    Parameters
    ----------
    sizes
        Sizes of N graphs. Any components are allowed, such as the number of training nodes.
    parts
        Number of parts, 1..2**20. Parts may stay empty if there are fewer graphs.
    seed
        Seed of the choice of the graphs that the local search compares.

    Returns
    -------
    IntArray
        int64 ``[N]``, the part of each graph. Equal arguments give equal results.

    Raises
    ------
    SizesError
        `parts` is not an integer in 1..2**20.

    Examples
    --------
    >>> balanced_parts(GraphSizes([[3, 4], [2, 2], [3, 4], [2, 2]]), 2).tolist()
    [0, 0, 1, 1]
    """
    parts = whole_number("the number of parts", parts, 1, MOST_PARTS, SizesError)
    array = sizes.array[:, sizes.array.any(axis=0)]
    assigned = np.zeros(len(array), np.int64)
    if parts == 1 or not array.size:
        return assigned
    # A load of 1 is the mean.
    weights = np.ascontiguousarray(array / (array.sum(axis=0, dtype=np.float64) / parts))
    assigned, rest = _dealt(array, parts)
    loads = _sums(weights, assigned, parts)
    order = rest[np.argsort(-weights[rest].max(axis=1), kind="stable")]
    place(weights, order, loads, assigned)
    _improve(array, weights, assigned, parts, seed)
    return assigned


def totals_of(array: IntArray, assigned: IntArray, parts: int) -> IntArray:
    """Return the total of each component in each part, int64 ``[P, k]``; `array` ``[N, k]`` are the sizes."""
    totals = np.zeros((parts, array.shape[1]), np.int64)
    np.add.at(totals, assigned, array)
    return totals


def imbalance_of(totals: IntArray) -> FloatArray:
    """Return the largest total of a part, divided by the mean, for each component; 1 for a component without content.

    `totals` are int64 ``[P, k]``.
    """
    mean = totals.mean(axis=0)
    return _quotients(totals.max(axis=0), mean)


def imbalance_bound(sizes: GraphSizes, parts: int) -> FloatArray:
    """Return an imbalance for each component that no assignment of whole graphs can beat."""
    total = sizes.array.sum(axis=0)
    least = np.maximum(-(-total // parts), sizes.array.max(axis=0, initial=0))
    return _quotients(least, total / parts)


def _quotients(largest: IntArray, mean: FloatArray) -> FloatArray:
    quotients: FloatArray = np.divide(largest, mean, out=np.ones(len(mean)), where=mean > 0)
    return quotients


def _dealt(array: IntArray, parts: int) -> tuple[IntArray, IntArray]:
    """Deal the graphs of each size to all parts in turn; return the parts, -1 for graphs that remain, and these."""
    order = np.lexsort(array.T)
    rows = array[order]
    begins = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]).any(axis=1)))
    counts = np.diff(np.append(begins, len(rows)))
    position = np.arange(len(rows)) - np.repeat(begins, counts)
    assigned = np.empty(len(rows), np.int64)
    assigned[order] = np.where(position < np.repeat(counts // parts * parts, counts), position % parts, -1)
    return assigned, np.flatnonzero(assigned < 0)


def _sums(weights: FloatArray, assigned: IntArray, parts: int) -> FloatArray:
    """Return the sums of the weights in each part, ``[P, k]``; graphs with part -1 do not count."""
    inside = assigned >= 0
    columns = [np.bincount(assigned[inside], column[inside], minlength=parts) for column in weights.T]
    return np.ascontiguousarray(np.stack(columns, axis=1), np.float64)


def _improve(array: IntArray, weights: FloatArray, assigned: IntArray, parts: int, seed: int) -> None:
    """Exchange graphs between two parts as long as that brings their loads closer to the mean; update `assigned`."""
    generator = np.random.default_rng(seed)
    totals = totals_of(array, assigned, parts)
    best = np.maximum(-(-array.sum(axis=0) // parts), array.max(axis=0))
    members = [np.flatnonzero(assigned == part) for part in range(parts)] if parts <= 4096 else None
    if members is None:
        # With that many parts, a search costs more than it gains.
        return
    mean = array.sum(axis=0) / parts
    stuck = np.zeros(parts, np.bool_)
    budget = _PAIRS_PER_PART * parts
    while budget > 0 and (totals.max(axis=0) > best).any() and not stuck.all():
        off = totals / mean - 1
        first = int(np.argmax(np.where(stuck, -1, np.abs(off).max(axis=1))))
        for second in _partners(off, first):
            budget -= 1
            exchange = _exchange(weights, off[first], off[second], members[first], members[second], generator)
            if exchange is not None:
                _apply(exchange, (first, second), array, totals, members, assigned)
                stuck[[first, second]] = False
                break
        else:
            stuck[first] = True


def _partners(off: FloatArray, first: int) -> Iterator[int]:
    """Yield the parts whose loads complement the loads of one part best, best first."""
    fit = off @ off[first]
    fit[first] = np.inf
    yield from np.argsort(fit, kind="stable")[: min(16, len(off) - 1)].tolist()


def _exchange(
    weights: FloatArray,
    off: FloatArray,
    other: FloatArray,
    ours: IntArray,
    theirs: IntArray,
    generator: np.random.Generator,
) -> tuple[IntArray, IntArray] | None:
    """Return the graphs that two parts should give each other, at most one of each; None if no exchange helps.

    `off` and `other` are the distances of the loads of the two parts from the mean.
    """
    ours, theirs = (generator.choice(g, _SAMPLE, replace=False) if len(g) > _SAMPLE else g for g in (ours, theirs))
    nothing = np.zeros((1, weights.shape[1]))
    gives, takes = (np.concatenate([nothing, weights[graphs]]) for graphs in (ours, theirs))
    # Moving d changes the sum of squares by 2 d (d - (off - other)) in each component.
    away = off - other
    cost = np.zeros((len(gives), len(takes)))
    for give, take, distance in zip(gives.T, takes.T, away, strict=True):
        moved = give[:, None] - take
        cost += moved * (moved - distance)
    i, j = divmod(int(np.argmin(cost)), len(takes))
    return (
        (ours[i - 1 : i] if i else ours[:0], theirs[j - 1 : j] if j else theirs[:0])
        if cost[i, j] < -_LEAST_GAIN
        else None
    )


def _apply(
    exchange: tuple[IntArray, IntArray], pair: tuple[int, int], array: IntArray, totals: IntArray,
    members: list[IntArray], assigned: IntArray,
) -> None:  # fmt: skip
    """Move graphs between two parts."""
    for graphs, (source, target) in zip(exchange, (pair, pair[::-1]), strict=True):
        moved = array[graphs].sum(axis=0)
        totals[source] -= moved
        totals[target] += moved
        assigned[graphs] = target
    for part, gone, come in ((pair[0], *exchange), (pair[1], *exchange[::-1])):
        kept: BoolArray = ~np.isin(members[part], gone)
        members[part] = np.concatenate([members[part][kept], come])
