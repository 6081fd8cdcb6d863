"""Make the plan of each epoch, and expand it into packs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgl_tuplepack._core.kernels.slots import expand_patterns
from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.planning.buckets import Buckets
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing import pack
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

# Identifier of the random stream that seeds plans; the others are in `epochs.py`.
_PLAN_STREAM = 3


@dataclass(frozen=True)
class Packs:
    """A plan expanded into its packs.

    Pack p holds the graphs with the indices ``graphs[offsets[p]:offsets[p + 1]]`` and has ``work[p]`` real nodes and
    edges; ``shapes[p]`` is the index of its shape bucket. Graphs are indexed class by class; these indices are not ids.
    """

    plan: PackPlan
    offsets: IntArray
    graphs: IntArray
    work: FloatArray
    shapes: IntArray

    @classmethod
    def of(cls, plan: PackPlan, class_offsets: IntArray) -> Packs:
        """Expand a plan; graphs of size class c have the indices ``class_offsets[c]:class_offsets[c + 1]``."""
        offsets, graphs = expand_patterns(plan.offsets, plan.classes, plan.multiplicities, plan.repeats, class_offsets)
        # Use floats, since sums over components may exceed int64.
        work = np.repeat(plan.pattern_contents.sum(axis=1, dtype=np.float64), plan.repeats)
        return cls(plan, offsets, graphs, work, np.repeat(plan.pattern_shapes, plan.repeats))


class Plans:
    """The plans of a sampler's epochs; each plan depends only on the parameters and on the epoch.

    A period is `every` consecutive epochs that share one plan, or all epochs if `every` is None. `first` is the plan of
    the first period.
    """

    def __init__(
        self, histogram: SizeHistogram, class_offsets: IntArray, limits: Limits | Buckets, first: PackPlan,
        seed: int, every: int | None,
    ) -> None:  # fmt: skip
        self._histogram, self._class_offsets, self._limits = histogram, class_offsets, limits
        self._seed, self._every = seed, every
        self._first = Packs.of(first, class_offsets)
        # The index of the latest period, and its packs.
        self._latest: tuple[int, Packs] = (0, self._first)

    def of(self, epoch: int) -> Packs:
        """Return the packs of an epoch; make a plan unless it is the first or the latest one."""
        period = 0 if self._every is None else epoch // self._every
        if period == 0:
            return self._first
        if self._latest[0] != period:
            seed = int(key_of(self._seed, period % 2**64, _PLAN_STREAM))
            plan = pack(self._histogram, self._limits, seed=seed)
            self._latest = period, Packs.of(plan, self._class_offsets)
        return self._latest[1]
