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
def _exchanged(
    i: int, j: int, ids: IntVector, offsets: ConstIntVector, first_packs: ConstIntVector, sizes: ConstIntMatrix,
    limits: ConstIntVector, loads: IntMatrix,
) -> bool:  # fmt: skip
    """Exchange two graphs of different batches, unless one would be twice in a batch, or a limit be exceeded."""
    pack, theirs = np.searchsorted(offsets, i, side="right") - 1, np.searchsorted(offsets, j, side="right") - 1
    b, c = np.searchsorted(first_packs, pack, side="right") - 1, np.searchsorted(first_packs, theirs, side="right") - 1
    graph, other = ids[i], ids[j]
    if b == c or _holds(ids, offsets[first_packs[b]], offsets[first_packs[b + 1]], other):
        return False
    fits = not _holds(ids, offsets[first_packs[c]], offsets[first_packs[c + 1]], graph)
    for d in range(len(limits)):
        more = sizes[other, d] - sizes[graph, d]
        fits = fits and (more <= 0 or loads[pack, d] + more <= limits[d])
        fits = fits and (more >= 0 or loads[theirs, d] - more <= limits[d])
    if fits:
        for d in range(len(limits)):
            more = sizes[other, d] - sizes[graph, d]
            loads[pack, d] += more
            loads[theirs, d] -= more
        ids[i], ids[j] = other, graph
    return fits


@jit
def separate(
    ids: IntVector, offsets: ConstIntVector, first_packs: ConstIntVector, sizes: ConstIntMatrix, limits: ConstIntVector,
    loads: IntMatrix, key: np.uint64, tries: int,
) -> int:  # fmt: skip
    """Exchange graphs that are twice in a batch with random graphs of other batches; return how many are left.

    Pack p holds ``ids[offsets[p]:offsets[p + 1]]``, with the total sizes ``loads[p]``; batch b has the packs
    ``first_packs[b]:first_packs[b + 1]``. No pack that is within the `limits` exceeds them afterwards. Each graph has
    so many `tries`. After each of them, another graph of the batch is exchanged if it can be, which makes room.
    """
    counter, left = np.uint64(0), 0
    for b in range(len(first_packs) - 1):
        first, end = offsets[first_packs[b]], offsets[first_packs[b + 1]]
        for i in range(first + 1, end):
            if not _holds(ids, first, i, ids[i]):
                continue
            left += 1
            for _ in range(tries):
                own = first + np.int64(random_bits(key, counter) % np.uint64(end - first))
                theirs = int(np.int64(random_bits(key, counter + np.uint64(1)) % np.uint64(len(ids))))
                others = int(np.int64(random_bits(key, counter + np.uint64(2)) % np.uint64(len(ids))))
                counter += np.uint64(3)
                done = _exchanged(i, theirs, ids, offsets, first_packs, sizes, limits, loads)
                if not done and _exchanged(own, others, ids, offsets, first_packs, sizes, limits, loads):
                    done = not _holds(ids, first, i, ids[i])
                if done:
                    left -= 1
                    break
    return left
