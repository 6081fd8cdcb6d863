"""The graph slot of each node or edge of a batch."""

from __future__ import annotations

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntVector, IntVector


@jit
def fill_graph_slots(counts: ConstIntVector, slots: IntVector, pointers: IntVector) -> int:
    """Write each graph slot g ``counts[g]`` times into `slots`, and its first position into ``pointers[g]``.

    The last pointer, which is returned, is the sum of the counts; the caller must compare it with ``len(slots)``, since
    users can change the counts. Negative counts are treated as 0, and nothing is written beyond the end of `slots`.
    """
    pointers[0] = start = 0
    for g in range(len(counts)):
        end = start + max(counts[g], 0)
        slots[start:end] = g
        pointers[g + 1] = start = end
    return start
