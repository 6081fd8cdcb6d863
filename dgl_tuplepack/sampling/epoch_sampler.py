"""What the samplers of a dataset share: epochs that the loop sets, ranks, and mean numbers of graphs."""

from __future__ import annotations

import math
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from dgl_tuplepack._core.checks import (
    OVERSIZE,
    UINT64_MAX,
    as_array,
    choice,
    real_number,
    shown,
    true_or_false,
    whole_number,
)
from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.planning.buckets import Buckets
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.sizes import FloatArray, GraphSizes, IntArray
from dgl_tuplepack.sampling.epoch_batches import NONE, EpochBatches, dealt_anew
from dgl_tuplepack.sampling.ranks import replicas

# Costs have this many bits, so the order of a sum does not matter, and all ranks get the same result.
_COST_BITS = 30


class EpochSampler(Sampler[list[int]], ABC):
    """Batches of graph ids that depend only on the settings, the sizes, the seed and the epoch."""

    # Whether a batch may be empty, so that all ranks have equally many.
    _may_be_empty = True
    # The argument of `packed_loader` that draws the graphs of an epoch: "weights" or "shares"; "" if all of them come.
    drawn_by = ""
    # Number of graphs that ids count, and of those that are not dropped for their size.
    _num_ids: int
    num_graphs: int

    def __init__(self, shuffle: bool, seed: int, drop_last: bool, num_replicas: int | None, rank: int | None) -> None:
        self.shuffle = true_or_false("shuffle", shuffle, SamplerError)
        self.drop_last = true_or_false("drop_last", drop_last, SamplerError)
        self.seed = whole_number("seed", seed, 0, UINT64_MAX, SamplerError)
        self.num_replicas, self.rank = replicas(num_replicas, rank)
        self._epoch, self._skip = 0, 0
        # An epoch that was begun with other numbers of ranks (-1: none), and these numbers, each with its steps.
        self._begun: tuple[int, tuple[tuple[int, int], ...]] = (-1, ())
        # Whether `set_epoch` was called; loaders then do not move on to the next epoch by themselves.
        self.epoch_is_set = False
        # Number of iterations; epoch of the latest one with gradients (-1: none); whether a warning was given.
        self._iterations, self._iterated, self._warned = 0, -1, False
        # The epoch for which `graphs_per_batch` was counted last (-1: none), and the result.
        self._counted: tuple[int, float] = (-1, 0.0)

    @abstractmethod
    def _batches(self, epoch: int) -> EpochBatches:
        """Return the batches of all ranks in an epoch."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return, as plain values, the settings that decide which graphs a batch holds."""

    @abstractmethod
    def _of_ranks(self, num_replicas: int) -> Self:
        """Return this sampler for another number of ranks."""

    @abstractmethod
    def _kept_sizes(self) -> tuple[IntArray, GraphSizes]:
        """Return the ids of the graphs that are not dropped, in any order, and their sizes."""

    @property
    @abstractmethod
    def maxima(self) -> dict[str, int]:
        """The largest value of each component among the graphs, without graphs that are dropped for their size."""

    @property
    @abstractmethod
    def _random(self) -> str:
        """How batches differ from epoch to epoch, for a warning; empty if they do not differ."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of batches in an epoch: equal on all ranks, and in all epochs."""

    @property
    def epoch(self) -> int:
        """The current epoch, 0 at first; see `set_epoch`."""
        return self._epoch

    @property
    def sampler(self) -> EpochSampler:
        """The sampler itself, since some frameworks call ``batch_sampler.sampler.set_epoch``."""
        return self

    def set_epoch(self, epoch: int, skip: int = 0) -> None:
        """Set the epoch, 0..2**64-1, of the next iteration, which leaves out the first `skip` batches of this epoch.

        To resume training, pass the saved epoch and the number of batches that the loop got from its loader. A loader
        from `packed_loader` counts its batches itself: save and load its `state_dict`.

        Raises
        ------
        SamplerError
            `epoch` is out of range, or the epoch has fewer batches than `skip`.
        """
        self.go_to(epoch, skip)
        self.epoch_is_set = True

    def set_epoch_and_start_iteration(self, epoch: int, start_iteration: int) -> None:
        """Call ``set_epoch(epoch, skip=start_iteration)``, for loops that call this name, such as fairchem's."""
        self.set_epoch(epoch, start_iteration)

    def go_to(self, epoch: int, skip: int = 0) -> None:
        """Set the epoch as `set_epoch` does, for a loader that counts epochs itself."""
        epoch = whole_number("epoch", epoch, 0, UINT64_MAX, SamplerError)
        self._skip = whole_number("skip", skip, 0, len(self), SamplerError)
        self._epoch = epoch
        if epoch != self._begun[0]:
            self._begun = -1, ()

    @property
    def advances(self) -> bool:
        """Whether a loader takes another epoch for each iteration by itself: on one rank, until `set_epoch`."""
        return self.shuffle and self.num_replicas == 1 and not self.epoch_is_set

    def __iter__(self) -> Iterator[list[int]]:
        # This is a generator, so an iterator that a loader makes but never uses has no effect.
        epoch, first, self._skip = self.epoch, self._skip, 0
        self._warn_of_repetition(first)
        batches = self.batches_of(epoch)
        # An evaluation, which runs without gradients, may repeat the epoch of the training.
        self._iterated = epoch if torch.is_grad_enabled() else self._iterated
        self._iterations += 1
        iteration = self._iterations
        for step in range(first, len(batches)):
            # Only the latest iteration is checked.
            if self.epoch != epoch and self._iterations == iteration:
                raise SamplerError(
                    f"the epoch was set to {self.epoch} after this iteration of epoch {epoch} had begun and yielded "
                    f"{step - first} batches, so the loop would continue with batches of the wrong epoch; call "
                    "set_epoch before iter(loader), since a loader with workers requests its first batches "
                    "in that call (a loader from packed_loader requests them when its own first batch is requested)."
                )
            yield batches[step]

    def _warn_of_repetition(self, first: int) -> None:
        """Warn once if an epoch is iterated again, unless all epochs are equal."""
        is_repeated = self._iterated == self.epoch and torch.is_grad_enabled()
        if is_repeated and first == 0 and self._random and not self._warned:
            self._warned = True
            warnings.warn(
                f"epoch {self.epoch} is iterated again, so its batches are the same as before although "
                f"{self._random}; call set_epoch(epoch) with the next epoch before iterating it (an evaluation needs "
                "no call under torch.no_grad(), or with a loader of its own, shuffle=False).",
                UserWarning,
                stacklevel=3,
            )

    def begin_with(self, epoch: int, segments: Sequence[tuple[int, int]]) -> None:
        """Let an epoch have only what is left of it after some steps with other numbers of ranks.

        `segments` has pairs of a number of ranks and of the steps that they made, in this order.
        """
        self._begun = epoch, tuple(segments)

    def segments_of(self, epoch: int) -> tuple[tuple[int, int], ...]:
        """Return the segments of an epoch, see `begin_with`; usually none."""
        return self._begun[1] if self._begun[0] == epoch else ()

    def batches_of(self, epoch: int) -> EpochBatches:
        """Return the batches of this rank in an epoch."""
        segments = self.segments_of(epoch)
        if not segments:
            return self._batches(epoch).of_rank(self.rank)
        batches = self._of_ranks(segments[0][0])._batches(epoch)
        ranks = [*(number for number, _ in segments[1:]), self.num_replicas]
        for (_, steps), number in zip(segments, ranks, strict=True):
            batches = dealt_anew(batches, steps, number, self.drop_last, self._may_be_empty)
        return batches.of_rank(self.rank)

    def sizes_by_id(self) -> GraphSizes:
        """Return the sizes of all graphs; those of dropped graphs are 0."""
        ids, sizes = self._kept_sizes()
        array = np.zeros((self._num_ids, len(sizes.components)), dtype=np.int64)
        array[ids] = sizes.array
        return GraphSizes(array, sizes.components)

    def all_batches(self) -> EpochBatches:
        """Return the batches of all ranks in the current epoch."""
        return self._batches(self.epoch)

    def _mean_of_batches(self, values: IntArray) -> float:
        """Sum ``values[id]`` over the graphs of each batch; return the mean of the sums over all steps and ranks."""
        batches = self._batches(self.epoch)
        of_packs = np.add.reduceat(values[batches.graphs], batches.offsets[:-1])
        return float(np.where(batches.dealt == NONE, 0, of_packs[batches.dealt]).sum(axis=2).mean())

    @property
    def graphs_per_batch(self) -> float:
        """Mean number of graphs per batch over all steps and ranks of the current epoch, including empty batches.

        In training, divide the sum of a batch's losses by this number, as in
        ``tp.nn.masked_mean(losses, batch.graph_mask, count=...)``: all graphs then weigh equally. Graphs that
        `oversize` or `drop_last` leave out do not count; batches that a resumed epoch skips do count.

        Examples
        --------
        >>> from dgl_tuplepack import GraphSizes, Limits, PackBatchSampler
        >>> PackBatchSampler(GraphSizes([[3, 3], [2, 2], [1, 1]]), Limits(nodes=4, edges=4)).graphs_per_batch
        1.5
        """
        if not self.drop_last:
            return self.num_graphs / (len(self) * self.num_replicas)
        # Each epoch may drop other graphs.
        if self._counted[0] != self.epoch:
            ones = np.ones(self._num_ids, dtype=np.int64)
            self._counted = self.epoch, self._mean_of_batches(ones)
        return self._counted[1]

    @property
    def count_tensor(self) -> Tensor:
        """`graphs_per_batch` as a 0-dimensional float64 tensor, which compiled code does not treat as a constant."""
        return torch.tensor(self.graphs_per_batch, dtype=torch.float64)

    def labels_per_batch(self, label_mask: Any) -> float:
        """Return the mean number of labels per batch over all steps and ranks of the current epoch.

        If some labels are missing and the loss has one term for each label, divide the sum of the terms by this number:
        ``tp.nn.masked_mean(losses, mask, count=sampler.labels_per_batch(label_mask))``. All labels then weigh equally.
        In `mask`, bool ``[G, T]`` for G graph slots and T labels per graph, exactly the existing labels of real graphs
        must be True.

        Parameters
        ----------
        label_mask
            Bool ``[N]`` or ``[N, T]``, a tensor or array, for all N graphs of the sampler; False = missing.

        Raises
        ------
        SamplerError
            The mask is not bool or does not have one row for each graph, or the epoch has no labels.
        """
        mask, number = as_array(label_mask, "label_mask", SamplerError), self._num_ids
        if mask.dtype != bool or mask.ndim not in (1, 2) or len(mask) != number:
            raise SamplerError(
                f"label_mask must be bool with shape [{number}] or [{number}, tasks], one row for each graph, but is "
                f"{shown(mask.dtype)} with shape {mask.shape}; give ~labels.isnan() for all graphs of this loader "
                "(for a split, only the rows of its ids)."
            )
        labels = self._mean_of_batches(np.asarray(mask.reshape(number, -1).sum(axis=1, dtype=np.int64)))
        if not labels:
            raise SamplerError("label_mask is False for all graphs of the epoch, so there is no label to train on.")
        return labels


