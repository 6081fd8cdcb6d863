"""The sampler: from a plan to batches of graph ids, epoch after epoch; and checks of its arguments."""

from __future__ import annotations

import copy
import logging
import zlib
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import UINT64_MAX, choice, shown, true_or_false, whole_number
from dgl_tuplepack._core.progress import notice
from dgl_tuplepack.errors import PlanError, SamplerError
from dgl_tuplepack.graphs.readers.kinds import sizes_of
from dgl_tuplepack.planning.buckets import Buckets, Shapes, as_shapes
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing import pack
from dgl_tuplepack.planning.plan import PackPlan, static_limits
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.sampling.epoch_sampler import EpochSampler, split_oversize, warn_of_dropped
from dgl_tuplepack.sampling.epochs import NONE, Balance, EpochBatches, Epochs
from dgl_tuplepack.sampling.exchange import ExchangedPacks, Packs
from dgl_tuplepack.sampling.ranks import compared, in_process_group, replicas


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
        of a step, on all ranks, use the same shape. The list of ids of a batch has the index of this shape as its
        attribute ``shape``.
    plan
        A plan for exactly these sizes and, if there are several limits, for exactly these shapes. None: made by `pack`.
    content
        "resample": each pack keeps its sizes, and each epoch fills it with random graphs of these sizes.
        "exchange": each epoch deals all graphs to as many packs as the plan has, within `limits`; for one shape only.
        "fixed": the same graphs share a pack in each epoch. None: "fixed" without `shuffle`; "exchange" if more than
        half of the graphs have a size that no other graph has, and there is one shape; otherwise "resample". With
        "resample" and one pack per batch, two graphs never meet if no pack of the plan holds both of their sizes.
    packs_per_batch
        Number of packs in a batch, >= 1.
    shuffle
        Whether packs come in random order. False: packs come in the order of the plan, shape by shape, and graphs of
        equal size fill the packs in the order of their ids.
    seed
        Random seed, 0..2**64-1. Batches depend only on the settings, sizes, limits, plan, seed and epoch.
    num_replicas, rank
        Number of processes, and the rank of this process; by default from torch.distributed, if it is initialised.
        All ranks get the same number of batches; if packs do not divide evenly, some batches are empty. Packs of
        near-equal work share a step (see `balance`), unless ``shuffle=False``. If the ranks come from
        torch.distributed, every rank must make the sampler: the constructor compares settings, sizes and plan among
        all ranks.
    drop_last
        Whether to drop the packs that do not fill a step, instead of adding empty batches. There must be enough packs
        for one step. With several shapes, the leftover packs of a shape move to the next larger shape, so only leftover
        packs of the largest shape are dropped. If the largest shape, or the largest shapes together, have too few packs
        for one step, packs of the next smaller shape are added to this step, so that the large packs are not dropped in
        every epoch.
    oversize
        What to do with graphs that are too large for any pack: "error", or "drop" (with a warning).
    replan_every
        None. Earlier versions made new plans in later epochs; use ``content="exchange"`` instead.

    Attributes
    ----------
    limits
        Limits that batches are padded to, with a cap on graphs: the given cap, or else the largest number of graphs in
        any pack of the plan. With several shapes, a tuple of limits, smallest first.
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
    The constructor and the order of each epoch need O(N) time and memory for N graphs, besides the time to make a plan.
    On several ranks, the order of P packs needs O(P log P) time. "exchange" needs O(N P k) time in each epoch for k
    components, P at most 2,000: about 0.5 s for 100,000 graphs. It is spent when the first batch is requested.

    With several packs per batch, one process and one shape, any two graphs can meet; see ``docs/explain/sampling.md``.

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
        oversize: str = "error",
        replan_every: None = None,
    ) -> None:
        super().__init__()
        with compared("its sampler", among_ranks=num_replicas is None and in_process_group()) as facts:
            self.shuffle = true_or_false("shuffle", shuffle, SamplerError)
            self.drop_last = true_or_false("drop_last", drop_last, SamplerError)
            check_no_replanning("settings", content, replan_every)
            shapes = as_shapes(limits)
            check_content(content, self.shuffle, shapes)
            self.packs_per_batch = whole_number("packs_per_batch", packs_per_batch, 1, error=SamplerError)
            self.num_replicas, self.rank = replicas(num_replicas, rank)
            self.seed = whole_number("seed", seed, 0, UINT64_MAX, SamplerError)
            histogram = sizes if isinstance(sizes, SizeHistogram) and sizes.graph_classes is not None else None
            sizes = sizes_of(sizes) if histogram is None else sizes
            number = len(sizes) if histogram is None else histogram.num_graphs
            with notice(f"preparing batches of {number:,} graphs", number):
                self._set_graphs(histogram or SizeHistogram.from_sizes(sizes), shapes, oversize)
                self.content = content or default_content(self._histogram, self.shuffle, shapes)
                self._set_plan(plan, shapes)
            if self.drop_last and not self._epochs.length:
                raise SamplerError(
                    f"drop_last=True would leave nothing: the plan has {self.plan.num_packs} packs, but a step "
                    f"needs {self.packs_per_batch} x {self.num_replicas}; use drop_last=False, fewer "
                    "packs_per_batch or smaller limits."
                )
            facts.update(self._settings(), plan=self.plan.fingerprint)

    def _set_graphs(self, every: SizeHistogram, limits: Limits | Buckets, oversize: str) -> None:
        # Group the kept ids by size class: class c has the ids _members[_class_offsets[c] : _class_offsets[c + 1]].
        histogram, kept, self.dropped_ids = split_oversize(every, limits, oversize)
        warn_of_dropped(self.dropped_ids, every.num_graphs, limits)
        assert histogram.graph_classes is not None
        # Ids are positions among all graphs, so the checksum covers all graphs; dropped graphs have the class -1.
        classes = np.full(every.num_graphs, -1, dtype="<i8")
        classes[kept] = histogram.graph_classes
        self._num_ids, self._num_graphs = every.num_graphs, len(kept)
        self._sizes_checksum = zlib.crc32(classes.data)
        # numpy sorts integers of 16 bits or fewer several times as fast as others.
        narrow = histogram.graph_classes.astype(np.min_scalar_type(len(histogram)))
        self._members: IntArray = kept[np.argsort(narrow, kind="stable")]
        self._class_offsets: IntArray = np.concatenate([[0], np.cumsum(histogram.counts)])
        self._histogram = histogram.without_ids()

    def _set_plan(self, plan: PackPlan | None, limits: Limits | Buckets) -> None:
        if plan is None:
            plan = pack(self._histogram, limits, seed=self.seed)
        else:
            check_plan(plan, self._histogram, limits)
        self._asked_limits = limits.filled(self._histogram.components, self._histogram.totals())
        static = static_limits(limits, [plan])
        self.limits: Any = static
        packs = Packs.of(plan, self._class_offsets)
        exchanged = None
        if self.content == "exchange" and isinstance(static, Limits):
            exchanged = ExchangedPacks(packs, static, self.seed)
        self._epochs = Epochs(
            packs, exchanged, self._members, self._class_offsets, self.seed, self.content, self.shuffle,
            self.packs_per_batch, self.num_replicas, self.drop_last,
        )  # fmt: skip

    def _unshuffled(self) -> PackBatchSampler:
        """Return a sampler with the same batches in each epoch: the packs of the plan, in its order."""
        sampler = copy.copy(self)
        sampler.shuffle, sampler.content = False, "fixed"
        sampler._counted = (-1, 0.0)
        sampler._set_plan(self.plan, self._asked_limits)
        return sampler

    @property
    def plan(self) -> PackPlan:
        """The plan. With "exchange", the packs of an epoch have its number and limits, but other sizes."""
        return self._epochs.packs.plan

    def __len__(self) -> int:
        """Return the number of batches in an epoch: equal on all ranks, and in all epochs."""
        return self._epochs.length

    def _batches(self, epoch: int) -> EpochBatches:
        return self._epochs.of_rank(epoch, self.rank)

    def _mean_of_batches(self, epoch: int, values: IntArray) -> float:
        return self._epochs.mean_of_batches(epoch, values)

    @property
    def _random(self) -> str:
        return "" if self.content == "fixed" else f"the content is {self.content!r}"

    def balance(self) -> Balance:
        """Return how evenly real nodes and edges are spread over the ranks in each step of the current epoch.

        Spread of a step: the largest work of a rank minus the smallest, divided by the mean work of a batch. Idle: the
        fraction of time that ranks wait for the slowest rank, if time is proportional to work.

        Examples
        --------
        >>> from dgl_tuplepack import GraphSizes, Limits
        >>> sizes = GraphSizes([[8, 8], [7, 7], [9, 9], [6, 6]])
        >>> PackBatchSampler(sizes, Limits(nodes=9, edges=9), num_replicas=2, rank=0).balance()
        Balance(2 steps of 2 ranks: spread of nodes + edges 13.33% on average, 13.33% at most; idle 6.25%)
        """
        # dealt: [S, R, p], see `Epochs.dealt`. work: real nodes + edges of each pack, [P].
        (dealt, _), work = self._epochs.dealt(self.epoch), self._epochs.packs_of(self.epoch).work
        return Balance(np.where(dealt == NONE, 0, work[dealt]).sum(axis=2))

    def _settings(self) -> dict[str, Any]:
        """Return, as plain values, the settings that, together with the plan, decide which graphs a batch holds."""
        return {
            "seed": self.seed,
            "content": self.content,
            "shuffle": self.shuffle,
            "packs_per_batch": self.packs_per_batch,
            "num_replicas": self.num_replicas,
            "drop_last": self.drop_last,
            "num_graphs": self._num_graphs,
            "limits": self._asked_limits.to_dict(),
            "sizes": self._sizes_checksum,
        }


