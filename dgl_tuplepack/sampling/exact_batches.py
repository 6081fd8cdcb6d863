"""Batches with exact numbers of graphs: shuffled and cut as by torch, then repaired until they fit one shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgl_tuplepack._core.kernels.deal_and_repair import Packs, repair
from dgl_tuplepack._core.kernels.random import shuffle_segments
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.planning.sizes import IntArray

# A repair may take this many units of work (see `planning.bounds.effort`): a number for each graph and component, plus
# another one. Most take a twentieth.
_WORK, _LEAST_WORK = 100, 5_000_000
# A batch that exceeds a limit exchanges graphs with the emptiest of this many random batches; with one, it would take
# ten times as many exchanges.
_DRAWN = 8
# With fewer graphs, a batch could have no graph that is much larger than the mean.
_FEW = 5
# Sizes are scaled so that each limit is about _SCALE; sums above _MOST could overflow int64.
_SCALE, _MOST = 1 << 26, 1 << 62
# Identifiers of random streams; `epochs.py`, `exchange.py` and `static_sampler.py` have others.
_REPAIR, _EQUAL_SIZES, _ORDER = 9, 10, 11


@dataclass(frozen=True, eq=False)
class Cut:
    """How N graphs are cut into batches: their numbers of graphs, int64 ``[P]``, in the order of steps and ranks.

    Only the first `delivered` batches are delivered, the others are dropped.
    """

    counts: IntArray
    delivered: int
    num_replicas: int

    @classmethod
    def of(cls, graphs: int, batch_size: int, num_replicas: int, drop_last: bool) -> Cut:
        """Cut graphs into full steps, in which each rank gets `batch_size` graphs, and divide the rest evenly.

        If the rest has at most one graph for some rank, the last full step and the rest become two steps, so that
        hardly any batch has a single graph. Raise SamplerError if a rank would get no graph in some step.
        """
        full, rest = divmod(graphs, batch_size * num_replicas)
        advice = "use fewer ranks, a smaller batch_size, or more graphs."
        if drop_last:
            if not full:
                raise SamplerError(
                    f"drop_last=True would leave nothing: a step needs {batch_size} graphs on each of {num_replicas} "
                    f"ranks, but there are {graphs}; {advice}"
                )
            whole, left = divmod(rest, batch_size)
            dropped = [batch_size] * whole + [left] * (left > 0)
            counts = [batch_size] * (full * num_replicas) + dropped
            return cls(np.array(counts, dtype=np.int64), full * num_replicas, num_replicas)
        if graphs < num_replicas or (batch_size == 1 and rest):
            raise SamplerError(
                f"{graphs} graphs in batches of {batch_size} leave some of {num_replicas} ranks without a graph in the "
                f"last step; use drop_last=True, {advice}"
            )
        batches = num_replicas if rest else 0
        if num_replicas > 1 and 0 < rest < 2 * num_replicas and full:
            full, rest, batches = full - 1, rest + batch_size * num_replicas, 2 * num_replicas
        smaller, larger = divmod(rest, batches) if batches else (0, 0)
        counts = [batch_size] * (full * num_replicas) + [smaller + 1] * larger + [smaller] * (batches - larger)
        return cls(np.array(counts, dtype=np.int64), len(counts), num_replicas)

    @property
    def offsets(self) -> IntArray:
        """Where batches begin in an order of all graphs, int64 ``[P + 1]``."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @property
    def steps(self) -> int:
        """Number of steps in which batches are delivered."""
        return self.delivered // self.num_replicas

    @property
    def most(self) -> int:
        """The largest number of graphs in a batch."""
        return int(self.counts.max())


class ExactBatches:
    """Random orders of N graphs of which each batch is within limits.

    A shuffled order is cut into batches. While a batch exceeds a limit, graphs are exchanged between batches, so that
    most graphs stay in their batch. A batch with fewer graphs than the others counts as if it had graphs of mean size
    in their place, so that it does not collect large graphs; with fewer than five graphs, it counts as full.

    Parameters
    ----------
    sizes
        Int64 ``[N, k]``; a graph may have the size 0.
    limits
        Inclusive maxima of a batch, int64 ``[k]``, >= 1; every graph is within them.
    cut
        The batches.
    """

    def __init__(self, sizes: IntArray, limits: IntArray, cut: Cut) -> None:
        self.limits, self.cut = limits, cut
        scale = max(_SCALE, int(limits.max()))
        if scale * len(cut.counts) * len(limits) > _MOST:
            raise SamplerError(
                f"limits of {limits.tolist()} for {len(cut.counts)} batches are too large for 64-bit integers; count "
                "sizes in larger units."
            )
        factors = scale // limits
        self._limits = limits * factors
        self._sizes = np.vstack([sizes * factors, np.zeros((1, len(limits)), dtype=np.int64)])
        self._budget = _WORK * sizes.size + _LEAST_WORK
        # The batches that exchange nothing if they can help it; and the scaled size of the graphs that others lack.
        self._few = cut.counts < min(_FEW, cut.most)
        absent = (cut.most - cut.counts).astype(np.float64)
        self._absent = (absent[:, None] * self._sizes.sum(axis=0, dtype=np.float64) / len(sizes)).astype(np.int64)

    def repaired(self, key: np.uint64, most: float = 1.0) -> IntArray | None:
        """Return a random order of all graphs, ``[N]``, repaired; None if the repair takes too much work.

        `most` is the fraction of the usual work that it may take. Time O(N k), plus the repair.
        """
        cut, graphs = self.cut, len(self._sizes) - 1
        order = shuffled(np.arange(graphs), key)
        filled = np.arange(cut.most) < cut.counts[:, None]
        members = np.zeros(filled.shape, dtype=np.int64)
        members[filled] = order
        loads = np.add.reduceat(self._sizes[order], cut.offsets[:-1], axis=0)
        loads += np.where(self._few[:, None], np.maximum(self._limits - loads, 0), self._absent)
        packs, budget = Packs(members, cut.counts.copy(), loads), int(most * self._budget)
        key = key_of(int(key), 0, _REPAIR)
        exceeding, work = repair(self._sizes, self._limits, packs, False, _DRAWN, key, budget)
        return None if exceeding or work > budget else members[filled]

    def stirred(self, order: IntArray, classes: IntArray, seed: int, epoch: int) -> IntArray:
        """Return an order with the same sizes in each batch: shuffle graphs of equal size, and full batches.

        `classes` has the size class of each graph, int64 ``[N]``.
        """
        places = np.argsort(classes[order], kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(classes))])
        graphs = order[places]
        shuffle_segments(graphs, offsets, key_of(seed, epoch, _EQUAL_SIZES))
        drawn = np.empty_like(order)
        drawn[places] = graphs
        full = int(np.count_nonzero(self.cut.counts == self.cut.most))
        batches = shuffled(np.arange(full), key_of(seed, epoch, _ORDER))
        of_full = drawn[: full * self.cut.most].reshape(full, self.cut.most)
        return np.concatenate([of_full[batches].reshape(-1), drawn[full * self.cut.most :]])
