"""The graph slot of each node or edge of a batch."""

from __future__ import annotations

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntVector, IntVector


@jit
def fill_graph_slots(counts: ConstIntVector, slots: IntVector, pointers: IntVector) -> int:
    """Write the index g of each graph slot ``counts[g]`` times into `slots`, one graph slot after the other.

    Write into ``pointers[g]`` the position in `slots` where graph slot g begins, and into the last entry the sum of the
    counts; return this sum. The caller must compare it with the length of `slots`, since users can change the counts.
    Negative counts are treated as 0, and nothing is written beyond the end of `slots`.
    """
    pointers[0] = start = 0
    for g in range(len(counts)):
        end = start + max(counts[g], 0)
        slots[start:end] = g
        pointers[g + 1] = start = end
    return start
