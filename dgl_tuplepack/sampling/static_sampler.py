"""The sampler of batches with exactly B graphs, which all fit one static shape."""

from __future__ import annotations

import copy
import logging
import warnings
import zlib
from dataclasses import replace
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX, OVERSIZE, choice, real_number, whole_number
from dgl_tuplepack._core.progress import notice
from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.errors import LimitsError, SamplerError, SizesError
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits, as_limits
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.sampling.epoch_batches import EpochBatches
from dgl_tuplepack.sampling.epoch_sampler import (
    EpochSampler,
    checksum_of,
    costs_of,
    split_oversize,
    warn_of_dropped,
)
from dgl_tuplepack.sampling.exact_batches import UNIT, Cut, ExactBatches, SlackShapes, chosen, known_order, limits_of
from dgl_tuplepack.sampling.pack_sampler import deal
from dgl_tuplepack.sampling.ranks import compared, in_process_group
from dgl_tuplepack.sampling.weights import WeightedDraws, argument_of, draws_of, separated

_log = logging.getLogger(__name__)

# So many shuffles of an epoch are tried before an order that is known to fit is used.
_ATTEMPTS = 3
# On several ranks, so many are tried to find batches that are also not much below the mean.
_EVENING_ATTEMPTS = 8
# A shape that has this fraction more slots than a mean batch gives a warning.
_MUCH = 0.1
# So many epochs that cannot be repaired give a warning.
_MANY = 3
# Identifiers of the random streams; `exact_batches.py` has others.
_SHUFFLE, _STEPS, _DRAW = 13, 15, 19
# So many draws of graphs are tried for an epoch with weights.
_DRAWS = 8


