"""From a plan to batches of graph ids, epoch after epoch."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from dgl_tuplepack._checks import UINT64_MAX, whole_number
from dgl_tuplepack.errors import PlanError, SamplerError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.kernels.random import derive_key, shuffle_segments
from dgl_tuplepack.kernels.slots import expand_patterns
from dgl_tuplepack.limits import Limits, as_limits
from dgl_tuplepack.packing import pack
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.sizes import GraphSizes, IntArray
from dgl_tuplepack.sources import sizes_of

CONTENTS = ("fixed", "resample", "repack")

# A plan for one epoch is worth less search than one for all of them.
_REPACK_EFFORT = 0.1

# Purposes of random streams; each has its own.
_CONTENT, _ORDER, _TIES = 1, 2, 3


class PackBatchSampler(Sampler[list[int]]):
    """Batches of graph ids that follow a plan and never exceed a limit.

    Hand it to a loader as ``batch_sampler``, together with ``PaddedCollate(sampler.limits, ...)``, and call
    `set_epoch` before each epoch.

    Parameters
    ----------
    sizes
        Sizes of all graphs, or a dataset that `sizes_of` reads; ids are positions in it.
    limits
        Inclusive maxima of one pack.
    plan
        A plan for exactly these sizes; made by `pack` if not given.
    content
        "resample": the shapes of packs stay, each slot gets a random graph of its size, anew each epoch.
        "fixed": the same graphs share a pack each epoch. "repack": a new plan each epoch, found by a
        search of other samples. None: "resample", or "fixed" without `shuffle`.
    packs_per_batch
        Packs in one batch, >= 1.
    shuffle
        Whether packs come in random order; False gives the order of the plan and of the ids.
    seed
        0..2**64-1. Batches are a function of sizes, limits, plan, seed and epoch alone.
    num_replicas, rank
        Number of processes and the number of this one; from torch.distributed where it is initialised.
        All ranks get equally many batches; where packs do not divide evenly, some batches are empty.
    drop_last
        Drop the packs that do not divide evenly, instead of padding with empty batches.
    oversize
        What to do with graphs that exceed the limits alone: "error", or "drop" (with a warning).

    Attributes
    ----------
    limits
        What batches are padded to: the limits, the cap on graphs lowered to the most that any pack holds
        (of the first plan, for "repack").
    plan
        The plan of the current epoch.
    epoch
        Set by `set_epoch`, 0 at first.
    dropped_ids
        int64, the graphs that ``oversize="drop"`` left out.

    Raises
    ------
    GraphTooLargeError, LimitsError, SizesError
        As in `pack`.
    PlanError
        `plan` was made for other sizes, or goes beyond `limits`.
    SamplerError
        Settings contradict each other, or several processes run and this one does not know its rank.

    Notes
    -----
    Time and memory O(N) at the start and for each epoch's order.

    Examples
    --------
    >>> sizes = GraphSizes([[3, 3], [2, 2], [1, 1], [2, 1]])
    >>> sampler = PackBatchSampler(sizes, Limits(nodes=4, edges=4), shuffle=False)
    >>> list(sampler), sampler.limits
    ([[0, 2], [1, 3]], Limits(nodes=4, edges=4, graphs=2))
    """

    def __init__(
        self,
        sizes: GraphSizes | Any,
        limits: Limits,
        *,
        plan: PackPlan | None = None,
        content: str | None = None,
        packs_per_batch: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
        drop_last: bool = False,
        oversize: str = "error",
    ) -> None:
        sizes, limits = sizes_of(sizes), as_limits(limits)
        self.content = _chosen_content(content, shuffle, plan)
        self.packs_per_batch = whole_number("packs_per_batch", packs_per_batch, 1, error=SamplerError)
        self.num_replicas, self.rank = _replicas(num_replicas, rank)
        self.shuffle, self.drop_last = shuffle, drop_last
        self.seed = whole_number("seed", seed, 0, UINT64_MAX, SamplerError)
        self.epoch = 0

        kept, self.dropped_ids = _split_oversize(sizes, limits, oversize)
        histogram = SizeHistogram.from_sizes(sizes.take(kept) if len(self.dropped_ids) else sizes)
        assert histogram.graph_classes is not None
        self._members: IntArray = kept[np.argsort(histogram.graph_classes, kind="stable")]
        self._class_offsets: IntArray = np.concatenate([[0], np.cumsum(histogram.counts)])
        self._histogram = histogram.without_ids()

        if plan is None:
            plan = pack(self._histogram, limits, seed=self.seed)
        else:
            _check_plan(plan, self._histogram, limits)
        self._first_plan = plan
        self.limits: Limits = limits.aligned(histogram.components).replace_graphs(plan.max_graphs)
        self._use_plan(0, plan)
        self._iterated_epoch: int | None = None
        self._warned = False

    def _use_plan(self, epoch: int, plan: PackPlan) -> None:
        self._plan_epoch, self._plan = epoch, plan
        self._pack_offsets, self._slots = expand_patterns(
            plan.offsets, plan.classes, plan.multiplicities, plan.repeats, self._class_offsets
        )

    def _follow_epoch(self) -> None:
        """With "repack", make the plan of the current epoch if it is not at hand."""
        if self.content != "repack" or self._plan_epoch == self.epoch:
            return
        if self.epoch == 0:
            self._use_plan(0, self._first_plan)
        else:
            seed = int(self._key(_TIES, self.epoch))
            self._use_plan(self.epoch, pack(self._histogram, self.limits, seed=seed, effort=_REPACK_EFFORT))

    def _key(self, purpose: int, epoch: int) -> np.uint64:
        return np.uint64(derive_key(np.uint64(self.seed), np.uint64(epoch), np.uint64(purpose)))

    @property
    def plan(self) -> PackPlan:
        """The plan of the current epoch."""
        self._follow_epoch()
        return self._plan

    @property
    def sampler(self) -> PackBatchSampler:
        """The sampler itself: where frameworks look for `set_epoch`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, 0..2**64-1, whose order the next iteration has."""
        self.epoch = whole_number("epoch", epoch, 0, UINT64_MAX, SamplerError)

    def __len__(self) -> int:
        """Batches in an epoch, equal on all ranks (with "repack", in the current epoch)."""
        packs = self.plan.num_packs
        packs_per_step = self.packs_per_batch * self.num_replicas
        return packs // packs_per_step if self.drop_last else -(-packs // packs_per_step)

    def __iter__(self) -> Iterator[list[int]]:
        # Nothing happens before the first batch is asked for: loaders call iter() more than once an epoch.
        self._warn_if_repeated()
        order, content = self._epoch_order()
        offsets = self._pack_offsets
        for step in range(len(self)):
            packs = self._packs_of_step(order, step)
            yield [graph for p in packs for graph in content[offsets[p] : offsets[p + 1]].tolist()]

    def _epoch_order(self) -> tuple[IntArray, IntArray]:
        """Packs in the order of this epoch, ``[P]``, and the graph in each slot, ``[N]``."""
        self._follow_epoch()
        order = np.arange(len(self._pack_offsets) - 1)
        members = self._members
        if self.shuffle:
            shuffle_segments(order, np.array([0, len(order)]), self._key(_ORDER, self.epoch))
            members = members.copy()
            content_epoch = 0 if self.content == "fixed" else self.epoch
            shuffle_segments(members, self._class_offsets, self._key(_CONTENT, content_epoch))
        return order, members[self._slots]

    def _packs_of_step(self, order: IntArray, step: int) -> list[int]:
        """Packs of this rank's batch: a run of its own, or, of what is left at the end, every R-th."""
        packs_per_step = self.packs_per_batch * self.num_replicas
        packs = order[step * packs_per_step : (step + 1) * packs_per_step]
        if len(packs) == packs_per_step:
            packs = packs[self.rank * self.packs_per_batch : (self.rank + 1) * self.packs_per_batch]
        else:
            packs = packs[self.rank :: self.num_replicas]
        return [int(p) for p in packs]

    def _warn_if_repeated(self) -> None:
        if self.content != "fixed" and self._iterated_epoch == self.epoch and not self._warned:
            self._warned = True
            warnings.warn(
                f"epoch {self.epoch} is iterated again, so its batches are the same as before although the content is "
                f"{self.content!r}; call loader.batch_sampler.set_epoch(epoch) before each epoch.",
                UserWarning,
                stacklevel=3,
            )
        self._iterated_epoch = self.epoch


