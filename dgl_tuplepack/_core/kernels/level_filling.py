"""Level filling: deal graphs to packs, largest graph first. Each graph goes to the pack with the most room."""

from __future__ import annotations

from typing import NamedTuple

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, FloatVector, IntMatrix, IntVector


class Packs(NamedTuple):
    """P packs being filled, with a heap that has the pack to fill next on top.

    `deal` changes `room` ``[P, d]``, the room left in each pack; `heap` ``[P]``, indices of packs; and `keys` ``[P]``.
    The key of a pack is the sum of its room over the components, weighted by `weights` ``[d]``.

    `cap` is the component in which every graph has the value 1, or -1 if there is none. If there is one, the key is
    divided by the room in this component; a pack without room in it gets the key -1.
    """

    room: IntMatrix
    heap: IntVector
    keys: FloatVector
    weights: FloatVector
    cap: int


@helper
def _sift_down(heap: IntVector, keys: FloatVector, length: int, at: int) -> None:
    """Move the pack at position `at` down to its place; the highest key comes first, then the lowest index."""
    pack = heap[at]
    while True:
        child = 2 * at + 1
        if child >= length:
            break
        if child + 1 < length:
            left, right = heap[child], heap[child + 1]
            if keys[right] > keys[left] or (keys[right] == keys[left] and right < left):
                child += 1
        other = heap[child]
        if keys[other] > keys[pack] or (keys[other] == keys[pack] and other < pack):
            heap[at] = other
            at = child
        else:
            break
    heap[at] = pack


@jit
def deal(sizes: ConstIntMatrix, items: ConstIntVector, packs: Packs, length: int, assigned: IntVector) -> int:
    """Deal graphs of the size classes `sizes` ``[C, d]`` to packs; return the new length of the heap.

    `items` ``[N]`` has the class of each graph, largest first. `length` is the number of packs in the heap. `assigned`
    ``[N]`` gets the pack of each graph, or -1 if the graph does not fit into the pack with the highest key, or the heap
    is empty.
    """
    room, heap, keys, weights, cap = packs
    components = sizes.shape[1]
    for item in range(len(items)):
        size = sizes[items[item]]
        assigned[item] = -1
        if length > 0:
            pack = heap[0]
            fits = True
            for component in range(components):
                fits = fits and size[component] <= room[pack, component]
            if fits:
                assigned[item] = pack
                key = 0.0
                for component in range(components):
                    room[pack, component] -= size[component]
                    key += weights[component] * room[pack, component]
                if cap >= 0:
                    key = key / room[pack, cap] if room[pack, cap] > 0 else -1.0
                keys[pack] = key
                # The pack holds as many graphs as the cap allows.
                if key < 0:
                    length -= 1
                    heap[0] = heap[length]
                _sift_down(heap, keys, length, 0)
    return length
