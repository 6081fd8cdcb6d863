"""The memory of a padded batch: one stretch for each dtype, sent and freed as one piece, or one for each tensor.

Layers that free the storage of their input need a stretch for each tensor.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack.batches.layout import Key
from dgl_tuplepack.batches.shape import PaddedShape
from dgl_tuplepack.graphs.blocks import ENDS, Array
from dgl_tuplepack.planning.sizes import IntArray

# Bytes. JAX needs this alignment to use memory without a copy; torch allocates at such addresses too.
ALIGNMENT = 64
# Whatever the default device is: compiled code writes there.
_CPU = torch.device("cpu")
# Stretches of at least this many bytes are reused: the allocator may return such memory to the system each time, and
# fetching new pages costs more than filling them.
_LARGE = 2**18
# Stretches that wait for the next batch; a loop holds one batch while it gets another.
_WAITING = 2


@dataclass(frozen=True)
class Field:
    """One tensor: its content, dtype and shape, the number of its stretch of memory, and its first byte there."""

    key: Key
    dtype: torch.dtype
    shape: tuple[int, ...]
    stretch: int = 0
    first: int = 0

    @property
    def length(self) -> int:
        """Number of values."""
        return prod(self.shape)


def fields_of(shape: PaddedShape, separate: bool = False) -> list[Field]:
    """Place all tensors of a batch: tensors of one dtype share a stretch, unless `separate`.

    Each begins at a multiple of `ALIGNMENT` bytes, except for destinations, which lie directly behind their sources:
    both together are the `edge_index` of PyG.
    """
    fields = [Field(key, *spec) for key, spec in shape.layout.items()]
    fields.sort(key=lambda field: str(field.dtype))
    placed: list[Field] = []
    stretch = first = 0
    for field in fields:
        if placed and (separate or field.dtype != placed[-1].dtype):
            stretch, first = stretch + 1, 0
        placed.append(replace(field, stretch=stretch, first=first))
        first += field.length * field.dtype.itemsize
        if field.key[0] != ENDS[0]:
            first = -(-first // ALIGNMENT) * ALIGNMENT
    return placed


# Key of a tensor in a stretch, and its shape unless it is flat.
_Piece = tuple[Key, tuple[int, ...] | None]


class _Loan:
    """Memory that goes back to `free` when the last tensor in it is gone."""

    def __init__(self, memory: Array, free: list[Array]) -> None:
        self._memory, self._free = memory, free
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        if len(self._free) < _WAITING:
            self._free.append(self._memory)


class BatchMemory:
    """Hands out memory for batches: of batches that are gone, or new.

    Tensors that are `separate` get new memory each, since layers may free it.
    """

    def __init__(self, fields: list[Field], separate: bool = False) -> None:
        # For each stretch: dtype, number of values, lengths of its pieces, and their keys and shapes; None as the shape
        # of flat ones.
        self._stretches: list[tuple[torch.dtype, int, list[int], list[_Piece | None]]] = []
        for _, group in itertools.groupby(fields, lambda field: field.stretch):
            run = list(group)
            lengths: list[int] = []
            pieces: list[_Piece | None] = []
            for field, following in itertools.zip_longest(run, run[1:]):
                lengths.append(field.length)
                pieces.append((field.key, field.shape if len(field.shape) > 1 else None))
                # What lies between two tensors is a piece too.
                if following and (gap := (following.first - field.first) // field.dtype.itemsize - field.length):
                    lengths.append(gap)
                    pieces.append(None)
            self._stretches.append((run[0].dtype, sum(lengths), lengths, pieces))
        # Memory of batches that are gone, for each stretch; None for stretches that are allocated each time.
        self._free: list[list[Array] | None] = [
            None if separate or number * dtype.itemsize < _LARGE else [] for dtype, number, _, _ in self._stretches
        ]

    def take(self) -> tuple[IntArray, Mapping[Key, Tensor]]:
        """Return the addresses of the stretches, int64, and new tensors in them, which keep them alive."""
        memory = [
            torch.empty(number, dtype=dtype, device=_CPU) if free is None else _lent(free, number, dtype)
            for (dtype, number, _, _), free in zip(self._stretches, self._free, strict=True)
        ]
        tensors = {}
        for stretch, (_, _, lengths, pieces) in zip(memory, self._stretches, strict=True):
            # "Unsafe": changing one in place does not count as a change of the others, as autograd sees it.
            for named, piece in zip(pieces, torch.unsafe_split_with_sizes(stretch, lengths), strict=True):
                if named is not None:
                    key, shape = named
                    tensors[key] = piece if shape is None else piece.view(*shape)
        return np.array([stretch.data_ptr() for stretch in memory], np.int64), tensors


def _lent(free: list[Array], number: int, dtype: torch.dtype) -> Tensor:
    """Return memory for `number` values, which waits in `free` or is new."""
    try:
        memory = free.pop()
    except IndexError:
        memory = torch.empty(number * dtype.itemsize, dtype=torch.uint8, device=_CPU).numpy()
    return torch.from_numpy(np.asarray(_Loan(memory, free))).view(dtype)
