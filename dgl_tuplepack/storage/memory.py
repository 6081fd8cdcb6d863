"""The memory of a padded batch: one stretch for each dtype, or one for each tensor.

A stretch is allocated, sent and freed as a whole. Layers that free the storage of their input need one stretch for
each tensor.
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

# In bytes. JAX uses memory without a copy only at such addresses; torch allocates at them too.
ALIGNMENT = 64
# Allocate on the CPU, whatever the default device is: compiled code writes to this memory.
_CPU = torch.device("cpu")
# Reuse stretches of at least this many bytes: the allocator may return such memory to the system each time, and
# fetching new pages costs more than filling them.
_LARGE = 2**18
# At most this many stretches wait to be reused: a loop holds one batch while it gets the next.
_WAITING = 2


@dataclass(frozen=True)
class Field:
    """One tensor: its content, dtype and shape, the number of its stretch of memory, and the byte where it begins."""

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
    """Return the fields of all tensors of a batch: tensors of one dtype share a stretch, unless `separate`.

    Each tensor begins at a multiple of `ALIGNMENT` bytes. Only destinations directly follow their sources: both
    together are PyG's `edge_index`.
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


# Key of a tensor in a stretch, and its shape, or None if it has one axis.
_Piece = tuple[Key, tuple[int, ...] | None]


class _Loan:
    """Memory that returns to the list `free` when its last tensor is deleted."""

    def __init__(self, memory: Array, free: list[Array]) -> None:
        self._memory, self._free = memory, free
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        if len(self._free) < _WAITING:
            self._free.append(self._memory)


class BatchMemory:
    """Provide memory for batches: the memory of deleted batches, or new memory.

    With `separate`, each tensor gets new memory, since layers may free it.
    """

    def __init__(self, fields: list[Field], separate: bool = False) -> None:
        # For each stretch: its dtype, its number of values, the lengths of its pieces, and their keys and shapes, or
        # None for a gap between tensors.
        self._stretches: list[tuple[torch.dtype, int, list[int], list[_Piece | None]]] = []
        for _, group in itertools.groupby(fields, lambda field: field.stretch):
            run = list(group)
            lengths: list[int] = []
            pieces: list[_Piece | None] = []
            for field, following in itertools.zip_longest(run, run[1:]):
                lengths.append(field.length)
                pieces.append((field.key, field.shape if len(field.shape) > 1 else None))
                # A gap between two tensors is a piece too.
                if following and (gap := (following.first - field.first) // field.dtype.itemsize - field.length):
                    lengths.append(gap)
                    pieces.append(None)
            self._stretches.append((run[0].dtype, sum(lengths), lengths, pieces))
        # For each stretch: memory of deleted batches, or None if new memory is allocated each time.
        self._free: list[list[Array] | None] = [
            None if separate or number * dtype.itemsize < _LARGE else [] for dtype, number, _, _ in self._stretches
        ]

    def take(self) -> tuple[IntArray, Mapping[Key, Tensor]]:
        """Return the address of each stretch, int64, and new tensors by key, which keep the stretches alive."""
        memory = [
            torch.empty(number, dtype=dtype, device=_CPU) if free is None else _lent(free, number, dtype)
            for (dtype, number, _, _), free in zip(self._stretches, self._free, strict=True)
        ]
        tensors = {}
        for stretch, (_, _, lengths, pieces) in zip(memory, self._stretches, strict=True):
            # "Unsafe": for autograd, changing one tensor in place does not change the others.
            for named, piece in zip(pieces, torch.unsafe_split_with_sizes(stretch, lengths), strict=True):
                if named is not None:
                    key, shape = named
                    tensors[key] = piece if shape is None else piece.view(*shape)
        return np.array([stretch.data_ptr() for stretch in memory], np.int64), tensors


def _lent(free: list[Array], number: int, dtype: torch.dtype) -> Tensor:
    """Return a tensor of `number` values, in memory from the list `free`, or in new memory if the list is empty."""
    try:
        memory = free.pop()
    except IndexError:
        memory = torch.empty(number * dtype.itemsize, dtype=torch.uint8, device=_CPU).numpy()
    return torch.from_numpy(np.asarray(_Loan(memory, free))).view(dtype)
