"""Expand the patterns of a plan into packs that hold indices of graphs."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntVector, IntVector


@jit
def expand_patterns(
    offsets: ConstIntVector,
    classes: ConstIntVector,
    multiplicities: ConstIntVector,
    repeats: ConstIntVector,
    class_offsets: ConstIntVector,
) -> tuple[IntVector, IntVector]:
    """Expand the patterns of a plan into all packs of the plan.

    Pattern q has the entries ``offsets[q]:offsets[q + 1]`` and ``repeats[q]`` packs. Each of these packs holds, for
    entry e, ``multiplicities[e]`` graphs of size class ``classes[e]``.

    The graphs of size class c have the indices ``class_offsets[c]:class_offsets[c + 1]``, and are put into packs in
    ascending order. The caller must check that the packs of the plan together hold exactly
    ``class_offsets[c + 1] - class_offsets[c]`` graphs of each class c.

    Return `pack_offsets` ``[P + 1]`` and `graphs` ``[N]``: pack p holds the graphs with the indices
    ``graphs[pack_offsets[p]:pack_offsets[p + 1]]``.
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
