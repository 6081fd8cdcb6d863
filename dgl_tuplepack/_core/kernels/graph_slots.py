"""The graph slot of each node or edge of a batch."""

from __future__ import annotations

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntVector, IntVector


@jit
def fill_graph_slots(counts: ConstIntVector, slots: IntVector, pointers: IntVector) -> int:
    """Write graph slot g ``counts[g]`` times into `slots`, and where each graph begins into `pointers` ``[G + 1]``.

    Returns how many entries the counts ask for, which is the last pointer too; where they ask for more than there are,
    the rest is not written.
    """
    pointers[0] = first = 0
    for g in range(len(counts)):
        last = first + max(counts[g], 0)
        slots[first:last] = g
        pointers[g + 1] = first = last
    return first
