"""The memory of a padded batch: one stretch of memory for each dtype, or one stretch for each tensor.

A stretch is allocated, sent to a device and freed as a whole. If a layer frees the storage of its input, each tensor
needs a stretch of its own.
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

# Tensors begin at multiples of this many bytes, as in memory that torch allocates: JAX would copy other tensors.
ALIGNMENT = 64
# Allocate on the CPU, whatever the default device is: compiled code writes to this memory.
_CPU = torch.device("cpu")
# Stretches of at least this many bytes are reused: fetching new pages from the system costs more than filling them.
_LARGE = 2**18
# For each stretch, the memory of at most this many deleted batches is kept: a training loop holds one batch while it
# gets the next batch.
_WAITING = 2


@dataclass(frozen=True)
class Field:
    """One tensor: its key, dtype and shape, the index of its stretch of memory, and its first byte in that stretch.

    The key is as in `batches.layout`: content, type of the rows and, for a feature or label, its name.
    """

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
    """Return the fields of all tensors of a batch. Tensors of one dtype share a stretch, unless `separate`.

    Each tensor begins at a multiple of `ALIGNMENT` bytes. The exception: in a shared stretch, destinations directly
    follow their sources, so that sources and destinations together are PyG's `edge_index`.
    """
    fields = [Field(key, *spec) for key, spec in shape.layout.items()]
    # The sort is stable: destinations still follow their sources.
    fields.sort(key=lambda field: str(field.dtype))
    placed: list[Field] = []
    stretch = first = 0
    for field in fields:
        if placed and (separate or field.dtype != placed[-1].dtype):
            stretch, first = stretch + 1, 0
        placed.append(replace(field, stretch=stretch, first=first))
        first += field.length * field.dtype.itemsize
        # Round up, except after sources.
        if field.key[0] != ENDS[0]:
            first = -(-first // ALIGNMENT) * ALIGNMENT
    return placed


# The key of a tensor in a stretch, and the shape of the tensor; None instead of a shape with one axis.
_Piece = tuple[Key, tuple[int, ...] | None]


class _Loan:
    """Memory on loan to a batch: it returns to the list `free` when the last tensor that uses it is deleted."""

    def __init__(self, memory: Array, free: list[Array]) -> None:
        self._memory, self._free = memory, free
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        if len(self._free) < _WAITING:
            self._free.append(self._memory)


class BatchMemory:
    """Provide memory for batches: the memory of deleted batches, or new memory; always new memory if `separate`."""

    def __init__(self, fields: list[Field], separate: bool = False) -> None:
        # For each stretch: its dtype, its number of values, the number of values in each piece, and the pieces. A piece
        # is a tensor or, if it is None, a gap between two tensors.
        self._stretches: list[tuple[torch.dtype, int, list[int], list[_Piece | None]]] = []
        for _, group in itertools.groupby(fields, lambda field: field.stretch):
            in_stretch = list(group)
            lengths: list[int] = []
            pieces: list[_Piece | None] = []
            for field, following in itertools.zip_longest(in_stretch, in_stretch[1:]):
                lengths.append(field.length)
                pieces.append((field.key, field.shape if len(field.shape) > 1 else None))
                if following and (gap := (following.first - field.first) // field.dtype.itemsize - field.length):
                    lengths.append(gap)
                    pieces.append(None)
            self._stretches.append((in_stretch[0].dtype, sum(lengths), lengths, pieces))
        # For each stretch: a list of the memory of deleted batches; None if new memory is allocated for each batch.
        self._free: list[list[Array] | None] = [
            None if separate or number * dtype.itemsize < _LARGE else [] for dtype, number, _, _ in self._stretches
        ]

    def take(self) -> tuple[IntArray, Mapping[Key, Tensor]]:
        """Return the address of each stretch, int64, and a dict key -> tensor; the tensors keep the stretches alive."""
        memory = [
            torch.empty(number, dtype=dtype, device=_CPU) if free is None else _lent(free, number, dtype)
            for (dtype, number, _, _), free in zip(self._stretches, self._free, strict=True)
        ]
        tensors = {}
        for stretch, (_, _, lengths, pieces) in zip(memory, self._stretches, strict=True):
            # Use the "unsafe" split, so that autograd treats the tensors as independent of each other.
            for piece, values in zip(pieces, torch.unsafe_split_with_sizes(stretch, lengths), strict=True):
                if piece is not None:
                    key, shape = piece
                    tensors[key] = values if shape is None else values.view(*shape)
        return np.array([stretch.data_ptr() for stretch in memory], np.int64), tensors


def _lent(free: list[Array], number: int, dtype: torch.dtype) -> Tensor:
    """Return a tensor of `number` values, in memory from the list `free`, or in new memory if the list is empty."""
    try:
        memory = free.pop()
    except IndexError:
        memory = torch.empty(number * dtype.itemsize, dtype=torch.uint8, device=_CPU).numpy()
    # The tensor keeps the loan alive.
    return torch.from_numpy(np.asarray(_Loan(memory, free))).view(dtype)