class StaticBatchSampler(EpochSampler):
    """Shuffled batches of exactly `batch_size` graphs, which all fit one static shape.

    Each epoch is shuffled and cut into batches, as by torch. Then a few graphs are exchanged between batches, until
    every batch is within `limits`, which are hardly larger than a mean batch. Pass the sampler to a loader as
    ``batch_sampler``, and call `set_epoch` before each epoch.

    Parameters
    ----------
    sizes
        Sizes of all graphs, or anything that `sizes_of` reads; ids are positions among these graphs.
    batch_size
        Number of graphs in each batch, >= 1; the last step, or on several ranks the last two, may have fewer.
    shuffle
        False: batches have the graphs in the order of `sizes`, and `limits` are what these batches need.
    seed
        Random seed, 0..2**64-1. Batches depend only on the settings, sizes, seed and epoch; `limits` on all but the
        last two.
    shape
        Limits of a batch, one for each component, with at least `batch_size` graphs or no cap. None: choose them, or
        use the shape that `preprocess` stored for these graphs and this `batch_size`.
    slack
        How much larger than a mean batch the limits are, >= 0, such as 0.02; with more slack, more graphs stay in their
        shuffled batches. None: choose a small slack, at least 0.003.
    multiple_of
        The limits on nodes and on edges, plus two slots for padding, are multiples of this number, >= 1.
    drop_last
        Whether to drop the graphs that do not fill a step.
    num_replicas, rank
        As in `PackBatchSampler`. All ranks get equally many batches, and none without graphs: the last step divides the
        rest evenly, and if that leaves at most one graph for some rank, two steps divide the last full step and the
        rest.
    weights
        How often each graph comes in an epoch, relative to the others: a number for each graph, >= 0, such as those of
        `class_weights`. Graph i of N then comes floor(e) or ceil(e) times, at random with the mean e = N w_i / sum(w),
        and not twice in a batch where that is possible. Epochs keep their length. None: once each.
    cost
        What ranks are balanced by: a number for each graph, >= 0, such as a measured time, or a mapping of components
        to weights, such as ``{"edges": 1}``. Full batches of near-equal cost then share a step, if they are shuffled.
        None: steps are not sorted. On several ranks, shuffled batches also exchange graphs until they are no more below
        the mean batch than `limits` are above it, if possible, so all ranks have nearly equal nodes and edges.
    oversize
        What to do with graphs that are larger than `shape`: "error", or "drop" (with a warning).

    Attributes
    ----------
    limits
        Limits of the content of every batch in every epoch, for `PaddedCollate`.
    dropped_ids
        Ids of the graphs that ``oversize="drop"`` left out, int64.
    fallbacks
        Number of epochs so far that could not be repaired. They use an order that is known to fit, shuffled within
        equal sizes and over batches. With chosen limits, there are fewer than 1 % of them.

    Raises
    ------
    GraphTooLargeError, LimitsError, SizesError
        A graph exceeds `shape`; `shape` has other components; or there are no graphs.
    SamplerError
        Settings contradict each other; no order of all graphs that fits `shape` is found (the message has limits that
        suffice); some rank would get no graph in a step; or ranks have different settings or sizes.

    Notes
    -----
    Time O(N k) for an epoch of N graphs with k components, plus the repair: about 1 s for 1,000,000 graphs. The
    constructor takes as long as about ten epochs, or up to thirty for few graphs. Memory O(N k).

    Graphs of very different sizes make the shape large, since a batch with the largest graph needs room for it; a
    warning says so. The largest graphs share a batch less often than by chance; see "Which graphs meet".

    Examples
    --------
    >>> from dgl_tuplepack import load_example
    >>> histogram = load_example("ogbg-molhiv")
    >>> sampler = StaticBatchSampler(histogram.sizes.repeat(histogram.counts, axis=0), batch_size=64)
    >>> batches = list(sampler)
    >>> len(batches), {len(batch) for batch in batches[:-1]}, sampler.limits
    (515, {64}, Limits(nodes=1623, edges=3476, graphs=64))
    """

    _may_be_empty = False

    def __init__(
        self,
        sizes: GraphSizes | Any,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        shape: Limits | None = None,
        slack: float | None = None,
        multiple_of: int = 1,
        drop_last: bool = False,
        num_replicas: int | None = None,
        rank: int | None = None,
        weights: Any = None,
        cost: Any = None,
        oversize: str = "error",
    ) -> None:
        with compared("its sampler", among_ranks=num_replicas is None and in_process_group()) as facts:
            self.batch_size = whole_number("batch_size", batch_size, 1, 2**31, error=SamplerError)
            super().__init__(shuffle, seed, drop_last, num_replicas, rank)
            self.fallbacks = 0
            source = resolve(sizes)
            sizes = source.sizes()
            shape = None if shape is None else as_limits(shape).aligned(sizes.components)
            with notice(f"preparing batches of {len(sizes):,} graphs", len(sizes)):
                self._costs = None if cost is None else costs_of(cost, sizes.array, sizes.components)
                self._set_graphs(sizes, shape, oversize)
                self._set_weights(weights)
                multiple_of = whole_number("multiple_of", multiple_of, 1, 2**31, SamplerError)
                # The shape that `preprocess` stored beside these graphs; other settings need another shape.
                use_stored = self.shuffle and weights is None and (shape, slack, multiple_of) == (None, None, 1)
                stored = source.static_shape(self.batch_size) if use_stored else None
                self._set_limits(self._shapes(multiple_of), shape, slack, stored)
            facts.update(self.settings())

    def _set_graphs(self, sizes: GraphSizes, shape: Limits | None, oversize: str) -> None:
        choice("oversize", oversize, OVERSIZE, SamplerError)
        if not len(sizes):
            raise SizesError("there are no graphs; give the sizes of at least one.")
        if max(sizes.totals().values()) > INT64_MAX:
            raise SizesError(
                f"the totals {sizes.totals()} exceed 64-bit integers, which batches need; count sizes in larger units."
            )
        if shape is None and oversize == "drop":
            raise SamplerError(
                "oversize='drop' leaves out graphs that are larger than a shape, but shape is None; give "
                "shape=Limits(nodes=..., edges=...)."
            )
        kept, self.dropped_ids = np.arange(len(sizes)), np.zeros(0, dtype=np.int64)
        if shape is not None:
            _, kept, self.dropped_ids = split_oversize(SizeHistogram.from_sizes(sizes), shape, oversize)
            warn_of_dropped(self.dropped_ids, len(sizes), shape)
        self._kept = kept
        self._sizes = sizes.take(kept) if len(kept) < len(sizes) else sizes
        self._num_ids, self.num_graphs = len(sizes), len(kept)
        self._sizes_checksum = zlib.crc32(np.column_stack([kept, self._sizes.array]).astype("<i8", order="C").data)
        self._cut = Cut.of(len(kept), self.batch_size, self.num_replicas, self.drop_last)

    def _set_weights(self, weights: Any) -> None:
        """Set `_draws`, which draws the graphs of an epoch; None without weights."""
        self._draws = None
        if weights is not None:
            if not self.shuffle:
                raise SamplerError("weights and shares draw new graphs in each epoch; leave them or shuffle=False out.")
            self._draws = draws_of(weights, self._num_ids, self._kept, self._sizes.array)
            self.drawn_by = argument_of(weights)

    def _drawn(self, number: int) -> IntArray:
        """Return the sizes of a draw that does not depend on the seed."""
        assert self._draws is not None
        return self._sizes.array[self._draws.of(key_of(0, number, _DRAW))]

    def _shapes(self, multiple_of: int) -> SlackShapes:
        if self._draws is None:
            return SlackShapes(self._sizes, self._cut, multiple_of)
        sizes = GraphSizes(self._drawn(0), self._sizes.components)
        possible = self._sizes.array[self._draws.possible]
        first = max(len(possible) - self._cut.most, 0)
        largest = [possible[np.argpartition(column, first)[first:]] for column in possible.T]
        return SlackShapes(sizes, self._cut, multiple_of, self._drawn, np.concatenate(largest))

    def _set_limits(
        self, shapes: SlackShapes, shape: Limits | None, slack: float | None, stored: Limits | None
    ) -> None:
        """Set `limits`, and for shuffled batches `_exact`, which makes orders of graphs within these limits."""
        if shape is not None and (slack is not None or shapes.multiple_of > 1):
            raise SamplerError("slack and multiple_of choose a shape, but shape is given; leave them out, or shape.")
        if slack is not None and not self.shuffle:
            raise SamplerError("slack is for shuffled batches, but shuffle=False; leave it out.")
        cap = self.batch_size
        # The latest epoch, and its order. Unshuffled epochs have the order of the sizes.
        self._latest: tuple[int, IntArray] = (-1, self._kept)
        if shape is not None:
            values, cap = shape.array, shape.graphs or self.batch_size
            if cap < self.batch_size:
                raise LimitsError(
                    f"shape has room for {cap} graphs, but batch_size is {self.batch_size}; give graphs=None or more."
                )
        elif not self.shuffle:
            values = shapes.rounded(np.maximum(self._contents().max(axis=0), 1))
        elif slack is None:
            values = self._chosen(shapes, stored)
        else:
            values = shapes.of(round(real_number("slack", slack, least=0, most=1e6, error=SamplerError) * UNIT))
        self.limits = limits_of(self._sizes, values, cap)
        if not self.shuffle:
            if shape is not None:
                self._check_order()
            return
        exact = ExactBatches(shapes.sizes.array, values, self._cut)
        if self._draws is None:
            self._exact = exact
        if known_order(exact) is None:
            needed = limits_of(self._sizes, chosen(shapes), cap)
            raise SamplerError(
                f"no order of the {self.num_graphs} graphs was found whose batches of {self._cut.most} all fit "
                f"{self.limits!r}; these suffice: {needed!r}; give these or larger ones, or let the sampler choose."
            )
        if shape is None and slack is None:
            self._warn_of_padding(shapes)

    def _chosen(self, shapes: SlackShapes, stored: Limits | None) -> IntArray:
        """Return limits for the batches of a single rank if others can use them, so that they depend on no rank."""
        single = Cut.of(self.num_graphs, self.batch_size, 1, drop_last=False)
        values = chosen(replace(shapes, cut=single)) if stored is None else stored.array
        if np.array_equal(self._cut.counts, single.counts):
            return values
        return (
            values if known_order(ExactBatches(shapes.sizes.array, values, self._cut)) is not None else chosen(shapes)
        )

    def _check_order(self) -> None:
        """Raise SamplerError if a batch in the order of the sizes exceeds the limits."""
        contents = self._contents()
        exceeding = np.flatnonzero((contents > self.limits.array).any(axis=1))
        if len(exceeding):
            names = self._sizes.components
            needed = dict(zip(names, np.maximum(self.limits.array, contents.max(axis=0)).tolist(), strict=True))
            raise SamplerError(
                f"batch {exceeding[0]} of the graphs in their order has {contents[exceeding[0]].tolist()} of "
                f"{list(names)}, but the shape is {self.limits!r}; give at least {needed}, a smaller batch_size, or "
                "leave the shape out."
            )

    def _contents(self) -> IntArray:
        """Return the content of each delivered batch, int64 ``[P, k]``, if graphs keep the order of their sizes."""
        contents = np.add.reduceat(self._sizes.array, self._cut.offsets[:-1], axis=0)
        return contents[: self._cut.delivered]

    def _warn_of_padding(self, shapes: SlackShapes) -> None:
        """Warn if the limits are much larger than a mean batch, and name what is to blame."""
        # Rounding up to multiples, and limits of at least 1, are no fault of any graph.
        slots = np.maximum(self.limits.array - shapes.multiple_of, 0).sum()
        above = slots / max(sum(shapes.mean), 1.0) - 1
        if above <= _MUCH:
            return
        number = min(self.batch_size, self.num_graphs)
        if self._cut.most < number and (1 + above) * self._cut.most / number - 1 <= _MUCH:
            reason = (
                f"the batches of at most {self._cut.most} graphs that {self.num_replicas} ranks have, since they share "
                f"{self.num_graphs} graphs. Use a smaller batch_size."
            )
        else:
            worst = int((self._sizes.array / self.limits.array).max(axis=1).argmax())
            size = dict(zip(self._sizes.components, self._sizes.array[worst].tolist(), strict=True))
            reason = (
                f"a mean batch; the largest graph has {size!s:.200}. Use a larger batch_size; or a subset of "
                "the dataset without the largest graphs; or packs (graphs_per_batch= in packed_loader), perhaps of "
                "several shapes (shapes=2)."
            )
        warnings.warn(
            f"batches of {number} graphs need a shape with {above:.0%} more slots than {reason}", stacklevel=4
        )

    def unshuffled(self) -> StaticBatchSampler:
        """Return a sampler with the same batches in each epoch: those of epoch 0, which are within the limits."""
        sampler = copy.copy(self)
        if self.shuffle:
            order = self._batches(0).graphs
            sampler.shuffle, sampler._latest, sampler._counted = False, (-1, order), (-1, 0.0)
            # States of another order do not fit this sampler.
            sampler._sizes_checksum = zlib.crc32(order.astype("<i8").data, self._sizes_checksum)
        return sampler

    def _of_ranks(self, num_replicas: int) -> StaticBatchSampler:
        sampler = copy.copy(self)
        sampler.num_replicas = num_replicas
        sampler._cut = Cut.of(self.num_graphs, self.batch_size, num_replicas, self.drop_last)
        sampler._latest = (-1, self._kept) if self.shuffle else self._latest
        if self.shuffle and self._draws is None:
            sampler._exact = ExactBatches(self._sizes.array, self.limits.array, sampler._cut)
        return sampler

    def __len__(self) -> int:
        """Return the number of batches in an epoch: equal on all ranks, and in all epochs."""
        return self._cut.steps

    @property
    def maxima(self) -> dict[str, int]:
        """The largest value of each component among the graphs, without graphs that are dropped for their size."""
        return dict(zip(self._sizes.components, self._sizes.array.max(axis=0).tolist(), strict=True))

    @property
    def _random(self) -> str:
        return "it is shuffled" if self.shuffle else ""

    def __repr__(self) -> str:
        return f"StaticBatchSampler({len(self)} batches of {self.batch_size} graphs within {self.limits!r})"

    def _shuffled(self, epoch: int) -> IntArray:
        """Return a random order of the kept graphs whose batches are within the limits."""
        key = key_of(self.seed, epoch, _SHUFFLE)
        if self._draws is not None:
            return self._weighted(self._draws, key)
        first: IntArray | None = None
        for attempt in range(_EVENING_ATTEMPTS):
            order = self._exact.repaired(key_of(int(key), attempt, _SHUFFLE))
            if order is not None:
                if self.num_replicas == 1:
                    # No batch waits for another one.
                    return order
                order, is_even = self._exact.evened(order, key)
                if is_even:
                    return order
                first = order if first is None else first
            elif first is None and attempt >= _ATTEMPTS - 1:
                break
        if first is not None:
            return first
        self.fallbacks += 1
        if self.fallbacks == _MANY:
            warnings.warn(
                f"{self.fallbacks} epochs could not be repaired within {self.limits!r}; they use the sizes of a known "
                "order, so their batches are less random; give a larger shape or more slack.",
                stacklevel=2,
            )
        _log.info("epoch %d uses a known order of sizes; %d epochs did so far", epoch, self.fallbacks)
        known, classes = known_order(self._exact), SizeHistogram.from_sizes(self._sizes).graph_classes
        assert known is not None
        assert classes is not None
        return self._exact.stirred(known, classes, self.seed, epoch)

    def _weighted(self, draws: WeightedDraws, key: np.uint64) -> IntArray:
        """Return the graphs of a draw in a random order whose batches are within the limits."""
        sizes, limits = self._sizes.array, self.limits.array
        for attempt in range(_DRAWS):
            of_draw = key_of(int(key), attempt, _DRAW)
            graphs = draws.of(of_draw)
            exact = ExactBatches(sizes[graphs], limits, self._cut)
            order = exact.repaired(of_draw)
            if order is not None:
                order = order if self.num_replicas == 1 else exact.evened(order, of_draw)[0]
                first_packs = np.arange(len(self._cut.counts) + 1)
                return separated(graphs[order], self._cut.offsets, first_packs, sizes, limits, of_draw)
        raise SamplerError(
            f"none of {_DRAWS} draws of graphs by their weights fits {self.limits!r}; give a larger shape or slack."
        )

    def _batches(self, epoch: int) -> EpochBatches:
        if self.shuffle and self._latest[0] != epoch:
            self._latest = epoch, self._kept[self._shuffled(epoch)]
        dealt, order = np.arange(self._cut.delivered).reshape(-1, self.num_replicas, 1), self._latest[1]
        if self._costs is not None and self.shuffle and self.num_replicas > 1:
            work = np.add.reduceat(self._costs[order], self._cut.offsets[:-1])[: self._cut.delivered]
            full = np.count_nonzero(self._cut.counts[: len(work)] == self.batch_size) // self.num_replicas
            key = key_of(self.seed, epoch, _STEPS)
            dealt[:full] = deal(work[: full * self.num_replicas], self.num_replicas, 1, True, key)
        return EpochBatches(epoch, self._cut.offsets, order, dealt)

    def _kept_sizes(self) -> tuple[IntArray, GraphSizes]:
        return self._kept, self._sizes

    def settings(self) -> dict[str, Any]:
        """Return, as plain values, the settings that decide which graphs a batch holds."""
        return {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "num_replicas": self.num_replicas,
            "drop_last": self.drop_last,
            "num_graphs": self.num_graphs,
            "limits": self.limits.to_dict(),
            "sizes": self._sizes_checksum,
            **({} if self._draws is None else {"weights": self._draws.checksum}),
            **checksum_of(self._costs),
        }
