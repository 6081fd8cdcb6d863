"""Whole padded batches from the arrays of opened stores, assembled in one compiled pass into memory that is reused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.kernels import assemble as kernel
from dgl_tuplepack._core.kernels.gather import ARRAY, CODES, OTHER
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.shape import Key, PaddedShape, batch_of
from dgl_tuplepack.graphs.blocks import ENDS, Array, EdgeType
from dgl_tuplepack.graphs.relations import sorting_order
from dgl_tuplepack.graphs.schema import Schema, as_array
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.format import DTYPES
from dgl_tuplepack.storage.selection import Selection
from dgl_tuplepack.storage.view import GraphRows, address_of


class PaddedBatches:
    """Make padded batches of one shape, equal to the batches of `PaddedCollate`.

    With `separate`, each tensor has its own memory.
    """

    def __init__(self, store: Selection, shape: PaddedShape, separate: bool = False) -> None:
        self.shape = shape
        schema, types, fields = shape.schema, list(shape.slots), fields_of(shape, separate)
        self._memory = BatchMemory(fields, separate)
        self._slots = np.array(list(shape.slots.values()), np.int64)
        # Edge types whose padding edges lead from one padding node to the next.
        chained = [e for e in schema.edge_types if shape.has_padding_chains(e)]
        self._assembler = Assembler(store, schema, fields, [_fill(shape, field) for field in fields], chained)
        field_index = {field.key: index for index, field in enumerate(fields)}
        # Edge type -> index of the node type whose nodes are these edges.
        tied = {e: types.index(t) for t, e in schema.tied.items()}
        # If edges are sorted, one row for each edge type: the indices of the three fields below, and the index of the
        # node type that is tied to it, or -1.
        self._sorted = np.array(
            [
                [field_index[content, e] for content in ("destinations", "row_pointers", "edge_order")]
                + [tied.get(e, -1)]
                for e in (sorting_order(schema.edge_types, schema.tied) if shape.sort_edges else ())
            ],
            np.int64,
        ).reshape(-1, 4)
        self._sort_edges = _sort_edges() if len(self._sorted) else None

    def __call__(self, graphs: GraphRows) -> PaddedBatch:
        """Return the batch of the graphs; raise GraphTooLargeError if the graphs do not fit into the shape."""
        self.shape.check_content(graphs.totals.tolist())
        memory, tensors = self._memory.take()
        self._assembler.fill(memory, graphs, self._slots)
        if self._sort_edges is not None:
            self._sort_edges(memory, self._assembler.records, self._sorted, self._slots)
        return batch_of(self.shape.schema, tensors, graphs.totals.tolist())


def _sort_edges() -> Callable[..., None]:
    # Import the kernel only when it is needed: its import compiles it.
    from dgl_tuplepack._core.kernels.sort_edges import sort_edges

    return sort_edges


def _fill(shape: PaddedShape, field: Field) -> Array:
    """Return the rows that pad a feature or label: one row, or one row for each slot.

    For any other tensor, return a single 0, which is not used. The rows are a copy, since torch moves a tensor to other
    memory when it is sent to a worker.
    """
    filling = shape.fillings.get(field.key)
    return as_array(torch.zeros(1, dtype=field.dtype, device="cpu") if filling is None else filling).copy()


# Content of a tensor that no array of a store holds -> how the kernel computes the tensor.
_COMPUTED = {
    "graph_ids": kernel.GRAPH_IDS,
    "mask": kernel.MASK,
    "per_graph": kernel.PER_GRAPH,
    "row_pointers": kernel.ROW_POINTERS,
    "edge_order": kernel.EDGE_ORDER,
}


class Assembler:
    """Fill the tensors of a batch.

    `fills` has, for each tensor, the rows that pad it. Padding edges of the types `chained` lead from one padding node
    to the next.
    """

    def __init__(
        self,
        store: Selection,
        schema: Schema,
        fields: Sequence[Field],
        fills: Sequence[Array],
        chained: Collection[EdgeType] = (),
    ) -> None:
        # Keep the arrays alive: compiled code holds only their addresses.
        self._segments, self._fills, self._keys = store.segments, fills, [field.key for field in fields]
        # None stands for graphs, which the kernel expects last.
        self._schema, self._types = schema, [*schema.types.values(), None]
        self.records = np.array(
            [self._record(field, fill, chained) for field, fill in zip(fields, fills, strict=True)], kernel.FIELD
        )
        # [fields, segments]: address, bytes per row and dtype of the array of each tensor in each segment.
        self._stored = np.zeros((len(fields), len(store.segments)), ARRAY)
        for stored, key in zip(self._stored, self._keys, strict=True):
            if key[0] not in _COMPUTED:
                arrays = [segment.array(*key) for segment in store.segments]
                stored[:] = [
                    (address_of(a), prod(a.shape[1:]) * a.itemsize, CODES.get(str(a.dtype), OTHER)) for a in arrays
                ]

    def _record(self, field: Field, fill: Array, chained: Collection[EdgeType]) -> tuple[int, ...]:
        """Return the values of one record for a tensor; `FIELD` in `_core/kernels/assemble.py` names them."""
        content, t = field.key[:2]
        # `nodes` is the index of the type that the values point to, if the values are endpoints or indices; else 0.
        kind, nodes = _COMPUTED.get(content, kernel.ROWS), 0
        if content in ENDS:
            kind, nodes = kernel.ENDPOINTS, self._types.index(t[0 if content == "sources" else 2])
        elif field.key in self._schema.index_columns:
            kind, nodes = kernel.INDICES, self._types.index(self._schema.index_columns[field.key])
        width = prod(field.shape[1:])
        return (
            kind,
            self._types.index(t),
            nodes,
            field.stretch,
            field.first,  # first byte of the tensor in its stretch of memory
            width,  # values per row
            width * field.dtype.itemsize,  # bytes per row
            CODES.get(DTYPES[str(field.dtype).removeprefix("torch.")], OTHER),
            address_of(fill),
            len(fill),  # number of rows that pad the tensor: 1, or one for each slot
            content == "destinations" and t in chained,  # whether padding edges end at the next padding node
        )

    def fill(self, memory: IntArray, graphs: GraphRows, slots: IntArray) -> None:
        """Fill the stretches of memory that begin at the addresses `memory`, int64 ``[stretches]``.

        `slots`, int64 ``[types]``, has the number of slots of each type of nodes and edges, then of graphs. Raise
        FormatError if an endpoint or index points outside its graph.
        """
        wrong = kernel.assemble(
            memory, self.records, self._stored, slots, graphs.ids, graphs.segments, graphs.rows, graphs.totals
        )
        # The kernel returns 0, or -1 - (f * n + i) if a value of field f points outside graph i of n.
        if wrong:
            f, i = divmod(-1 - wrong, len(graphs.ids))
            self._segments[graphs.segments[i]].refuse_endpoints(int(graphs.local_ids[i]), *self._keys[f])


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
