"""Find graphs in the segments of stores by their ids. Ids come from users, and offsets from files: both are checked."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.address import pointer_at, prefetch
from dgl_tuplepack._core.kernels.types import ConstIntVector, IntCube, IntVector, array_type

# For one type and one segment: the address of the offsets, int64 ``[graphs + 1]``, and the number of rows. Graph g of
# the segment has the rows ``offsets[g]:offsets[g + 1]``.
OFFSETS = np.dtype([("address", np.int64), ("rows", np.int64)])
Offsets = Annotated[NDArray[Any], array_type(OFFSETS, 2, const=True)]


@jit
def find_graphs(
    ids: ConstIntVector, chosen: ConstIntVector, first_ids: ConstIntVector, subset: int, offsets: Offsets,
    segments: IntVector, rows: IntCube, totals: IntVector
) -> int:  # fmt: skip
    """Find the rows of n graphs in S segments, for each of T node types and edge types.

    Segment s holds the graphs ``first_ids[s]:first_ids[s + 1]``; `offsets` is ``[T, S]``. An id is the index of a
    graph; if `subset` is 1, id i stands for graph ``chosen[i]``, which is not checked. Write the segment of each graph
    to `segments` ``[n]``, and to ``rows[t]`` ``[3, n]`` its first row in its segment, its number of rows, and its first
    row in the batch; write the number of rows of all graphs to ``totals[t]``. The last type is for labels, a row per
    graph.

    Return 0; or -1 - i if ``ids[i]`` is not valid; or 1 + t * n + i if graph i has impossible offsets of type t.
    """
    number, most, last = len(ids), len(chosen) if subset else first_ids[-1], len(offsets)
    for i in range(number):
        if ids[i] < 0 or ids[i] >= most:
            return -1 - i
        graph = chosen[ids[i]] if subset else ids[i]
        segment, end = 0, len(first_ids)
        while end - segment > 1:
            middle = (segment + end) >> 1
            if first_ids[middle] <= graph:
                segment = middle
            else:
                end = middle
        segments[i] = segment
        row = graph - first_ids[segment]
        rows[last, 0, i], rows[last, 1, i], rows[last, 2, i] = row, 1, i
        for t in range(last):
            prefetch(offsets[t, segment]["address"] + row * 8, 16)
    totals[last] = number
    for t in range(last):
        total = 0
        for i in range(number):
            stored, row = offsets[t, segments[i]], rows[last, 0, i]
            pair = carray(pointer_at(stored["address"] + row * 8, np.int64), 2)
            if pair[0] < 0 or pair[1] < pair[0] or pair[1] > stored["rows"]:
                return 1 + t * number + i
            rows[t, 0, i], rows[t, 1, i], rows[t, 2, i] = pair[0], pair[1] - pair[0], total
            total += pair[1] - pair[0]
            # A negative sum has overflowed.
            if total < 0:
                return 1 + t * number + i
        totals[t] = total
    return 0
