"""Expand the patterns of a plan into packs that hold indices of graphs."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntVector, IntVector


@jit
def expand_patterns(
    offsets: ConstIntVector, classes: ConstIntVector, multiplicities: ConstIntVector, repeats: ConstIntVector,
    class_offsets: ConstIntVector
) -> tuple[IntVector, IntVector]:  # fmt: skip
    """Expand the patterns of a plan (see `planning.plan.Patterns`) into packs.

    The graphs of size class c have the indices ``class_offsets[c]:class_offsets[c + 1]``, and are put into packs in
    ascending order; the caller must check that packs hold exactly this many. Return `pack_offsets` ``[P + 1]`` and
    `graphs` ``[N]``: pack p holds the graphs ``graphs[pack_offsets[p]:pack_offsets[p + 1]]``.
    """
    packs, total = 0, 0
    for pattern in range(len(repeats)):
        packs += repeats[pattern]
        for entry in range(offsets[pattern], offsets[pattern + 1]):
            total += repeats[pattern] * multiplicities[entry]
    pack_offsets = np.zeros(packs + 1, dtype=np.int64)
    graphs = np.empty(total, dtype=np.int64)
    # following[c]: the next graph of size class c to put into a pack.
    following = class_offsets.copy()
    pack, position = 0, 0
    for pattern in range(len(repeats)):
        for _ in range(repeats[pattern]):
            for entry in range(offsets[pattern], offsets[pattern + 1]):
                size_class = classes[entry]
                for _ in range(multiplicities[entry]):
                    graphs[position] = following[size_class]
                    following[size_class] += 1
                    position += 1
            pack += 1
            pack_offsets[pack] = position
    return pack_offsets, graphs
