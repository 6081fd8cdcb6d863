"""Batches of exactly B graphs: shuffled and cut as by torch, repaired to fit one shape; and how it is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dgl_tuplepack._core.kernels.deal_and_repair import Packs, repair
from dgl_tuplepack._core.kernels.random import shuffle_segments
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray, components_of_kind, exact_sum

# A repair may take this many units of work, as an `Effort` counts them: a number for each graph and component, plus
# another one. Most take a twentieth.
_WORK, _LEAST_WORK = 100, 5_000_000
# A batch that exceeds a limit exchanges graphs with the emptiest of this many random batches; with one, it would take
# ten times as many exchanges.
_DRAWN = 8
# A repair is begun again at most this many times.
_TURNS = 20
# With fewer graphs, a batch could have no graph that is much larger than the mean.
_FEW = 5
# Sizes are scaled so that each limit is about _SCALE; sums above _MOST could overflow int64.
_SCALE, _MOST = 1 << 26, 1 << 62
# Identifiers of random streams; `pack_sampler.py` and `static_sampler.py` have others.
_REPAIR, _EQUAL_SIZES, _ORDER, _EVEN = 9, 10, 11, 14


@dataclass(frozen=True, eq=False)
class Cut:
    """How graphs are cut into batches: their numbers ``[P]``, by step and rank. Only `delivered` are not dropped."""

    counts: IntArray
    delivered: int
    num_replicas: int

    @classmethod
    def of(cls, graphs: int, batch_size: int, num_replicas: int, drop_last: bool) -> Cut:
        """Cut graphs into full steps, and divide the rest evenly; SamplerError if a rank gets no graph in some step.

        If the rest has at most one graph for some rank, the last full step and the rest become two steps.
        """
        full, rest = divmod(graphs, batch_size * num_replicas)
        advice = "use fewer ranks, another batch_size, or more graphs."
        if drop_last:
            if not full:
                raise SamplerError(
                    f"drop_last=True would leave nothing: a step needs {batch_size} graphs on each of {num_replicas} "
                    f"ranks, but there are {graphs}; {advice}"
                )
            sizes = np.full(-(-graphs // batch_size), batch_size)
            sizes[-1] = graphs - batch_size * (len(sizes) - 1)
            return cls(sizes, full * num_replicas, num_replicas)
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
    """Random orders of N graphs, of `sizes` ``[N, k]``, of which each batch is within `limits` ``[k]``, >= 1.

    A shuffled order is cut into batches. While a batch exceeds a limit, graphs are exchanged between batches. A batch
    with fewer graphs than the others counts as if it had graphs of mean size in their place, so that it does not
    collect large graphs; with fewer than five graphs, it counts as full.
    """

    def __init__(self, sizes: IntArray, limits: IntArray, cut: Cut) -> None:
        self.cut = cut
        scale = max(_SCALE, int(limits.max()))
        if scale * len(cut.counts) * len(limits) > _MOST:
            raise SamplerError(
                f"limits of {limits.tolist()} for {len(cut.counts)} batches are too large for 64-bit integers; count "
                "sizes in larger units."
            )
        factors = scale // limits
        self._limits = limits * factors
        # The last row is for places without a graph.
        self._sizes = np.zeros((len(sizes) + 1, len(limits)), dtype=np.int64)
        np.multiply(sizes, factors, out=self._sizes[:-1])
        self._budget = _WORK * sizes.size + _LEAST_WORK
        # The batches that exchange nothing if they can help it; and the scaled size of the graphs that others lack.
        self._few = cut.counts < min(_FEW, cut.most)
        absent = (cut.most - cut.counts).astype(np.float64)
        self._absent = (absent[:, None] * self._sizes.sum(axis=0, dtype=np.float64) / len(sizes)).astype(np.int64)

    def repaired(self, key: np.uint64, most: float = 1.0) -> IntArray | None:
        """Return a random order of all graphs, repaired; None if that takes more than `most` of the usual work."""
        packs = self._filled(shuffled(np.arange(len(self._sizes) - 1), key))
        done = _repair(self._sizes, self._limits, packs, _DRAWN, key, _REPAIR, int(most * self._budget))
        return self._order_of(packs) if done else None

    def evened(self, order: IntArray, key: np.uint64) -> tuple[IntArray, bool]:
        """Exchange graphs until batches are as little below the mean batch as the limits are above it; return success.

        Then no rank has much more to do than the mean of its step, in any component. `order` must be within the limits.
        """
        packs = self._filled(order)
        mean = self._sizes.sum(axis=0, dtype=np.float64) * self.cut.most / (len(self._sizes) - 1)
        floors = np.maximum(2 * mean - self._limits, 0).astype(np.int64)
        # A load is above its floor if minus the load is within minus the floor.
        sizes, loads = np.hstack([self._sizes, -self._sizes]), np.hstack([packs.loads, -packs.loads])
        packs, limits = packs._replace(loads=loads), np.concatenate([self._limits, -floors])
        done = _repair(sizes, limits, packs, 1, key, _EVEN, self._budget)
        within = (packs.loads[:, : len(floors)] <= self._limits).all()
        return self._order_of(packs) if within else order, done

    def _filled(self, order: IntArray) -> Packs:
        """Return the batches of an order."""
        cut = self.cut
        members = np.zeros((len(cut.counts), cut.most), dtype=np.int64)
        members[np.arange(cut.most) < cut.counts[:, None]] = order
        loads = np.add.reduceat(self._sizes[order], cut.offsets[:-1], axis=0)
        loads += np.where(self._few[:, None], np.maximum(self._limits - loads, 0), self._absent)
        return Packs(members, cut.counts.copy(), loads)

    def _order_of(self, packs: Packs) -> IntArray:
        return packs.members[np.arange(self.cut.most) < self.cut.counts[:, None]]

    def stirred(self, order: IntArray, classes: IntArray, seed: int, epoch: int) -> IntArray:
        """Return an order with the same sizes in each batch: shuffle graphs of one size class, and full batches."""
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


def _repair(
    sizes: IntArray, limits: IntArray, packs: Packs, drawn: int, key: np.uint64, stream: int, budget: int
) -> bool:
    """Repair batches; return whether no batch exceeds a limit, and the work is within the budget."""
    # A repair ends with its first round without progress, which one batch that finds no partner can cause.
    for turn in range(_TURNS):
        exceeding, work = repair(sizes, limits, packs, False, drawn, key_of(int(key), turn, stream), budget)
        budget -= work
        if budget < 0 or not exceeding:
            break
    return not exceeding and budget >= 0


# Slack is counted in units of 1 / UNIT of a mean batch. For B graphs in a batch, it is at least _LEAST + _LEAST_OF_ONE
# divided by B. Less would often do, but then more graphs would leave their shuffled batch.
UNIT, _LEAST, _LEAST_OF_ONE = 10_000, 30, 800
# The slack is exact to _CLOSE units, or to 1 / _FINE of itself. The reserve is 1 / _RESERVE of the slack, and so on.
_CLOSE, _FINE, _RESERVE = 3, 16, 8
# A shuffle is met if its repair takes this fraction of the work that it may take in an epoch.
_LITTLE_WORK = 0.25
# The slack is chosen by this many shuffles, and the reserve by others, which have about _GRAPHS graphs together.
_SHUFFLES, _GRAPHS, _MOST_SHUFFLES = 2, 300_000, 30
# Slots of each node type and each edge type that hold padding in a static shape.
_PADDING = 2
# So many shuffles are tried to find an order that fits.
_TRIED = 8
# Identifier of the random stream of these shuffles. They do not depend on the seed of a sampler.
_SHAPE = 12


@dataclass(frozen=True, eq=False)
class SlackShapes:
    """The shapes that batches of N graphs may have, by their slack; `multiple_of` is as in `StaticBatchSampler`.

    `drawn` returns the sizes of the N graphs of other epochs, by number, if these differ; `largest` are then the sizes
    of graphs that may be among them.
    """

    sizes: GraphSizes
    cut: Cut
    multiple_of: int = 1
    drawn: Callable[[int], IntArray] | None = None
    largest: IntArray | None = None

    @cached_property
    def extremes(self) -> list[tuple[int, int]]:
        """For each component, the content of the largest graph beside the smallest ones, and of the largest graphs."""
        sizes = self.sizes.array if self.largest is None else np.vstack([self.sizes.array, self.largest])
        others, first = self.cut.most - 1, len(sizes) - self.cut.most
        partitioned = [np.partition(column, [others, first]) for column in sizes.T]
        return [(exact_sum(p[:others]) + int(p.max()), exact_sum(p[first:])) for p in partitioned]

    @property
    def mean(self) -> list[float]:
        """Mean content of a full batch, for each component."""
        return [total * self.cut.most / len(self.sizes) for total in self.sizes.totals().values()]

    def of(self, slack: int) -> IntArray:
        """Return the limits of a mean batch with `slack` / UNIT; they hold the largest graph beside small ones."""
        graphs, limits = len(self.sizes), []
        for total, (least, most) in zip(self.sizes.totals().values(), self.extremes, strict=True):
            batch = max(least * graphs, total * self.cut.most)
            limits.append(max(1, min(most, batch * (UNIT + slack) // (graphs * UNIT))))
        return self.rounded(np.array(limits, dtype=np.int64))

    def rounded(self, limits: IntArray) -> IntArray:
        """Return the smallest limits, at least `limits`, whose padded shape is a multiple of `multiple_of`."""
        reserved = np.zeros(len(limits), dtype=np.int64)
        if self.multiple_of > 1:
            for kind in ("nodes", "edges"):
                reserved[components_of_kind(self.sizes.components, kind)] = _PADDING
        return -(-(limits + reserved) // self.multiple_of) * self.multiple_of - reserved

    def met(self, slack: int, shuffle: int) -> bool:
        """Return whether a shuffle can be repaired within the limits, with little work."""
        sizes = self.sizes.array if self.drawn is None else self.drawn(shuffle)
        batches = ExactBatches(sizes, self.of(slack), self.cut)
        return batches.repaired(key_of(0, shuffle, _SHAPE), _LITTLE_WORK) is not None


def known_order(batches: ExactBatches) -> IntArray | None:
    """Return an order that fits, ``[N]``; None if none is found."""
    found = (batches.repaired(key_of(0, shuffle, _SHAPE)) for shuffle in range(_TRIED))
    return next((order for order in found if order is not None), None)


def chosen(shapes: SlackShapes) -> IntArray:
    """Return the limits that shuffled batches meet in at least 99 % of epochs, int64 ``[k]``.

    Double the slack until shuffles are met, then bisect; then add to it until other shuffles are met, too.
    """
    first = _LEAST + _LEAST_OF_ONE // shapes.cut.most
    least = _smallest(first, lambda slack: all(shapes.met(slack, shuffle) for shuffle in range(_SHUFFLES)))
    number = min(max(_GRAPHS // len(shapes.sizes), _SHUFFLES), _MOST_SHUFFLES)
    slack, shuffle, met = least, _SHUFFLES, 0
    while met < number:
        if shapes.met(slack, shuffle):
            met += 1
        else:
            slack, met = slack + max(_CLOSE, slack // _RESERVE), 0
        shuffle += 1
    return shapes.of(slack)


def shape_of(sizes: GraphSizes, batch_size: int) -> Limits:
    """Return the limits that `StaticBatchSampler` chooses for shuffled batches on a single rank."""
    limits = chosen(SlackShapes(sizes, Cut.of(len(sizes), batch_size, 1, drop_last=False)))
    return limits_of(sizes, limits, batch_size)


def limits_of(sizes: GraphSizes, values: IntArray, graphs: int) -> Limits:
    """Return `values` as the limits of the components of `sizes`, with a cap on graphs."""
    return Limits.from_components(dict(zip(sizes.components, values.tolist(), strict=True)), graphs)


def _smallest(first: int, suffices: Callable[[int], bool]) -> int:
    """Return the least slack that suffices, at least `first`, nearly exactly."""
    failed, slack = 0, first
    while not suffices(slack):
        failed, slack = slack, 2 * slack
    while failed and slack - failed > max(_CLOSE, slack // _FINE):
        middle = (failed + slack) // 2
        failed, slack = (failed, middle) if suffices(middle) else (middle, slack)
    return slack