_log = logging.getLogger(__name__)


def check_no_replanning(what: str, content: Any, replan_every: Any) -> None:
    """Raise SamplerError if `what`, which has these settings, would make new plans in later epochs."""
    if (isinstance(content, str) and content == "repack") or replan_every is not None:
        raise SamplerError(
            f"the {what} have content={content!r} and replan_every={replan_every!r}, but new plans in later epochs "
            "were removed; use content='exchange', which deals all graphs to packs in each epoch, without replan_every."
        )


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
    made_for = plan.made_for
    try:
        plan.check_limits(limits.largest if isinstance(limits, Buckets) else limits)
    except PlanError as error:
        raise PlanError(f"the plan was made for {made_for!r} and exceeds {limits!r}: {error}") from error
    if isinstance(limits, Buckets) != (plan.buckets is not None):
        raise PlanError(
            f"the plan was made for {made_for!r}, but the limits are {limits!r}: one of them has several shapes, "
            "the other a single one; make a plan for these limits."
        )
    if isinstance(limits, Buckets):
        buckets = limits.filled(histogram.components, histogram.totals())
        # For each pattern, the index of its shape in `buckets`; `plan.pattern_shapes`: in the plan's buckets.
        shapes = buckets.smallest_for(plan.pattern_contents, plan.pattern_graphs)
        other = np.flatnonzero(shapes != plan.pattern_shapes)
        if len(other):
            raise PlanError(
                f"the plan was made for {made_for!r}, where its pattern {other[0]} has shape "
                f"{plan.pattern_shapes[other[0]]}, but in {limits!r} it has shape {shapes[other[0]]}; make a plan for "
                "these shapes."
            )
