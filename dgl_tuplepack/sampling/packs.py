"""Expand a plan into its packs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgl_tuplepack._core.kernels.slots import expand_patterns
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import FloatArray, IntArray


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
