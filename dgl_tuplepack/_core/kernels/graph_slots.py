"""The graph slot of each node or edge of a batch."""

from __future__ import annotations

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntVector, IntVector


@jit
def fill_graph_slots(counts: ConstIntVector, slots: IntVector, pointers: IntVector) -> int:
    """Write graph slot g ``counts[g]`` times into `slots`, and the start of each graph into `pointers` ``[G + 1]``.

    Return the sum of the counts, which is also the last pointer. If it exceeds the length of `slots`, entries beyond
    that length are not written.
    """
    pointers[0] = first = 0
    for g in range(len(counts)):
        last = first + max(counts[g], 0)
        slots[first:last] = g
        pointers[g + 1] = first = last
    return first
