"""The graph slot of each node or edge of a batch."""

from __future__ import annotations

from dgl_tuplepack.kernels._jit import jit
from dgl_tuplepack.kernels.types import ConstIntVector, IntVector


@jit
def fill_graph_slots(counts: ConstIntVector, slots: IntVector) -> int:
    """Write graph slot g ``counts[g]`` times into `slots`, one after the other.

    Returns how many entries the counts ask for; where they ask for more than there are, the rest is not written.
    """
    first = 0
    for g in range(len(counts)):
        last = first + max(counts[g], 0)
        slots[first:last] = g
        first = last
    return first


@jit
def fill_slots_and_pointers(counts: ConstIntVector, slots: IntVector, pointers: IntVector) -> int:
    """As `fill_graph_slots`, and write where each graph begins, and where the last one ends, to `pointers`."""
    pointers[0] = first = 0
    for g in range(len(counts)):
        last = first + max(counts[g], 0)
        slots[first:last] = g
        pointers[g + 1] = first = last
    return first