def _chosen_content(content: str | None, shuffle: bool, plan: PackPlan | None) -> str:
    if content is None:
        return "resample" if shuffle else "fixed"
    if content not in CONTENTS:
        raise SamplerError(f"unknown content {content!r}; choose one of {', '.join(CONTENTS)}.")
    if content != "fixed" and not shuffle:
        raise SamplerError(f"content={content!r} is random, but shuffle=False; use content='fixed' or shuffle=True.")
    if content == "repack" and plan is not None:
        raise SamplerError("content='repack' makes a new plan each epoch, but a plan was given; leave one of them out.")
    return content


def _replicas(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    if (num_replicas is None) != (rank is None):
        raise SamplerError(
            f"num_replicas and rank go together, but are {num_replicas!r} and {rank!r}; give both or neither."
        )
    if num_replicas is not None:
        num_replicas = whole_number("num_replicas", num_replicas, 1, error=SamplerError)
        rank = whole_number("rank", rank, 0, num_replicas - 1, SamplerError)
        return num_replicas, rank
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size(), torch.distributed.get_rank()
    world_size = os.environ.get("WORLD_SIZE", "1")
    if world_size != "1":
        raise SamplerError(
            f"WORLD_SIZE is {world_size}, but torch.distributed is not initialised, so every process would train on "
            "the same graphs; call torch.distributed.init_process_group first, or give num_replicas and rank."
        )
    return 1, 0


def _split_oversize(sizes: GraphSizes, limits: Limits, oversize: str) -> tuple[IntArray, IntArray]:
    """Ids that fit and ids to drop."""
    if oversize not in ("error", "drop"):
        raise SamplerError(f"unknown oversize {oversize!r}; choose 'error' or 'drop'.")
    fits = limits.fits(sizes)
    if not fits.all() and (oversize == "error" or not fits.any()):
        limits.check(sizes)
    kept, dropped = np.flatnonzero(fits), np.flatnonzero(~fits)
    if len(dropped):
        warnings.warn(f"{len(dropped)} of {len(sizes)} graphs exceed {limits!r} and are dropped.", stacklevel=3)
    return kept, dropped


def _check_plan(plan: PackPlan, histogram: SizeHistogram, limits: Limits) -> None:
    if not isinstance(plan, PackPlan):
        raise PlanError(f"plan must be a PackPlan, but is {plan!s:.100}; make one by pack() or PackPlan.load().")
    if plan.histogram != histogram:
        raise PlanError(
            f"the plan is for {plan.histogram.num_graphs} graphs of {len(plan.histogram)} sizes, totals "
            f"{plan.histogram.totals()}, but the given sizes are {histogram.num_graphs} graphs of {len(histogram)} "
            f"sizes, totals {histogram.totals()}; make a plan for these sizes."
        )
    try:
        plan.check_limits(limits)
    except PlanError as error:
        raise PlanError(f"the plan was made for {plan.limits!r} and does not keep {limits!r}: {error}") from error
