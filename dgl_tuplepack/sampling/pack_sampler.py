"""The sampler: batches of graph ids from a plan. In each epoch, packs get graphs, and are dealt to steps and ranks.

How data flows: a plan says how many packs have which sizes. For each epoch, `PackBatchSampler` shuffles the graphs of
each size and writes their ids into the packs (`_graphs`); with ``content="exchange"``, `ExchangedPacks` first chooses
anew which sizes share a pack. Then packs become steps, one or more packs for each rank (`_dealt`); with shuffle and
several ranks, packs of near-equal work share a step. Every rank computes the batches of all ranks, as `EpochBatches`.

`EpochSampler` (`epoch_sampler.py`), the base class, takes the batches of its rank, and yields a list of ids for each
step. It has what all samplers share: epochs, skipped batches, the warning of a repeated epoch, and mean numbers of
graphs and labels. `ranks.py` finds the rank, and compares settings among the ranks of torch.distributed.

`static_sampler.py` makes batches of exactly B graphs without a plan; `exact_batches.py` repairs them, by the kernel
`deal_and_repair`, which exchanging uses too. `stream.py` packs a stream in the order in which graphs come, by the
kernel `online_fit`; it has no epochs, and ranks may differ in length.
"""

from __future__ import annotations

import copy
import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import choice, shown, whole_number
from dgl_tuplepack._core.kernels.random import shuffle_segments
from dgl_tuplepack._core.progress import notice
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.errors import PlanError, SamplerError
from dgl_tuplepack.graphs.readers.kinds import sizes_of
from dgl_tuplepack.planning.buckets import Buckets, Shapes, all_of, as_shapes, num_steps, promotions, steps_of
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing import pack
from dgl_tuplepack.planning.plan import PackPlan, static_limits
from dgl_tuplepack.planning.sizes import FloatArray, GraphSizes, IntArray
from dgl_tuplepack.sampling.epoch_batches import NONE, EpochBatches
from dgl_tuplepack.sampling.epoch_sampler import (
    EpochSampler,
    checksum_of,
    costs_of,
    split_oversize,
    warn_of_dropped,
)
from dgl_tuplepack.sampling.exchanged_packs import ExchangedPacks, Packs
from dgl_tuplepack.sampling.ranks import compared, in_process_group
from dgl_tuplepack.sampling.weighted_packs import WeightedPacks
from dgl_tuplepack.sampling.weights import argument_of, draws_of

_log = logging.getLogger(__name__)
# Identifiers of the random streams, one for each purpose; others have 6 to 23. Version 0.1.0 used 3.
_CONTENT, _ORDER, _STEPS, _MIXED = 1, 2, 4, 5
# Work is rounded down to multiples of this fraction of the largest work of a pack; packs of equal rounded work stay in
# random order.
_EQUAL = 1 / 64


