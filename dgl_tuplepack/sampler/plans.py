"""The plan of each epoch, written out as packs; the next one is made ahead of time."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dgl_tuplepack._random import key_of
from dgl_tuplepack.buckets import Buckets
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.kernels.slots import expand_patterns
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing import pack
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.sizes import FloatArray, IntArray

# A plan for a few epochs is worth less search than one for all of them.
_EFFORT = 0.1

# The purpose of the random stream that seeds plans; those of the others are in `batches`.
_TIES = 3


@dataclass(frozen=True)
class Packs:
    """A plan written out, pack by pack.

    Pack p holds the graphs ``graphs[offsets[p]:offsets[p + 1]]``, numbered in the order of size classes, and has
    ``work[p]`` real nodes and edges; ``shapes[p]`` is the number of its shape bucket.
    """

    plan: PackPlan
    offsets: IntArray
    graphs: IntArray
    work: FloatArray
    shapes: IntArray

    @classmethod
    def of(cls, plan: PackPlan, class_offsets: IntArray) -> Packs:
        """Write a plan out; graphs of size class c are numbered ``class_offsets[c]:class_offsets[c + 1]``."""
        offsets, graphs = expand_patterns(plan.offsets, plan.classes, plan.multiplicities, plan.repeats, class_offsets)
        # Floats: sums over components may exceed int64, and are only compared.
        work = np.repeat(plan.pattern_contents.sum(axis=1, dtype=np.float64), plan.repeats)
        return cls(plan, offsets, graphs, work, np.repeat(plan.pattern_shapes, plan.repeats))


class Plans:
    """Plans of a sampler's epochs; each is a function of these parameters and the epoch.

    Graphs of size class c are numbered ``class_offsets[c]:class_offsets[c + 1]``. `every` epochs share a plan; None:
    all of them do. `first` is the plan of the first epochs; `limits` and `seed` are those of later plans.
    """

    def __init__(
        self, histogram: SizeHistogram, class_offsets: IntArray, limits: Limits | Buckets, first: PackPlan,
        seed: int, every: int | None,
    ) -> None:  # fmt: skip
        self._histogram, self._class_offsets, self._limits = histogram, class_offsets, limits
        self._seed, self._every = seed, every
        self._first = Packs.of(first, class_offsets)
        # The latest plan beside the first, which every training begins with.
        self._latest: tuple[int, Packs] = (0, self._first)
        self._coming: _Coming | None = None

    def of(self, epoch: int) -> Packs:
        """Packs of an epoch; makes its plan, or waits for the thread that does, where it is not kept."""
        period = self._period(epoch)
        if period == 0:
            return self._first
        if self._latest[0] != period:
            coming, self._coming = self._coming, None
            packs = coming.packs() if coming is not None and coming.period == period else self._make(period)
            self._latest = period, packs
        return self._latest[1]

    def prepare(self, epoch: int) -> None:
        """Start a thread that makes the plan of the next epoch, if that is another plan."""
        period = self._period(epoch + 1)
        if period in (self._period(epoch), self._latest[0]) or (self._coming and self._coming.period == period):
            return
        self._coming = _Coming(self, period)

    def _period(self, epoch: int) -> int:
        return 0 if self._every is None else epoch // self._every

    def _make(self, period: int) -> Packs:
        seed = key_of(self._seed, period % 2**64, _TIES)
        return Packs.of(pack(self._histogram, self._limits, seed=int(seed), effort=_EFFORT), self._class_offsets)

    def __getstate__(self) -> dict[str, Any]:
        # A thread cannot be pickled; the copy makes the plan when it needs it.
        return {**self.__dict__, "_coming": None}


class _Coming:
    """Packs of a period, which a thread makes."""

    # A child that is forked while a thread holds a lock may wait for that lock for ever.
    _all: ClassVar[weakref.WeakSet[_Coming]] = weakref.WeakSet()

    def __init__(self, plans: Plans, period: int) -> None:
        self.period = period
        self._packs: Packs | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._make, args=(plans,), name="tuplepack-plan")
        self._all.add(self)
        self._thread.start()

    def _make(self, plans: Plans) -> None:
        try:
            self._packs = plans._make(self.period)
        except BaseException as error:
            self._error = error

    def packs(self) -> Packs:
        """Wait for the packs; raise the error of the thread, if it had one."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._packs is not None
        return self._packs

    @classmethod
    def wait_for_all(cls) -> None:
        """Wait until no thread makes a plan."""
        for coming in list(cls._all):
            if coming._thread is not threading.current_thread():
                coming._thread.join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_Coming.wait_for_all)
