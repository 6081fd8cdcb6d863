"""A store whose arrays lie on a device, which assembles batches there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.shape import PaddedShape
from dgl_tuplepack.batches.sorted_edges import sorted_by_destination
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.batch_builder import BatchBuilder
from dgl_tuplepack.graphs.blocks import Array
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.graphs.values import as_tensor
from dgl_tuplepack.planning.buckets import Shapes, all_of, as_shapes
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.batched import BatchView, checked_totals, is_one_id, tensors_of
from dgl_tuplepack.storage.format import ENDS, Key
from dgl_tuplepack.storage.memory import batch_of_tensors
from dgl_tuplepack.storage.rows import Finder, GraphRows
from dgl_tuplepack.storage.selection import Selection
from dgl_tuplepack.storage.views import PaddedView, joined_views


class DeviceStore:
    """The arrays of a store on a device; made by `GraphStore.to`.

    Batches are assembled there by torch operations of static shape, without waiting for the device: for each batch only
    the row numbers of its graphs are sent, from pinned memory if there is CUDA. Batches equal those of `GraphStore`.

    Attributes
    ----------
    store
        The store on the disk, which has the sizes and splits.
    device
        Device of the arrays.

    Raises
    ------
    FormatError
        Offsets or endpoints are damaged. All of them are checked once, before they are sent.
    """

    def __init__(self, store: Selection, device: torch.device | str) -> None:
        self.store, self.device = store, torch.device(device)
        for part in store.parts:
            part.check_positions()
        # Rows of the parts are joined; the key None is for labels.
        self._first_rows: dict[Any, IntArray] = {
            t: np.cumsum([0, *(part.rows[t] for part in store.parts[:-1])], dtype=np.int64) for t in store.parts[0].rows
        }
        self._first_rows[None] = store.first_ids[:-1]
        self._values = {
            key: self._joined([part.array(*key) for part in store.parts], spec.dtype)
            for key, spec in store.stored_schema.columns()
        }
        self._ends: dict[Key, Tensor] = {
            (end, e): self._joined_ends([part.array(end, e) for part in store.parts])
            for e in store.schema.edge_types
            for end in ENDS
        }

    def _joined(self, parts: Sequence[Array], dtype: torch.dtype) -> Tensor:
        """Join arrays on the device; one of them at a time is in memory."""
        joined = torch.empty((sum(map(len, parts)), *parts[0].shape[1:]), dtype=dtype, device=self.device)
        first = 0
        for part in parts:
            joined[first : first + len(part)] = as_tensor(part, dtype).to(self.device)
            first += len(part)
        return joined

    def _joined_ends(self, parts: Sequence[Array]) -> Tensor:
        # Some operations of torch do not support uint16.
        wider = [part.astype(np.int32) if part.dtype == np.uint16 else part for part in parts]
        widest = max((part.dtype for part in wider), key=lambda dtype: dtype.itemsize)
        return self._joined(wider, torch.from_numpy(np.empty(0, widest)).dtype)

    def __len__(self) -> int:
        return len(self.store)

    def ids_in_store(self, ids: IntArray) -> IntArray:
        """Return the ids in the store of graphs `ids`."""
        return self.store.ids_in_store(ids)

    def padded(
        self,
        limits: Shapes,
        packs_per_batch: int = 1,
        *,
        as_stored: bool = False,
        batch_transform: Callable[[PaddedBatch], Any] | None = None,
        transform_seed: int = 0,
        **settings: Any,
    ) -> DevicePaddedStore | PaddedView:
        """Return a view whose item for a list of ids is one `PaddedBatch` on the device.

        Settings are those of `GraphStore.padded`: `label_fill`, `feature_fill`, `cover_padding`, `idtype`,
        `coordinates`, `sort_edges`, `batch_transform` and `transform_seed`. There is no `transform`: graphs would be
        transformed one by one, which is slow there.
        """
        schema = self.store.batch_schema(as_stored)
        shapes = [PaddedShape(schema, each, packs_per_batch, **settings) for each in all_of(as_shapes(limits))]
        views = [DevicePaddedStore(self, shape) for shape in shapes]
        view: DevicePaddedStore | PaddedView = joined_views(views, batch_transform, transform_seed)
        return view

    def batch(
        self, ids: Sequence[int] | IntArray | Tensor, limits: Shapes, packs_per_batch: int = 1, **settings: Any
    ) -> PaddedBatch:
        """Return one padded batch of the graphs `ids`; settings as in `padded`."""
        return self.padded(limits, packs_per_batch, **settings)[ids]

    def batched(self, *, as_stored: bool = False, framework: str = "dgl") -> DeviceBatchedStore:
        """Return a view whose item for a list of ids is ``(DGLGraph, labels)`` there, as `GraphStore.batched`."""
        if framework != "dgl":
            raise InputError(
                f"framework is {shown(framework)}, but batches without padding on {self.device} are those of DGL; move "
                'each batch of store.batched(framework="pyg") there, batch.to(device), or take padded ones.'
            )
        return DeviceBatchedStore(self, self.store.batch_schema(as_stored))

    def send_rows(
        self, graphs: GraphRows, slots: Mapping[Any, int]
    ) -> tuple[dict[Any, Tensor], dict[Any, Tensor], Tensor]:
        """Send where the rows of graphs lie to the device, in one piece.

        `slots` has the numbers of nodes and edges of each type, and of graphs (None). Returns, for each of these, the
        first row of each graph and the number of its rows, int64 ``[slots[None]]``; and ids, -1 in slots without a
        graph. The last of these owns the slots beyond the graphs.
        """
        number, table = len(graphs.ids), np.zeros((2 * len(slots) + 1, slots[None]), np.int64)
        for row, (t, all_slots) in enumerate(slots.items()):
            if number < slots[None]:
                table[2 * row + 1, -1] = all_slots - graphs.totals[row]
            table[2 * row, :number] = graphs.rows[row, 0] + self._first_rows[t][graphs.parts]
            table[2 * row + 1, :number] = graphs.rows[row, 1]
        table[-1, :number], table[-1, number:] = graphs.ids, -1
        sent = torch.from_numpy(table)
        if self.device.type == "cuda":
            sent = sent.pin_memory().to(self.device, non_blocking=True)
        return dict(zip(slots, sent[:-1:2], strict=True)), dict(zip(slots, sent[1::2], strict=True)), sent[-1]

    def __repr__(self) -> str:
        return f"DeviceStore({self.store!r}, device {self.device})"


class DevicePaddedStore:
    """View of a `DeviceStore` whose item for a list of ids is one whole `PaddedBatch` on the device.

    For a loader without workers: ``sampler=PackBatchSampler(...), batch_size=None, num_workers=0``.

    Raises
    ------
    GraphTooLargeError, SizesError
        For an item: the graphs exceed the packs, or an id is not in 0..N-1.
    FormatError
        For an item: its offsets, which are read from the disk, were damaged after opening.
    """

    def __init__(self, store: DeviceStore, shape: PaddedShape) -> None:
        self.store, self.shape = store, shape
        self._finder = Finder(store.store)
        self._fillings = {key: filling.to(store.device) for key, filling in shape.fillings.items()}

    def __len__(self) -> int:
        return len(self.store)

    def content_of(self, ids: Sequence[int] | IntArray | Tensor) -> list[int]:
        """Return the nodes of each type, the edges of each type, and the number of graphs."""
        content: list[int] = self._finder.find(ids).totals.tolist()
        return content

    def __getitem__(self, ids: Sequence[int] | IntArray | Tensor) -> PaddedBatch:
        graphs = self._finder.find(ids)
        self.shape.check_content(graphs.totals.tolist())
        tensors: dict[Key, Tensor] = {}
        starts, counts, tensors["graph_ids", None] = self.store.send_rows(graphs, self.shape.slots)
        slots: dict[Any, Tensor] = {}
        rows: dict[Any, Tensor] = {}
        firsts: dict[Any, Tensor] = {}
        graph_slots = torch.arange(self.shape.num_graphs, device=self.store.device)
        for t, number in self.shape.slots.items():
            # The last graph slot owns the padding.
            firsts[t] = torch.cumsum(counts[t], 0) - counts[t]
            slots[t] = torch.repeat_interleave(graph_slots, counts[t], output_size=number)
            position = torch.arange(number, device=self.store.device)
            mask = position < firsts[t][-1]
            rows[t] = torch.where(mask, starts[t][slots[t]] + position - firsts[t][slots[t]], 0)
            tensors["mask", t] = mask
            if t is not None:
                tensors["per_graph", t] = counts[t]
        for key, spec in self.shape.schema.columns():
            target = self.shape.schema.index_columns.get(key)
            if target is None:
                tensors[key] = self._column(key, rows[key[1]], tensors["mask", key[1]], spec.dtype)
            else:
                first = firsts[target][slots[key[1]]]
                tensors[key] = self._indices(key, rows[key[1]], tensors["mask", key[1]], spec.dtype, first)
        for e in self.shape.schema.edge_types:
            for end, t in zip(ENDS, (e[0], e[2]), strict=True):
                tensors[end, e] = self._endpoints((end, e), t, rows[e], slots[e], firsts)
        batch = batch_of_tensors(self.shape, tensors, graphs.totals)
        return sorted_by_destination(batch) if self.shape.sort_edges else batch

    def _column(self, key: Key, rows: Tensor, mask: Tensor, dtype: torch.dtype) -> Tensor:
        stored, filling = self.store._values[key], self._fillings[key]
        if not len(stored):
            # Compiled code looks at strides: those of a store with rows, and of the other ways to a batch.
            return filling.expand(len(rows), *stored.shape[1:]).clone(memory_format=torch.contiguous_format)
        values = stored[rows].to(dtype)
        return torch.where(mask.reshape(-1, *([1] * (values.dim() - 1))), values, filling)

    def _indices(self, key: Key, rows: Tensor, mask: Tensor, dtype: torch.dtype, first: Tensor) -> Tensor:
        """Shift indices to the `first` node or edge of their graph; those of padding are the first of the padding."""
        stored = self.store._values[key]
        tail = [1] * (stored.dim() - 1)
        if not len(stored):
            padding = first.to(dtype).reshape(-1, *tail).expand(len(rows), *stored.shape[1:])
            return padding.clone(memory_format=torch.contiguous_format)
        local = torch.where(mask.reshape(-1, *tail), stored[rows].to(torch.int64), 0)
        return (local + first.reshape(-1, *tail)).to(dtype)

    def _endpoints(self, key: Key, node_type: str, rows: Tensor, slots: Tensor, firsts: dict[Any, Tensor]) -> Tensor:
        """Shift endpoints to the nodes of their graph in the batch; padding edge j of m is at node j * spare // m."""
        position = torch.arange(len(rows), device=rows.device)
        stored, real_edges, real_nodes = self.store._ends[key], firsts[key[1]][-1], firsts[node_type][-1]
        spare = self.shape.num_nodes[node_type] - real_nodes
        ahead = key[0] == "destinations" and self.shape.is_chained(key[1])
        at = (position - real_edges) * spare // torch.clamp(len(rows) - real_edges, min=1) + ahead
        loops = real_nodes + torch.remainder(at, spare)
        if not len(stored):
            return loops.to(self.shape.idtype)
        moved = stored[rows].to(torch.int64) + firsts[node_type][slots]
        return torch.where(position < real_edges, moved, loops).to(self.shape.idtype)


