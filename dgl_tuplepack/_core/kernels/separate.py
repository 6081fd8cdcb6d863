"""Exchange graphs between batches, so that no graph is twice in a batch."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.random import random_bits
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntMatrix, IntVector


@jit
def _holds(ids: ConstIntVector, first: int, end: int, graph: int) -> bool:
    held = False
    for i in range(first, end):
        held |= ids[i] == graph
    return held


@jit
def separate(
    ids: IntVector, offsets: ConstIntVector, sizes: ConstIntMatrix, limits: ConstIntVector, loads: IntMatrix,
    key: np.uint64, tries: int,
) -> int:  # fmt: skip
    """Exchange graphs that are twice in a batch with random graphs of other batches; return how many are left.

    Batch b holds ``ids[offsets[b]:offsets[b + 1]]``, with the total sizes ``loads[b]``. No batch that is within the
    `limits` exceeds them afterwards. Each graph has so many `tries`.
    """
    number, batches, components = len(ids), len(offsets) - 1, len(limits)
    counter, left = np.uint64(0), 0
    for b in range(batches):
        first, end = offsets[b], offsets[b + 1]
        for i in range(first + 1, end):
            graph = ids[i]
            if not _holds(ids, first, i, graph):
                continue
            left += 1
            for _ in range(tries):
                j = np.int64(random_bits(key, counter) % np.uint64(number))
                counter += np.uint64(1)
                other, theirs = ids[j], np.searchsorted(offsets, j, side="right") - 1
                if theirs == b or other == graph or _holds(ids, first, end, other):
                    continue
                fits = not _holds(ids, offsets[theirs], offsets[theirs + 1], graph)
                for d in range(components):
                    more = sizes[other, d] - sizes[graph, d]
                    fits = fits and (more <= 0 or loads[b, d] + more <= limits[d])
                    fits = fits and (more >= 0 or loads[theirs, d] - more <= limits[d])
                if fits:
                    for d in range(components):
                        more = sizes[other, d] - sizes[graph, d]
                        loads[b, d] += more
                        loads[theirs, d] -= more
                    ids[i], ids[j] = other, graph
                    left -= 1
                    break
    return left
