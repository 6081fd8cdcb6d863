"""Next fit over single graphs: close a pack as soon as the next graph does not fit."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntVector


@jit
def next_fit_offsets(sizes: ConstIntMatrix, items: ConstIntVector, limits: ConstIntVector, cap: int) -> IntVector:
    """Return offsets, int64 ``[P + 1]``: pack p holds ``items[offsets[p]:offsets[p + 1]]``, at most `cap` graphs.

    `items` ``[N]``, N >= 1, has the size class of each graph; each size is within `limits` ``[k]``.
    """
    k = sizes.shape[1]
    offsets = np.zeros(len(items) + 1, dtype=np.int64)
    content = np.zeros(k, dtype=np.int64)
    # `packs`: the number of closed packs. `content` and `graphs` are for the open pack.
    packs, graphs = 0, 0
    for position in range(len(items)):
        size = sizes[items[position]]
        fits = graphs < cap
        for component in range(k):
            fits = fits and size[component] <= limits[component] - content[component]
        if not fits:
            packs += 1
            offsets[packs] = position
            content[:] = 0
            graphs = 0
        content += size
        graphs += 1
    offsets[packs + 1] = len(items)
    return offsets[: packs + 2].copy()
