"""Whole batches for lists of ids: a view finds the rows of the graphs, and one compiled pass copies them to a batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.checks import as_ids, as_integers, true_or_false
from dgl_tuplepack._core.kernels import assemble as kernel
from dgl_tuplepack._core.kernels.assemble import ARRAY, CODES, OTHER
from dgl_tuplepack._core.kernels.find_graphs import OFFSETS, find_graphs
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.batch_transform import BatchTransform
from dgl_tuplepack.batches.shape import Key, PaddedShape, batch_of, number_of_shape
from dgl_tuplepack.errors import InputError, SizesError
from dgl_tuplepack.graphs.blocks import ENDS, Array, EdgeType, GraphType
from dgl_tuplepack.graphs.items import epoch_of, shape_index_of
from dgl_tuplepack.graphs.named import is_pyg
from dgl_tuplepack.graphs.pyg_layout import attribute_names
from dgl_tuplepack.graphs.relations import sorting_order
from dgl_tuplepack.graphs.schema import Schema, as_array
from dgl_tuplepack.planning.buckets import Shapes, all_of, as_shapes
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.format import DTYPES
from dgl_tuplepack.storage.selection import Selection


def shapes_of(schema: Schema, limits: Shapes, packs_per_batch: int, **settings: Any) -> list[PaddedShape]:
    """Return the shape of padded batches for each of the limits, the smallest first."""
    return [PaddedShape(schema, each, packs_per_batch, **settings) for each in all_of(as_shapes(limits))]


class BatchView:
    """View of a store: ``view[ids]`` is one whole batch, for a list of ids.

    `GraphStore.padded` makes views of padded batches, `GraphStore.batched` views of batches without padding, which also
    accept a single id and then return that graph. For an empty list, the batch has no graphs.

    Parameters
    ----------
    store
        A `StoredGraphs` or `DeviceStore`. Its `maker` returns the function that makes a batch from `GraphRows`.
    shapes
        Shapes of padded batches, the smallest first; empty for batches without padding. The attribute `shape` is the
        last shape, or None.
    transform, transform_seed, separate
        For padded batches, as in `GraphStore.padded`.
    as_stored, framework, with_ids
        For batches without padding, as in `GraphStore.batched`.

    Raises
    ------
    GraphTooLargeError, SizesError, FormatError
        When a batch is read: the graphs do not fit into the shape, or their nodes or edges into the index type; an id
        is not in 0..N-1; or a file was damaged after it was opened.
    """

    def __init__(
        self,
        store: Any,
        shapes: Sequence[PaddedShape] = (),
        *,
        transform: Callable[[PaddedBatch], Any] | None = None,
        transform_seed: int = 0,
        separate: bool = False,
        as_stored: bool = False,
        framework: str = "dgl",
        with_ids: bool = False,
    ) -> None:
        self.store, self.shapes, self.framework = store, tuple(shapes), framework
        # int64 [N]: for a mixture of sources, the source of each graph.
        self.source_ids: IntArray | None = None
        self.with_ids, separate = true_or_false("with_ids", with_ids), true_or_false("separate", separate)
        self._choices: dict[str, Any] = {"separate": separate, "as_stored": as_stored, "framework": framework}
        self.shape = self.shapes[-1] if self.shapes else None
        self._transform: BatchTransform | None = None
        self._prepare()
        if transform is not None:
            # `BatchTransform` transforms a batch without graphs to find the features and labels of the results.
            self._transform = BatchTransform(transform, transform_seed, self[[]])

    def _prepare(self) -> None:
        self._finder = Finder(self.store.selection)
        self._makers = [self.store.maker(shape, **self._choices) for shape in self.shapes or (None,)]

    def __getstate__(self) -> dict[str, Any]:
        # Leave out the finder and the makers, which hold memory addresses of this process.
        return {name: value for name, value in self.__dict__.items() if name not in ("_finder", "_makers")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __len__(self) -> int:
        return len(self.store.selection)

    def __getitem__(self, ids: int | Sequence[int] | IntArray | Tensor) -> Any:
        if not self.shapes and is_one_id(ids):
            return self._item(ids)  # type: ignore[arg-type]
        graphs, shape_index = self._finder.find(ids), 0  # type: ignore[arg-type]
        if len(self._makers) > 1:
            shape_index = number_of_shape(self.shapes, shape_index_of(ids), graphs.totals.tolist())
        batch = self._makers[shape_index](graphs)
        if self.source_ids is not None:
            batch = with_source_ids(batch, torch.from_numpy(self.source_ids[graphs.positions]))
        if self.with_ids:
            return with_graph_ids(batch, torch.from_numpy(graphs.ids))
        if self._transform is None:
            return batch
        # Random numbers depend on the ids in the store, even if the batch reports other ids.
        return self._transform(batch, self.store.selection.ids_in_store(graphs.positions).tolist(), epoch_of(ids))

    def _item(self, i: int) -> Any:
        """Return one graph: for DGL, an item of the store; for PyG, the graph of a batch that holds only this graph."""
        if self.framework == "dgl":
            return self.store.item(i)
        position = int(i)
        return self[[position + len(self) if -len(self) <= position < 0 else position]].get_example(0)

    def __getitems__(self, ids: Sequence[Any]) -> Any:
        """Return one batch for each list in `ids`, for torch's loaders; raise InputError for a view without padding."""
        if self.shapes:
            return [self[i] for i in ids]
        loader = "tp.GraphDataLoader" if self.framework == "dgl" else "tp.pyg.DataLoader"
        raise InputError(
            "store.batched() makes whole batches, but this loader collates single graphs; give the store itself to a "
            f"loader that fetches whole batches, {loader}(store, batch_size=64, shuffle=True), or to any loader with "
            "your own collate_fn."
        )

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the transform's random numbers; needed only if the ids, unlike a sampler's, carry none."""
        if self._transform is not None:
            self._transform.draws.set_epoch(epoch)


def with_graph_ids(batch: Any, ids: Tensor) -> Any:
    """Return a batch with the ids of its graphs: as the last element of a tuple; for PyG, as attribute `graph_ids`."""
    if is_pyg(batch):
        batch.graph_ids = ids
        return batch
    return (*batch, ids) if isinstance(batch, tuple) else (batch, ids)


def with_source_ids(batch: Any, ids: Tensor, before_last: bool = False) -> Any:
    """Return a batch with the sources of its graphs: as an element of a tuple, or as the attribute `source_ids`.

    Padding has source 0, so that the values are valid indices. With `before_last`, the last element stays the last.
    """
    if isinstance(batch, PaddedBatch):
        batch.source_ids = torch.zeros(len(batch.graph_mask), dtype=torch.int64, device="cpu")
        batch.source_ids[: len(ids)] = ids
        return batch
    if is_pyg(batch):
        batch.source_ids = ids
        return batch
    # A collate function of the user may return a tuple with names, which stays one element.
    parts: Any = batch if type(batch) in (tuple, list) else (batch,)
    at = len(parts) - before_last
    return type(parts)((*parts[:at], ids, *parts[at:]))


def is_one_id(ids: Any) -> bool:
    """Return whether `ids` is a single id."""
    return hasattr(ids, "__index__") and getattr(ids, "ndim", 0) == 0


@dataclass
class GraphRows:
    """n graphs: their positions in the selection, the ids that the batch reports, their segments, and their rows.

    ``rows[t]``, int64 ``[3, n]``: first row in the segment, number of rows, and first row in the batch, of each graph.
    ``totals[t]``: rows of all graphs. Types are numbered: node types, edge types, then labels (one row for each graph).
    """

    positions: IntArray
    ids: IntArray
    segments: IntArray
    rows: IntArray
    totals: IntArray


class Finder:
    """Find the graphs of a batch in the segments of a selection."""

    def __init__(self, selection: Selection) -> None:
        self._selection, self._segments = selection, selection.segments
        # The kernel needs an array, even if the selection has all graphs.
        self._chosen = np.empty(0, np.int64) if selection.chosen is None else selection.chosen
        self._types: list[GraphType] = [*selection.schema.node_types, *selection.schema.edge_types]
        # For each type and segment: the address of its offsets (the first row of each graph), and its number of rows.
        self._offsets = np.empty((len(self._types), len(self._segments)), OFFSETS)
        for of_type, t in zip(self._offsets, self._types, strict=True):
            of_type["address"] = [address_of(segment.offsets(t)) for segment in self._segments]
            of_type["rows"] = [segment.rows[t] for segment in self._segments]

    def find(self, ids: Sequence[int] | IntArray | Tensor) -> GraphRows:
        """Return the rows of the graphs `ids`, which are positions in the selection."""
        positions = np.ascontiguousarray(as_integers(ids), np.int64)
        # Labels are one more type.
        num_graphs, num_types = len(positions), len(self._types) + 1
        segments, totals = np.empty(num_graphs, np.int64), np.empty(num_types, np.int64)
        rows = np.empty((num_types, 3, num_graphs), np.int64)
        is_subset, first_ids = self._selection.chosen is not None, self._selection.first_ids
        wrong = find_graphs(positions, self._chosen, first_ids, is_subset, self._offsets, segments, rows, totals)
        if wrong < 0:
            # Raises SizesError for the wrong id.
            as_ids(ids, len(self._selection))
        if wrong > 0:
            t, i = divmod(wrong - 1, num_graphs)
            self._segments[segments[i]].refuse_offsets(int(rows[-1, 0, i]), self._types[t])
        kept = self._selection.kept_ids
        return GraphRows(positions, positions if kept is None else kept[positions], segments, rows, totals)


def address_of(array: Array) -> int:
    """Return the address of the first byte of an array; the caller keeps the array alive."""
    address: int = array.__array_interface__["data"][0]
    return address


class PaddedBatches:
    """Make padded batches of one shape; with `separate`, each tensor has its own memory."""

    def __init__(self, store: Selection, shape: PaddedShape, separate: bool = False) -> None:
        self.shape = shape
        schema, types, fields = shape.schema, list(shape.slots), fields_of(shape, separate)
        self._memory = BatchMemory(fields, separate)
        self._slots = np.array(list(shape.slots.values()), np.int64)
        # Edge types whose padding edges lead from one padding node to the next.
        chained = [e for e in schema.edge_types if shape.has_padding_chains(e)]
        zeros = ((field.key, torch.zeros(1, dtype=field.dtype, device="cpu")) for field in fields)
        # The rows that pad each tensor: one, or one for each slot; an unused 0 if the kernel computes the tensor.
        # Copies, since torch moves a tensor to other memory when it is sent to a worker.
        fills = [as_array(shape.fillings.get(key, zero)).copy() for key, zero in zeros]
        self._assembler = Assembler(store, schema, fields, fills, chained)
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
        self._sort_edges: Callable[..., None] | None = None
        if len(self._sorted):
            # Import the kernel only when it is needed: its import compiles it.
            from dgl_tuplepack._core.kernels.sort_edges import sort_edges

            self._sort_edges = sort_edges

    def __call__(self, graphs: GraphRows) -> PaddedBatch:
        """Return the batch of the graphs; raise GraphTooLargeError if the graphs do not fit into the shape."""
        self.shape.check_content(graphs.totals.tolist())
        memory, tensors = self._memory.take()
        self._assembler.fill(memory, graphs, self._slots)
        if self._sort_edges is not None:
            self._sort_edges(memory, self._assembler.records, self._sorted, self._slots)
        return batch_of(self.shape.schema, tensors, graphs.totals.tolist())


# Content of a tensor that no array of a store holds -> how the kernel computes the tensor.
_COMPUTED = {
    "graph_ids": kernel.GRAPH_IDS,
    "mask": kernel.MASK,
    "per_graph": kernel.PER_GRAPH,
    "row_pointers": kernel.ROW_POINTERS,
    "edge_order": kernel.EDGE_ORDER,
}


class Assembler:
    """Fill the tensors of a batch; `fills` has the rows that pad each tensor, `chained` edge types padded by chains."""

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
        """Fill the stretches of memory at the addresses `memory`; `slots` has the number of slots of each type."""
        wrong = kernel.assemble(
            memory, self.records, self._stored, slots, graphs.ids, graphs.segments, graphs.rows, graphs.totals
        )
        # The kernel returns 0, or -1 - (f * n + i) if a value of field f points outside graph i of n.
        if wrong:
            f, i = divmod(-1 - wrong, len(graphs.ids))
            # The keys of endpoints lack the name None. The last type is labels: a row is the index of a graph.
            key = (*self._keys[f], None)[:3]
            self._segments[graphs.segments[i]].refuse(key, f"points outside graph {graphs.rows[-1, 0, i]}")


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
    """One tensor: its key (as in a batch's layout), dtype, shape, stretch of memory, and first byte in the stretch."""

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

    In a shared stretch, destinations directly follow their sources: together they are PyG's `edge_index`.
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
        # is a field or, if it is None, a gap between two fields.
        self._stretches: list[tuple[torch.dtype, int, list[int], list[Field | None]]] = []
        for _, group in itertools.groupby(fields, lambda field: field.stretch):
            in_stretch = list(group)
            lengths: list[int] = []
            pieces: list[Field | None] = []
            for field, following in itertools.zip_longest(in_stretch, in_stretch[1:]):
                lengths.append(field.length)
                pieces.append(field)
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
                    tensors[piece.key] = values if len(piece.shape) == 1 else values.view(*piece.shape)
        return np.array([stretch.data_ptr() for stretch in memory], np.int64), tensors


def _lent(free: list[Array], number: int, dtype: torch.dtype) -> Tensor:
    """Return a tensor of `number` values, in memory from the list `free`, or in new memory if the list is empty."""
    try:
        memory = free.pop()
    except IndexError:
        memory = torch.empty(number * dtype.itemsize, dtype=torch.uint8, device=_CPU).numpy()
    # The tensor keeps the loan alive.
    return torch.from_numpy(np.asarray(_Loan(memory, free))).view(dtype)


# Index type of DGL -> largest number of nodes or edges that it can count.
_MOST = {idtype: torch.iinfo(idtype).max for idtype in (torch.int32, torch.int64)}
# Makes a batch from three arguments: the rows of its graphs; the numbers of nodes of each type, of edges of each type,
# and of graphs; and the tensors, in the order of `_tensors_of`.
_MakeBatch = Callable[[GraphRows, list[int], Sequence[Tensor]], Any]


class PlainBatches:
    """Make batches without padding.

    With `for_pyg`, `make_batch` gets no tensor "per_graph", and the endpoints of a type as one tensor ``[2, E]``.
    """

    def __init__(self, store: Selection, schema: Schema, make_batch: _MakeBatch, for_pyg: bool) -> None:
        self._schema, self._make_batch = schema, make_batch
        # The tensors "per_graph" have the number of nodes (edges) in each graph.
        made = [entry for entry in _tensors_of(schema) if entry[0][0] != "per_graph" or not for_pyg]
        # The type None is for labels and "per_graph", which have one row for each graph.
        types = [*schema.types.values(), None]
        # Of each tensor: the index of its number of rows in the totals, the shape of a row, and its dtypes.
        specs = [
            (types.index(None if key[0] == "per_graph" else key[1]), row, _in_numpy(dtype), dtype)
            for key, dtype, row in made
        ]
        # For PyG, the tensors begin with sources and destinations of each edge type, which share a tensor.
        in_pairs = 2 * len(schema.edge_types) if for_pyg else 0
        self._pairs, self._others = specs[:in_pairs:2], specs[in_pairs:]
        # Each tensor is a stretch of its own; its number of rows and the arrays of padding rows are not used.
        fields = [Field(key, dtype, (0, *row), stretch) for stretch, (key, dtype, row) in enumerate(made)]
        self._assembler = Assembler(store, schema, fields, [np.zeros(1, np.uint8)] * len(fields))

    def __call__(self, graphs: GraphRows) -> Any:
        """Return the batch of the given graphs."""
        totals = checked_totals(self._schema, graphs.totals)
        # One tensor [2, E] for each edge type: sources are its first half, destinations its second half.
        pairs = [_new_tensor(2, (totals[i],), in_numpy, dtype) for i, _, in_numpy, dtype in self._pairs]
        others = [_new_tensor(totals[i], row, in_numpy, dtype) for i, row, in_numpy, dtype in self._others]
        addresses = [pair.data_ptr() + half * pair.nbytes // 2 for pair in pairs for half in (0, 1)]
        addresses += [tensor.data_ptr() for tensor in others]
        self._assembler.fill(np.array(addresses, np.int64), graphs, graphs.totals)
        return self._make_batch(graphs, totals, pairs + others)


def pyg_builder(schema: Schema) -> _MakeBatch:
    """Return a function that makes the PyG batch that `Batch.from_data_list` would make."""
    load("torch_geometric")
    from dgl_tuplepack.batches.pyg_batch import Template, plain_batch

    columns = [column for column, _ in schema.columns()]
    # False: the batches are not padded.
    template = Template(attribute_names(schema.node_types, schema.edge_types, columns, schema.pyg), False)
    number, indices = len(schema.edge_types), schema.index_columns

    def batch(graphs: GraphRows, totals: list[int], tensors: Sequence[Tensor]) -> Any:
        # Of each type, the number of rows of each graph; the last type of `graphs.rows`, labels, is left out.
        counts = list(graphs.rows[:-1, 1])
        return plain_batch(template, counts, totals, tensors[:number], tensors[number:], indices)

    return batch


def _tensors_of(schema: Schema) -> list[tuple[Key, torch.dtype, tuple[int, ...]]]:
    """Return key, dtype and shape of a row for each tensor, in the order that `BatchBuilder.batch` needs."""
    return [
        *((("per_graph", t), torch.int64, ()) for t in (*schema.node_types, *schema.edge_types)),
        *(((end, e), schema.idtype, ()) for e in schema.edge_types for end in ENDS),
        *((key, spec.dtype, spec.shape) for key, spec in schema.columns()),
    ]


def checked_totals(schema: Schema, totals: IntArray) -> list[int]:
    """Return the totals as a list; raise SizesError for more nodes or edges than the index type can count."""
    checked: list[int] = totals.tolist()
    most = _MOST[schema.idtype]
    if max(checked[:-1]) > most:
        # zip leaves out the number of graphs, which has no component.
        number, name = max(zip(checked, schema.components, strict=False))
        raise SizesError(
            f"the batch holds {number} {name}, but indices of {schema.idtype} can count only {most}; use fewer graphs "
            "per batch, or write the store from graphs with 64-bit indices, g.long()."
        )
    return checked


def _new_tensor(number: int, row: tuple[int, ...], in_numpy: np.dtype[Any] | None, dtype: torch.dtype) -> Tensor:
    """Return a new tensor; if numpy has the dtype (`in_numpy`), it allocates in half the time that torch needs."""
    if in_numpy is None:
        return torch.empty((number, *row), dtype=dtype, device="cpu")
    return torch.from_numpy(np.empty((number, *row), in_numpy))


def _in_numpy(dtype: torch.dtype) -> np.dtype[Any] | None:
    """Return numpy's dtype for a dtype of torch; None if numpy lacks it."""
    name = str(dtype).removeprefix("torch.")
    return np.dtype(name) if DTYPES[name] == name else None
