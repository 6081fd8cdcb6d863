"""How often each graph comes in an epoch: systematic sampling by weights.

The graphs of an epoch are drawn along an order by size, so that their total size hardly differs between epochs, and one
static shape holds the batches of all of them.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import as_array, shown
from dgl_tuplepack._core.kernels.random import shuffle_segments
from dgl_tuplepack._core.kernels.separate import separate
from dgl_tuplepack._core.seeds import key_of, random_fractions
from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

# Expectations are counted in units of 2**-_BITS, so that draws are equal on every platform.
_BITS = 30
# In each epoch, graphs are shuffled within windows of so many neighbours in the order by size, so that any two of them
# may come together.
_WINDOW = 64
# Of graphs that are twice in a batch, each tries so many partners in the first turn, and all together so many in later
# turns, or as many as there are graphs. The rest stays after so many turns that separate none, and after `_MOST` times
# the tries of a turn in all.
_TRIES, _TRIES_OF_ALL, _TURNS, _MOST = 20, 50_000, 16, 10
# Identifiers of random streams; other files have others.
_WINDOWS, _OFFSET, _SEPARATE = 16, 17, 18


class WeightedDraws:
    """Random multisets of N graphs; graph i is in each one floor(e) or ceil(e) times, with mean e = N w_i / sum(w).

    `weights` ``[N]`` and `sizes` ``[N, k]`` are those of the graphs. The number of graphs of each group, int64 ``[N]``,
    is floor(e) or ceil(e), too, for the sum e of their means. Time O(N) for a draw.
    """

    def __init__(self, weights: FloatArray, sizes: IntArray, groups: IntArray | None = None) -> None:
        groups = np.zeros(len(weights), dtype=np.int64) if groups is None else groups
        # Group by group, ascending by size.
        self._order = np.lexsort((sizes.sum(axis=1, dtype=np.float64), groups))
        self._ends = np.cumsum(np.bincount(groups))
        # `fsum` is exact, so equal on every platform. Rounded sums make each group's sum as exact as a single mean.
        sums = np.rint(np.cumsum(weights[self._order] / math.fsum(weights)) * (len(weights) << _BITS)).astype(np.int64)
        # Graphs of weight 0 after the last of the others change nothing.
        sums[sums == sums[-1]] = len(weights) << _BITS
        self._expected = np.empty_like(sums)
        self._expected[self._order] = np.diff(sums, prepend=0)
        self.checksum = zlib.crc32(np.append(self._expected, self._ends).astype("<i8").data)

    @property
    def possible(self) -> IntArray:
        """The graphs that are drawn sometimes."""
        return np.flatnonzero(self._expected)

    def of(self, key: np.uint64) -> IntArray:
        """Return the N graphs of a draw, group by group, ascending by size, nearly."""
        order, number = self._order.copy(), len(self._order)
        first, offset = random_fractions(key_of(int(key), 0, _OFFSET), 2)
        edges = np.arange(int(first * _WINDOW) - _WINDOW, number + _WINDOW, _WINDOW).clip(0, number)
        shuffle_segments(order, np.union1d(edges, self._ends), key_of(int(key), 0, _WINDOWS))
        # In place, since there may be millions of graphs.
        reached = self._expected[order]
        np.cumsum(reached, out=reached)
        reached += int(offset * (1 << _BITS))
        reached >>= _BITS
        reached[1:] -= reached[:-1].copy()
        return np.repeat(order, reached)


def separated(
    ids: IntArray, offsets: IntArray, first_packs: IntArray, sizes: IntArray, limits: IntArray, key: np.uint64
) -> IntArray:
    """Exchange graphs between batches until none is twice in a batch, where the limits of packs make that possible.

    Pack p holds ``ids[offsets[p]:offsets[p + 1]]``, and batch b the packs ``first_packs[b]:first_packs[b + 1]``.
    """
    ids, sizes = ids.copy(), np.ascontiguousarray(sizes)
    loads = np.add.reduceat(sizes[ids], offsets[:-1], axis=0)
    turn = end = 0
    least, tries, most = len(ids), _TRIES, _MOST * (_TRIES_OF_ALL + len(ids))
    while least and turn <= end and most > 0:
        # Other graphs have moved since the last turn, so there may be room now.
        left = separate(ids, offsets, first_packs, sizes, limits, loads, key_of(int(key), turn, _SEPARATE), tries)
        turn, end, least = turn + 1, turn + _TURNS if left < least else end, min(left, least)
        most -= tries * left
        tries = max(1, (_TRIES_OF_ALL + len(ids)) // max(1, left))
    return ids


@dataclass(frozen=True, eq=False)
class SourceShares:
    """In place of weights: the shares ``[S]`` of S sources in an epoch, and the source of each graph, ``[N]``."""

    names: tuple[str, ...]
    shares: FloatArray
    source_ids: IntArray


def argument_of(weights: Any) -> str:
    """Return the argument of `packed_loader` that gives such weights, as code; shares are those of graphs."""
    if not isinstance(weights, SourceShares):
        return "weights=weights"
    return f"shares={dict(zip(weights.names, weights.shares.tolist(), strict=True))}"


def draws_of(weights: Any, number: int, kept: IntArray, sizes: IntArray) -> WeightedDraws:
    """Return the draws of the graphs `kept`, of these sizes; SamplerError if `weights` of a number of graphs are none.

    Positions in a draw count the kept graphs.
    """
    if not isinstance(weights, SourceShares):
        return WeightedDraws(_checked(_checked(weights, number)[kept], len(kept)), sizes)
    groups = weights.source_ids[kept]
    counts = np.bincount(groups, minlength=len(weights.names))
    if not counts.all():
        raise SamplerError(
            f"no graph of the source {weights.names[int(counts.argmin())]!r} is within the limits, so it cannot have "
            "a share; give larger limits, or leave the source out."
        )
    return WeightedDraws((weights.shares / counts)[groups], sizes, groups)


def _checked(weights: Any, number: int) -> FloatArray:
    """Return the weights of graphs as float64 ``[N]``; SamplerError if they are no weights."""
    try:
        found = np.array(as_array(weights, "weights", SamplerError), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.zeros(0)
    if found.shape != (number,):
        given = f"has {len(found)}" if found.ndim == 1 and len(found) else f"is {shown(weights)}"
        raise SamplerError(
            f"weights must have a number for each of the {number} graphs, but {given}; for a split, give those of its "
            "graphs, weights[ids]; for class-balanced epochs, tp.class_weights(labels)."
        )
    wrong = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(wrong):
        raise SamplerError(
            f"weights must be finite and >= 0, but that of graph {wrong[0]} is {found[wrong[0]]}; give other numbers."
        )
    if not found.any():
        raise SamplerError("all weights are 0, so no graph could be drawn; give some graphs a positive weight.")
    return found


def class_weights(labels: Any) -> FloatArray:
    """Return weights by which each class has the same share of an epoch.

    Parameters
    ----------
    labels
        The class of each graph, ``[N]`` or ``[N, 1]``: a tensor, array or list of integers, bools or strings. Each
        distinct value is a class, also -1; only NaN is a missing label. Graphs without a label keep the mean weight.

    Returns
    -------
    numpy.ndarray
        Float64 ``[N]`` with mean 1, for the `weights` of samplers and of `packed_loader`.

    Raises
    ------
    SamplerError
        There are no labels, or several for each graph.

    Examples
    --------
    >>> from dgl_tuplepack import class_weights
    >>> class_weights([0, 0, 0, 1]).tolist()
    [0.6666666666666666, 0.6666666666666666, 0.6666666666666666, 2.0]
    """
    found = np.asarray(as_array(labels, "labels", SamplerError))
    if found.dtype.kind == "O":
        try:
            found = found.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise SamplerError(f"labels must be integers, bools or strings, but are {shown(labels)}.") from error
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1 or not len(found):
        raise SamplerError(f"labels must be [N] or [N, 1] with N >= 1, but are {shown(labels)}; choose one column.")
    known = ~np.isnan(found) if found.dtype.kind == "f" else np.ones(len(found), dtype=bool)
    weights = np.ones(len(found))
    _, classes, counts = np.unique(found[known], return_inverse=True, return_counts=True)
    if len(counts):
        weights[known] = known.sum() / (len(counts) * counts[classes.reshape(-1)])
    return weights
