"""Deal graphs, largest first, to the pack with the most room for each graph that it can still take."""

from __future__ import annotations

from typing import NamedTuple

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, FloatVector, IntMatrix, IntVector


class Packs(NamedTuple):
    """P packs being filled.

    `room` ``[P, d]``, `heap` ``[P]`` (their numbers) and `levels` ``[P]`` change. The level of a pack is its room,
    counted by `weights` ``[d]``. Where every graph counts 1 in the component `cap`, it is the room for each graph that
    still fits; without such a component, `cap` is -1.
    """

    room: IntMatrix
    heap: IntVector
    levels: FloatVector
    weights: FloatVector
    cap: int


@jit
def _sift_down(heap: IntVector, levels: FloatVector, length: int, at: int) -> None:
    """Restore the heap (highest level first, then lowest pack) below one place."""
    pack = heap[at]
    while True:
        child = 2 * at + 1
        if child >= length:
            break
        if child + 1 < length:
            left, right = heap[child], heap[child + 1]
            if levels[right] > levels[left] or (levels[right] == levels[left] and right < left):
                child += 1
        other = heap[child]
        if levels[other] > levels[pack] or (levels[other] == levels[pack] and other < pack):
            heap[at] = other
            at = child
        else:
            break
    heap[at] = pack


@jit
def deal(sizes: ConstIntMatrix, items: ConstIntVector, packs: Packs, length: int, assigned: IntVector) -> int:
    """Deal items of the size classes `sizes` ``[C, d]``; return the length of the heap after them.

    `items` ``[N]`` are the classes, largest first; `length` is the number of packs in the heap, which may take more;
    `assigned` ``[N]`` gets the pack of each item, -1 where the pack of the highest level had no room.
    """
    room, heap, levels, weights, cap = packs
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
                level = 0.0
                for component in range(components):
                    room[pack, component] -= size[component]
                    level += weights[component] * room[pack, component]
                if cap >= 0:
                    level = level / room[pack, cap] if room[pack, cap] > 0 else -1.0
                levels[pack] = level
                if level < 0:
                    length -= 1
                    heap[0] = heap[length]
                if length > 0:
                    _sift_down(heap, levels, length, 0)
    return length
