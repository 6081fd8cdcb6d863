"""The plan of each epoch, the next one made ahead of time."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, ClassVar

import numpy as np

from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.kernels.random import derive_key
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing import pack
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.sampler.epoch import Packs
from dgl_tuplepack.sizes import IntArray

# A plan for a few epochs is worth less search than one for all of them.
_EFFORT = 0.1

# The purpose of the stream of random numbers that plans begin with; the others are in `batches`.
_TIES = 3


class Plans:
    """Plans of a sampler's epochs, a function of what is given and of the epoch.

    Parameters
    ----------
    histogram, class_offsets
        What is packed, and where the graphs of each size class begin in their order by class.
    limits
        What all plans but the first keep.
    first
        Plan of the first epochs.
    seed
        Of the sampler.
    every
        Epochs that share a plan; None: all of them.
    """

    def __init__(
        self, histogram: SizeHistogram, class_offsets: IntArray, limits: Limits, first: PackPlan, seed: int,
        every: int | None,
    ) -> None:  # fmt: skip
        self._histogram, self._class_offsets, self._limits = histogram, class_offsets, limits
        self._seed, self._every = seed, every
        self._first = Packs.of(first, class_offsets)
        # The latest plan beside the first, which every training begins with.
        self._latest: tuple[int, Packs] = (0, self._first)
        self._coming: _Coming | None = None

    def of(self, epoch: int) -> Packs:
        """What is packed in an epoch; a plan is made if it is not at hand."""
        period = self._period(epoch)
        if period == 0:
            return self._first
        if self._latest[0] != period:
            coming, self._coming = self._coming, None
            found = coming.packs() if coming is not None and coming.period == period else self._made(period)
            self._latest = period, found
        return self._latest[1]

    def prepare(self, epoch: int) -> None:
        """Begin with the plan of the next epoch, in a thread of its own, if it is another one."""
        period = self._period(epoch + 1)
        if period in (self._period(epoch), self._latest[0]) or (self._coming and self._coming.period == period):
            return
        self._coming = _Coming(self, period)

    def _period(self, epoch: int) -> int:
        return 0 if self._every is None else epoch // self._every

    def _made(self, period: int) -> Packs:
        seed = derive_key(np.uint64(self._seed), np.uint64(period % 2**64), np.uint64(_TIES))
        return Packs.of(pack(self._histogram, self._limits, seed=int(seed), effort=_EFFORT), self._class_offsets)

    def __getstate__(self) -> dict[str, Any]:
        # Threads stay behind; who needs the plan makes it.
        return {**self.__dict__, "_coming": None}


class _Coming:
    """Packs of a period that a thread is making."""

    # A child that is forked while another thread holds a lock may wait for it for ever.
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
            self._packs = plans._made(self.period)
        except BaseException as error:
            self._error = error

    def packs(self) -> Packs:
        """Wait for the packs; raise what making them raised."""
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
