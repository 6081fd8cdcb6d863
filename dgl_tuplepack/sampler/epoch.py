"""Plans written out as packs, and the batches of one rank in one epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgl_tuplepack.kernels.slots import expand_patterns
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.sampler.dealing import NONE, FloatArray
from dgl_tuplepack.sizes import IntArray


@dataclass(frozen=True)
class Packs:
    """Every pack of a plan.

    Parameters
    ----------
    plan
        What is written out.
    offsets, slots
        int64 ``[P + 1]`` and ``[N]``: pack p holds the slots ``slots[offsets[p]:offsets[p + 1]]``, numbers of
        graphs sorted by size class.
    work
        Real nodes and edges of each pack, float64 ``[P]``.
    """

    plan: PackPlan
    offsets: IntArray
    slots: IntArray
    work: FloatArray

    @classmethod
    def of(cls, plan: PackPlan, class_offsets: IntArray) -> Packs:
        """Write a plan out; the graphs of size class c are numbered ``class_offsets[c]:class_offsets[c + 1]``."""
        offsets, slots = expand_patterns(
            plan.offsets, plan.classes, plan.multiplicities, plan.repeats, class_offsets
        )  # fmt: skip
        # Floats: sums over components may exceed int64, and only compare.
        work = np.repeat(plan.pattern_contents.sum(axis=1, dtype=np.float64), plan.repeats)
        return cls(plan, offsets, slots, work)


@dataclass(frozen=True)
class EpochBatches:
    """Batches of graph ids of one rank.

    Parameters
    ----------
    epoch
        Which one.
    packs
        What the batches are made of.
    graphs
        Graph in each slot of the packs, int64 ``[N]``.
    dealt
        Packs of each batch, int64 ``[S, p]``; NONE where there is no pack.
    """

    epoch: int
    packs: Packs
    graphs: IntArray
    dealt: IntArray

    def __len__(self) -> int:
        return len(self.dealt)

    def __getitem__(self, step: int) -> list[int]:
        offsets = self.packs.offsets
        packs = [p for p in self.dealt[step].tolist() if p != NONE]
        return [graph for p in packs for graph in self.graphs[offsets[p] : offsets[p + 1]].tolist()]