class PackBatchSampler(EpochSampler):
    """Batches of graph ids, made from a plan; no pack ever exceeds a limit.

    Pass it to a loader as ``batch_sampler``, together with ``PaddedCollate(sampler.limits, ...)``, and call
    `set_epoch` before each epoch.

    Parameters
    ----------
    sizes
        Sizes of all graphs, a dataset that `sizes_of` reads, or the result of `SizeHistogram.from_sizes`; ids are
        positions among these graphs.
    limits
        Inclusive maxima of one pack. A list of two to four limits, in ascending order, gives shape buckets: all packs
        of a step, on all ranks, use one shape. The ids of a batch have the index of this shape as attribute ``shape``.
    plan
        A plan for exactly these sizes and, if there are several limits, for exactly these shapes. None: made by `pack`.
    content
        "resample": each pack keeps its sizes, and each epoch fills it with random graphs of these sizes.
        "exchange": each epoch puts all graphs into as many packs as the plan has, within `limits`; for one shape only.
        "fixed": the same graphs share a pack in each epoch. None: "fixed" without `shuffle`; "exchange" if more than
        half of the graphs have a size that no other graph has, and there is one shape; otherwise "resample". With
        "resample" and one pack per batch, two graphs never meet if no pack of the plan holds both of their sizes.
    packs_per_batch
        Number of packs in a batch, >= 1.
    shuffle
        Whether packs come in random order. False: in the order of the plan, shape by shape, and graphs of equal size
        fill the packs in the order of their ids.
    seed
        Random seed, 0..2**64-1. Batches depend only on the settings, sizes, limits, plan, seed and epoch.
    num_replicas, rank
        Number of processes, and the rank of this process; by default from torch.distributed, if it is initialised, and
        then every rank must make the sampler: settings, sizes and plan are compared among all ranks. All ranks get the
        same number of batches; if packs do not divide evenly, some batches are empty. Packs of near-equal work share a
        step (see `balance`), unless ``shuffle=False``.
    drop_last
        Whether to drop the packs that do not fill a step, instead of adding empty batches. There must be enough packs
        for one step. With several shapes, leftover packs of a shape move to the next larger shape, so only those of the
        largest shape are dropped. If the largest shapes have too few packs for one step, it gets packs of the next
        smaller shape, so that the large packs are not dropped in every epoch.
    weights
        How often each graph comes in an epoch, as in `StaticBatchSampler`; for one shape, without `plan` and `content`.
        Each epoch then packs other graphs, into equally many packs, about 0.3 % more than the plan has.
    cost
        What ranks are balanced by: a number for each graph, >= 0, such as a measured time, or a mapping of components
        to weights, such as ``{"edges": 1}``. None: nodes and edges, each of weight 1.
    oversize
        What to do with graphs that are too large for any pack: "error", or "drop" (with a warning).

    Attributes
    ----------
    limits
        Limits that batches are padded to, with a cap on graphs: the given cap, or else the most graphs in any pack of
        the plan. With several shapes, a tuple of limits, smallest first.
    plan
        The plan. With "exchange", the packs of an epoch have its number and limits, but other sizes.
    dropped_ids
        Ids of the graphs that ``oversize="drop"`` left out, int64.

    Raises
    ------
    GraphTooLargeError, LimitsError, SizesError
        As in `pack`.
    PlanError
        `plan` was made for other sizes or other shapes, or exceeds `limits`.
    SamplerError
        Settings contradict each other; several processes run, but the rank of this process is unknown; the ranks have
        different settings, sizes or plans; or another rank failed.

    Notes
    -----
    Besides the plan, the constructor and each epoch need O(N) time and memory for N graphs; on several ranks, the order
    of P packs needs O(P log P) time. "exchange" needs O(N P k) time in each epoch for k components, P at most 1,000,
    when the first batch is requested.

    With several packs per batch, one process and one shape, any two graphs can meet; see "Which graphs meet".

    Examples
    --------
    >>> from dgl_tuplepack import GraphSizes, Limits
    >>> sizes = GraphSizes([[3, 3], [2, 2], [1, 1], [2, 1]])
    >>> sampler = PackBatchSampler(sizes, Limits(nodes=4, edges=4), shuffle=False)
    >>> list(sampler), sampler.limits
    ([[0, 2], [1, 3]], Limits(nodes=4, edges=4, graphs=2))
    """

    def __init__(
        self,
        sizes: GraphSizes | SizeHistogram | Any,
        limits: Shapes,
        *,
        plan: PackPlan | None = None,
        content: str | None = None,
        packs_per_batch: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
        drop_last: bool = False,
        weights: Any = None,
        cost: Any = None,
        oversize: str = "error",
    ) -> None:
        with compared("its sampler", among_ranks=num_replicas is None and in_process_group()) as facts:
            super().__init__(shuffle, seed, drop_last, num_replicas, rank)
            shapes = as_shapes(limits)
            check_content(content, self.shuffle, shapes)
            self.packs_per_batch = whole_number("packs_per_batch", packs_per_batch, 1, error=SamplerError)
            if not isinstance(sizes, SizeHistogram) or sizes.graph_classes is None:
                sizes = sizes_of(sizes)
            number = sizes.num_graphs if isinstance(sizes, SizeHistogram) else len(sizes)
            with notice(f"preparing batches of {number:,} graphs", number):
                every = sizes if isinstance(sizes, SizeHistogram) else SizeHistogram.from_sizes(sizes)
                self._set_graphs(every, shapes, oversize)
                self._weighted = None
                if weights is not None:
                    contradicted = not self.shuffle or plan is not None or content is not None
                    if contradicted or not isinstance(shapes, Limits):
                        raise SamplerError(
                            "weights and shares draw and pack other graphs in each epoch, for one shape: leave out "
                            "plan, content, shuffle=False and further limits."
                        )
                    self._set_weights(every, weights)
                self._costs = None
                if cost is not None:
                    self._costs = costs_of(cost, every.sizes[every.graph_classes], every.components)
                self.content = content or default_content(self._histogram, self.shuffle, shapes)
                self._set_plan(plan, shapes)
            if self.drop_last and not self._length:
                raise SamplerError(
                    f"drop_last=True would leave nothing: the plan has {self.plan.num_packs} packs, but a step "
                    f"needs {self.packs_per_batch} x {self.num_replicas}; use drop_last=False, fewer "
                    "packs_per_batch or smaller limits."
                )
            facts.update(self.settings(), plan=self.plan.fingerprint)

    def _set_graphs(self, every: SizeHistogram, limits: Limits | Buckets, oversize: str) -> None:
        # Group the kept ids by size class: class c has the ids _members[_class_offsets[c] : _class_offsets[c + 1]].
        histogram, kept, self.dropped_ids = split_oversize(every, limits, oversize)
        warn_of_dropped(self.dropped_ids, every.num_graphs, limits)
        assert histogram.graph_classes is not None
        # Ids are positions among all graphs, so the checksum covers all graphs; dropped graphs have the class -1.
        classes = np.full(every.num_graphs, -1, dtype="<i8")
        classes[kept] = histogram.graph_classes
        self._num_ids, self.num_graphs = every.num_graphs, len(kept)
        self._sizes_checksum = zlib.crc32(classes.data)
        # numpy sorts integers of 16 bits or fewer several times as fast as others.
        narrow = histogram.graph_classes.astype(np.min_scalar_type(len(histogram)))
        self._members: IntArray = kept[np.argsort(narrow, kind="stable")]
        self._class_offsets: IntArray = np.concatenate([[0], np.cumsum(histogram.counts)])
        self._histogram = histogram.without_ids()

    def _set_weights(self, every: SizeHistogram, weights: Any) -> None:
        """Set `_weighted`, which packs the graphs of an epoch, and the histogram of the plan."""
        kept = np.setdiff1d(np.arange(self._num_ids), self.dropped_ids)
        assert every.graph_classes is not None
        sizes = GraphSizes(every.sizes[every.graph_classes[kept]], every.components)
        draws, self.drawn_by = draws_of(weights, self._num_ids, kept, sizes.array), argument_of(weights)
        self._weighted, self._kept = WeightedPacks(draws, sizes, self.seed), kept
        self._histogram = self._weighted.histogram()

    def _set_plan(self, plan: PackPlan | None, limits: Limits | Buckets) -> None:
        if plan is None:
            plan = pack(self._histogram, limits, seed=self.seed)
        else:
            check_plan(plan, self._histogram, limits)
        self._asked_limits = limits.filled(self._histogram.components, self._histogram.totals())
        static = static_limits(limits, [plan])
        self.limits: Any = static
        offsets = self._class_offsets
        if self._weighted is not None:
            offsets = np.concatenate([[0], np.cumsum(self._histogram.counts)])
        self.plan, self._packs = plan, Packs.of(plan, offsets)
        self._exchanged = None
        if self.content == "exchange" and isinstance(static, Limits):
            self._exchanged = ExchangedPacks(self._packs, static, self.seed)
        self._packs_per_step = self.num_replicas * self.packs_per_batch
        packs = plan.packs_of_shapes if self._weighted is None else [self._weighted.number(plan.num_packs)]
        self._num_packs = sum(packs)
        self._length = sum(steps_of(packs, self._packs_per_step, self.drop_last))

    def unshuffled(self) -> PackBatchSampler:
        """Return a sampler with the same batches in each epoch: the packs of the plan, in its order."""
        sampler = copy.copy(self)
        sampler.shuffle, sampler.content = False, "fixed"
        sampler._counted = (-1, 0.0)
        sampler._set_plan(self.plan, self._asked_limits)
        return sampler

    def _of_ranks(self, num_replicas: int) -> PackBatchSampler:
        sampler = copy.copy(self)
        sampler.num_replicas, sampler._packs_per_step = num_replicas, num_replicas * self.packs_per_batch
        return sampler

    def __len__(self) -> int:
        """Return the number of batches in an epoch: equal on all ranks, and in all epochs."""
        return self._length

    def _batches(self, epoch: int) -> EpochBatches:
        graphs = self._graphs(epoch)
        dealt, shapes = self._dealt(epoch, self._work(epoch, graphs))
        if self._weighted is not None:
            packs = self._packs_of(epoch)
            batches = self._weighted.separated(EpochBatches(epoch, packs.offsets, packs.graphs, dealt), self.limits)
            return replace(batches, graphs=self._kept[batches.graphs])
        of_steps = shapes if len(self.plan.shapes) > 1 else None
        return EpochBatches(epoch, self._packs_of(epoch).offsets, graphs, dealt, of_steps)

    def _packs_of(self, epoch: int) -> Packs:
        if self._weighted is not None:
            offsets, graphs = self._weighted.of(epoch, self.limits, self._num_packs)
            work = self._weighted.sizes.array.sum(axis=1, dtype=np.float64)[graphs]
            shapes = np.zeros(self._num_packs, np.int64)
            return Packs(self.plan, offsets, graphs, np.add.reduceat(work, offsets[:-1]), shapes)
        return self._packs if self._exchanged is None else self._exchanged.of(epoch)

    def _graphs(self, epoch: int) -> IntArray:
        """Return the graph ids of all packs, one pack after the other, ``[N]``."""
        if self._weighted is not None:
            return self._kept[self._packs_of(epoch).graphs]
        members = self._members
        if self.shuffle:
            members = members.copy()
            content_epoch = 0 if self.content == "fixed" else epoch
            shuffle_segments(members, self._class_offsets, key_of(self.seed, content_epoch, _CONTENT))
        # `members` was shuffled only within each size class, so each pack gets graphs of its size classes.
        return members[self._packs_of(epoch).graphs]

    def _work(self, epoch: int, graphs: IntArray) -> FloatArray:
        """Return the work of each pack, ``[P]``: its real nodes and edges, or the costs of its graphs."""
        packs = self._packs_of(epoch)
        return packs.work if self._costs is None else np.add.reduceat(self._costs[graphs], packs.offsets[:-1])

    def _dealt(self, epoch: int, work: FloatArray) -> tuple[IntArray, IntArray]:
        """Return the packs of each batch, as `EpochBatches.dealt` of all ranks, and the shape of each step, ``[S]``."""
        packs = self._packs_of(epoch)
        order = np.arange(self._num_packs)
        if self.shuffle:
            order = shuffled(order, key_of(self.seed, epoch, _ORDER))
        groups = [order[packs.shapes[order] == shape] for shape in range(len(self.plan.shapes))]
        # No batch has more packs than `most`. An array for a huge `packs_per_batch` would not fit into memory.
        most = min(self.packs_per_batch, self._num_packs // self.num_replicas + 2)
        batches_of_shapes: dict[int, IntArray] = {}
        # Packs that do not fill a step of their shape move to the next larger shape.
        for shape, group in enumerate(promoted(groups, self._packs_per_step, self.drop_last)):
            if len(group):
                # Without a key, the steps keep the order of the packs.
                key = key_of(self.seed, epoch, _STEPS) if self.shuffle and self.num_replicas > 1 else None
                key = key_of(int(key), shape, _STEPS) if key is not None and shape else key
                dealt = deal(work[group], self.num_replicas, most, self.drop_last, key)
                batches_of_shapes[shape] = np.where(dealt == NONE, NONE, group[dealt])
        batches = np.concatenate([*batches_of_shapes.values()])
        shapes = np.concatenate([np.full(len(steps), shape, np.int64) for shape, steps in batches_of_shapes.items()])
        if self.shuffle and len(batches_of_shapes) > 1:
            mixed = shuffled(np.arange(len(shapes)), key_of(self.seed, epoch, _MIXED))
            batches, shapes = batches[mixed], shapes[mixed]
        return batches, shapes

    @property
    def maxima(self) -> dict[str, int]:
        """The largest value of each component among the graphs, without graphs that are dropped for their size."""
        return self._histogram.maxima()

    @property
    def _random(self) -> str:
        # For the warning of `EpochSampler` that an epoch is iterated again.
        return "" if self.content == "fixed" else f"the content is {self.content!r}"

    def balance(self) -> Balance:
        """Return how evenly real nodes and edges, or costs, are spread over the ranks in each step of this epoch.

        Spread of a step: the largest work of a rank minus the smallest, divided by the mean work of a batch. Idle: the
        fraction of time that ranks wait for the slowest rank, if time is proportional to work.

        Examples
        --------
        >>> from dgl_tuplepack import GraphSizes, Limits
        >>> sizes = GraphSizes([[8, 8], [7, 7], [9, 9], [6, 6]])
        >>> PackBatchSampler(sizes, Limits(nodes=9, edges=9), num_replicas=2, rank=0).balance()
        Balance(2 steps of 2 ranks: spread of nodes + edges 13.33% on average, 13.33% at most; idle 6.25%)
        """
        work = self._work(self.epoch, self._graphs(self.epoch))
        dealt, _ = self._dealt(self.epoch, work)
        return Balance(
            np.where(dealt == NONE, 0, work[dealt]).sum(axis=2), "nodes + edges" if self._costs is None else "costs"
        )

    def _kept_sizes(self) -> tuple[IntArray, GraphSizes]:
        if self._weighted is not None:
            return self._kept, self._weighted.sizes
        of_members = np.repeat(self._histogram.sizes, self._histogram.counts, axis=0)
        return self._members, GraphSizes(of_members, self._histogram.components)

    def settings(self) -> dict[str, Any]:
        """Return, as plain values, the settings that, together with the plan, decide which graphs a batch holds."""
        return {
            "seed": self.seed,
            "content": self.content,
            "shuffle": self.shuffle,
            "packs_per_batch": self.packs_per_batch,
            "num_replicas": self.num_replicas,
            "drop_last": self.drop_last,
            "num_graphs": self.num_graphs,
            "limits": self._asked_limits.to_dict(),
            "sizes": self._sizes_checksum,
            **({} if self._weighted is None else {"weights": self._weighted.checksum}),
            **checksum_of(self._costs),
        }


def check_content(content: str | None, shuffle: bool, limits: Limits | Buckets) -> None:
    """Raise SamplerError if `content` is unknown, or contradicts `shuffle` or the number of shapes."""
    if content is None:
        return
    choice("content", content, ("fixed", "resample", "exchange"), SamplerError)
    if content != "fixed" and not shuffle:
        raise SamplerError(f"content={content!r} is random, but shuffle=False; use content='fixed' or shuffle=True.")
    if content == "exchange" and isinstance(limits, Buckets):
        raise SamplerError(
            f"content='exchange' needs packs of one shape, but the limits are {limits!r}; use content='resample', or "
            "one shape."
        )


def default_content(histogram: SizeHistogram, shuffle: bool, limits: Limits | Buckets) -> str:
    """Return the default of `content` for the graphs of a histogram."""
    if not shuffle:
        return "fixed"
    alone = np.count_nonzero(histogram.counts == 1)
    if 2 * alone <= histogram.num_graphs or isinstance(limits, Buckets):
        return "resample"
    _log.info(
        "content='exchange': %d of %d graphs have a size that no other graph has, so content='resample' would put "
        "the same graphs into a pack in each epoch", alone, histogram.num_graphs,
    )  # fmt: skip
    return "exchange"


def check_plan(plan: PackPlan, histogram: SizeHistogram, limits: Limits | Buckets) -> None:
    """Raise PlanError if a plan is for other sizes or other shapes, or exceeds the limits."""
    if not isinstance(plan, PackPlan):
        raise PlanError(f"plan must be a PackPlan, but is {shown(plan)}; make one with pack() or PackPlan.load().")
    if plan.histogram != histogram:
        raise PlanError(
            f"the plan is for {plan.histogram.num_graphs} graphs of {len(plan.histogram)} sizes, totals "
            f"{plan.histogram.totals()}, but the given sizes are {histogram.num_graphs} graphs of {len(histogram)} "
            f"sizes, totals {histogram.totals()}; make a plan for these sizes."
        )
    made_for, shapes = plan.made_for, all_of(limits)
    try:
        plan.check_limits(shapes[-1])
    except PlanError as error:
        raise PlanError(f"the plan was made for {made_for!r} and exceeds {limits!r}: {error}") from error
    if (len(shapes) > 1) != (len(plan.shapes) > 1):
        raise PlanError(
            f"the plan was made for {made_for!r}, but the limits are {limits!r}: one of them has several shapes, "
            "the other a single one; make a plan for these limits."
        )
    if isinstance(limits, Buckets):
        buckets = limits.filled(histogram.components, histogram.totals())
        # For each pattern, the index of its shape in `buckets`; `plan.pattern_shapes`: in the plan's buckets.
        found = buckets.smallest_for(plan.pattern_contents, plan.pattern_graphs)
        other = np.flatnonzero(found != plan.pattern_shapes)
        if len(other):
            raise PlanError(
                f"the plan was made for {made_for!r}, where its pattern {other[0]} has shape "
                f"{plan.pattern_shapes[other[0]]}, but in {limits!r} it has shape {found[other[0]]}; make a plan for "
                "these shapes."
            )


def promoted(groups: Sequence[IntArray], packs_per_step: int, drop_last: bool) -> list[IntArray]:
    """Return the packs of each shape, after packs that do not fill a step have moved to a larger shape.

    Moved packs come last in their new group, so `drop_last` drops them first.
    """
    groups = [*groups]
    for shape, target, moved in promotions([len(group) for group in groups], packs_per_step, drop_last):
        kept = len(groups[shape]) - moved
        groups[target] = np.concatenate([groups[target], groups[shape][kept:]])
        groups[shape] = groups[shape][:kept]
    return groups


def deal(
    work: FloatArray, num_replicas: int, packs_per_batch: int, drop_last: bool, key: np.uint64 | None = None
) -> IntArray:
    """Deal P packs to R ranks, in S steps of p packs for each rank; return the indices of packs, int64 ``[S, R, p]``.

    In each batch, indices ascend; NONE marks a missing pack. In an incomplete last step, each rank gets one pack before
    any rank gets two; with `drop_last`, these packs are left out instead. Without a `key`, each step has consecutive
    packs. With a key, packs of near-equal work share a step, an incomplete step gets the packs with the least work, and
    the key shuffles the full steps. The caller must have put the packs into random order. Time O(P log P).
    """
    packs_per_step = num_replicas * packs_per_batch
    full_steps = len(work) // packs_per_step
    num_dealt = full_steps * packs_per_step if drop_last else len(work)
    steps = np.full((num_steps(len(work), packs_per_step, drop_last), packs_per_step), NONE, dtype=np.int64)
    if key is None:
        steps.reshape(-1)[:num_dealt] = np.arange(num_dealt)
        batches = steps.reshape(-1, num_replicas, packs_per_batch)
        # Deal the incomplete step in rounds of one pack per rank, [1, p, R].
        batches[full_steps:] = steps[full_steps:].reshape(-1, packs_per_batch, num_replicas).transpose(0, 2, 1)
    else:
        # Most work first; the stable sort keeps the random order of packs of equal rounded work.
        rounded = np.floor(work[:num_dealt] / max(_EQUAL * float(work.max()), 1e-300))
        steps.reshape(-1)[:num_dealt] = np.argsort(-rounded, kind="stable")
        steps[:full_steps] = steps[shuffled(np.arange(full_steps), key)]
        batches = _balanced(steps, work, num_replicas, packs_per_batch)
    return np.sort(batches, axis=2)


def _balanced(steps: IntArray, work: FloatArray, num_replicas: int, packs_per_batch: int) -> IntArray:
    """Deal the packs of each step, ``[S, R * p]``, so that all ranks get similar work; return ``[S, R, p]``."""
    by_work = np.argsort(np.where(steps == NONE, np.inf, -work[steps]), axis=1, kind="stable")
    # Each round has one pack for each rank, by descending work, missing packs last; every second round is reversed.
    rounds = np.take_along_axis(steps, by_work, axis=1).reshape(-1, packs_per_batch, num_replicas)
    rounds[:, 1::2] = rounds[:, 1::2, ::-1].copy()
    # Each step starts at another rank, so that no rank always gets the most work.
    rotated = (np.arange(num_replicas) + np.arange(len(steps))[:, None]) % num_replicas
    return np.take_along_axis(rounds, rotated[:, None, :], axis=2).transpose(0, 2, 1)


@dataclass(frozen=True)
class Balance:
    """How evenly work is spread over the ranks in each step of an epoch.

    Parameters
    ----------
    work
        Real nodes + edges of each rank's batch, float64 ``[steps, ranks]``; for heterographs, summed over all types.
        Or the costs of its graphs.
    unit
        What `work` counts.
    """

    work: FloatArray
    unit: str = "nodes + edges"

    @property
    def spread(self) -> FloatArray:
        """For each step, the largest work of a rank minus the smallest, float64 ``[steps]``."""
        return np.asarray(self.work.max(axis=1) - self.work.min(axis=1), dtype=np.float64)

    @property
    def mean_spread(self) -> float:
        """Mean of `spread` over the steps, as a fraction of the mean work of a batch."""
        return float(self.spread.mean() / max(self.work.mean(), 1e-300)) if len(self.work) else 0.0

    @property
    def largest_spread(self) -> float:
        """Largest `spread` of any step, as a fraction of the mean work of a batch."""
        return float(self.spread.max() / max(self.work.mean(), 1e-300)) if len(self.work) else 0.0

    @property
    def idle(self) -> float:
        """Fraction of time that ranks wait for the slowest rank of a step, if time is proportional to work."""
        slowest = float(self.work.max(axis=1).sum()) * self.work.shape[1]
        return 1 - float(self.work.sum()) / slowest if slowest else 0.0

    def __repr__(self) -> str:
        return (
            f"Balance({self.work.shape[0]} steps of {self.work.shape[1]} ranks: spread of {self.unit} "
            f"{self.mean_spread:.2%} on average, {self.largest_spread:.2%} at most; idle {self.idle:.2%})"
        )