class DeviceBatchedStore(BatchView):
    """View of a `DeviceStore` whose item for a list of ids is ``(DGLGraph, labels)`` on the device, without padding.

    It is that of `BatchedStore`. For a loader without workers.
    """

    def __init__(self, store: DeviceStore, schema: Schema) -> None:
        self.store, self._schema = store, schema
        self._finder, self._builder = Finder(store.store), BatchBuilder(schema)

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, ids: int | Sequence[int] | IntArray | Tensor) -> Any:
        if is_one_id(ids):
            return _on_device(self.store.store[ids], self.store.device)  # type: ignore[index]
        graphs, schema = self._finder.find(ids), self._schema  # type: ignore[arg-type]
        checked = checked_totals(schema, graphs.totals)
        totals = dict(zip((*schema.node_types, *schema.edge_types, None), checked, strict=True))
        starts, counts, _ = self.store.send_rows(graphs, totals)
        first_nodes = {t: torch.cumsum(counts[t], 0) - counts[t] for t in schema.node_types}
        tensors: dict[Key, Tensor] = {("per_graph", t): counts[t] for t in totals if t is not None}
        rows: dict[Any, Tensor] = {None: starts[None]}
        for t in totals:
            if t is None:
                continue
            of_graph = torch.repeat_interleave(counts[t], output_size=totals[t])
            shift = starts[t] - (torch.cumsum(counts[t], 0) - counts[t])
            rows[t] = torch.arange(totals[t], device=self.store.device) + shift[of_graph]
            if t in schema.edge_types:
                for end, nodes in zip(ENDS, (t[0], t[2]), strict=True):
                    moved = self.store._ends[end, t][rows[t]].to(torch.int64) + first_nodes[nodes][of_graph]
                    tensors[end, t] = moved.to(schema.idtype)
        for key, spec in schema.columns():
            values, target = self.store._values[key][rows[key[1]]], schema.index_columns.get(key)
            if target is not None:
                first = torch.cumsum(counts[target], 0) - counts[target]
                if key[1] is not None:
                    first = torch.repeat_interleave(first, counts[key[1]], output_size=totals[key[1]])
                values = values + first.reshape(-1, *[1] * (values.dim() - 1))
            tensors[key] = values.to(spec.dtype)
        return self._builder.batch(checked, [tensors[key] for key, _, _ in tensors_of(schema)])

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))


def _on_device(item: Any, device: torch.device) -> Any:
    """Send an item of the store: a DGLGraph, a dict of them, or a pair with a label."""
    if isinstance(item, tuple):
        return tuple(_on_device(part, device) for part in item)
    if isinstance(item, dict):
        return {name: part.to(device) for name, part in item.items()}
    return item.to(device)
