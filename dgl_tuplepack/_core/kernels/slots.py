"""Expand patterns to packs of numbered slots, which a sampler fills with graphs."""

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
    """Expand the patterns of a plan to all of its packs.

    Return pack offsets ``[P + 1]`` and slots ``[N]``. The graphs of size class c are numbered
    ``class_offsets[c]:class_offsets[c + 1]``, and every slot gets the next number of its class. The caller must check
    that the patterns hold each class exactly that often.
    """
    packs, total = 0, 0
    for pattern in range(len(repeats)):
        packs += repeats[pattern]
        for entry in range(offsets[pattern], offsets[pattern + 1]):
            total += repeats[pattern] * multiplicities[entry]
    pack_offsets = np.zeros(packs + 1, dtype=np.int64)
    slots = np.empty(total, dtype=np.int64)
    following = class_offsets.copy()
    pack, slot = 0, 0
    for pattern in range(len(repeats)):
        for _ in range(repeats[pattern]):
            for entry in range(offsets[pattern], offsets[pattern + 1]):
                size_class = classes[entry]
                for _ in range(multiplicities[entry]):
                    slots[slot] = following[size_class]
                    following[size_class] += 1
                    slot += 1
            pack += 1
            pack_offsets[pack] = slot
    return pack_offsets, slots