def costs_of(cost: Any, sizes: IntArray, components: tuple[str, ...]) -> FloatArray:
    """Return the cost of each of N graphs of `sizes` ``[N, k]``, rounded, float64 ``[N]``.

    `cost` has a number for each graph, or maps components to the weight of each of their nodes or edges.
    """
    if isinstance(cost, Mapping):
        if not cost or any(name not in components for name in cost):
            raise SamplerError(f"cost must have weights of the components {list(components)}, but is {cost!s:.200}.")
        costs = np.zeros(len(sizes))
        for name, weight in cost.items():
            weight = real_number(f"cost[{name!r}]", weight, least=0, error=SamplerError)
            costs += weight * sizes[:, components.index(name)]
    else:
        try:
            costs = np.array(as_array(cost, "cost", SamplerError), dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            costs = np.zeros(0)
        if costs.shape != (len(sizes),):
            raise SamplerError(
                f"cost must have a number for each of the {len(sizes)} graphs, or be a mapping such as "
                f"{{{components[0]!r}: 1}}, but is {shown(cost)}."
            )
    if not (np.isfinite(costs.sum()) and (costs >= 0).all()):
        raise SamplerError("costs must be finite and >= 0; give other numbers.")
    unit = math.ldexp(1.0, math.frexp(float(costs.max(initial=0.0)))[1] - _COST_BITS)
    return np.asarray(np.rint(costs / unit) * unit, dtype=np.float64)


def checksum_of(costs: FloatArray | None) -> dict[str, int]:
    """Return the checksum of costs as a setting of a sampler; no setting without costs."""
    return {} if costs is None else {"cost": zlib.crc32(costs.astype("<f8").data)}


def split_oversize(
    histogram: SizeHistogram, limits: Limits | Buckets, oversize: str
) -> tuple[SizeHistogram, IntArray, IntArray]:
    """Return the histogram and the ids of the graphs within the limits, and the ids of the other graphs.

    Raise an error that names a graph if `oversize` is "error" and a graph is too large, or if all graphs are.
    """
    choice("oversize", oversize, OVERSIZE, SamplerError)
    assert histogram.graph_classes is not None
    fits = limits.fits(GraphSizes(histogram.sizes, histogram.components))
    if fits.all():
        return histogram, np.arange(histogram.num_graphs), np.zeros(0, dtype=np.int64)
    if oversize == "error" or not fits.any():
        limits.check(GraphSizes(histogram.sizes[histogram.graph_classes], histogram.components))
    graph_fits = fits[histogram.graph_classes]
    kept, dropped = np.flatnonzero(graph_fits), np.flatnonzero(~graph_fits)
    classes = (np.cumsum(fits) - 1)[histogram.graph_classes[kept]]
    within = SizeHistogram(histogram.sizes[fits], histogram.counts[fits], histogram.components, classes)
    return within, kept, dropped


def warn_of_dropped(dropped: IntArray, number: int, limits: Limits | Buckets) -> None:
    """Warn if any of `number` graphs is dropped, since it exceeds the limits."""
    if len(dropped):
        warnings.warn(f"{len(dropped)} of {number} graphs exceed {limits!r} and are dropped.", stacklevel=4)
