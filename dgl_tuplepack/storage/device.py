"""A store whose arrays are on a device, where batches are assembled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.collate import padded_batch
from dgl_tuplepack.batches.shape import PaddedShape
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.blocks import ENDS, Array, GraphBlock, GraphType
from dgl_tuplepack.graphs.build import BatchBuilder
from dgl_tuplepack.graphs.schema import Schema, as_tensor
from dgl_tuplepack.planning.buckets import Shapes
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.format import Key
from dgl_tuplepack.storage.selection import Selection
from dgl_tuplepack.storage.view import BatchView, GraphRows, checked_totals, shapes_of


class DeviceStore:
    """The arrays of a store on a device; made by `GraphStore.to`.

    For each batch, only the ids and row numbers of its graphs are sent to the device. The constructor checks all
    offsets and endpoints; it raises FormatError if they are damaged.
    """

    def __init__(self, store: Selection, device: torch.device | str) -> None:
        self.store, self.device = store, torch.device(device)
        for segment in store.segments:
            segment.check_positions()
        # Type -> the first row of each segment in the joined arrays, int64 [segments]; None is the key of labels.
        self._first_rows: dict[Any, IntArray] = {
            t: np.cumsum([0, *(segment.rows[t] for segment in store.segments[:-1])], dtype=np.int64)
            for t in store.segments[0].rows
        }
        self._first_rows[None] = store.first_ids[:-1]
        self._values = {
            key: self._joined([segment.array(*key) for segment in store.segments], spec.dtype)
            for key, spec in store.stored_schema.columns()
        }
        self._ends: dict[Key, Tensor] = {
            (end, e): self._joined_ends([segment.array(end, e) for segment in store.segments])
            for e in store.schema.edge_types
            for end in ENDS
        }

    def _joined(self, segments: Sequence[Array], dtype: torch.dtype) -> Tensor:
        """Join the arrays of all segments on the device; host memory holds a copy of only one array at a time."""
        joined = torch.empty((sum(map(len, segments)), *segments[0].shape[1:]), dtype=dtype, device=self.device)
        first = 0
        for segment in segments:
            joined[first : first + len(segment)] = as_tensor(segment, dtype).to(self.device)
            first += len(segment)
        return joined

    def _joined_ends(self, segments: Sequence[Array]) -> Tensor:
        """Join endpoints on the device, in the widest dtype of any segment."""
        # Some operations of torch do not support uint16.
        wider = [segment.astype(np.int32) if segment.dtype == np.uint16 else segment for segment in segments]
        widest = max((segment.dtype for segment in wider), key=lambda dtype: dtype.itemsize)
        return self._joined(wider, torch.from_numpy(np.empty(0, widest)).dtype)

    def __len__(self) -> int:
        return len(self.store)

    @property
    def selection(self) -> Selection:
        """The selection that ids refer to."""
        return self.store

    def padded(
        self,
        limits: Shapes,
        packs_per_batch: int = 1,
        *,
        as_stored: bool = False,
        batch_transform: Callable[[PaddedBatch], Any] | None = None,
        transform_seed: int = 0,
        **settings: Any,
    ) -> BatchView:
        """Return a view of padded batches on the device, for a loader without workers.

        Settings are as in `GraphStore.padded`, without `separate` and `transform`.
        """
        shapes = shapes_of(self.store.batch_schema(as_stored), limits, packs_per_batch, **settings)
        return BatchView(self, shapes, transform=batch_transform, transform_seed=transform_seed)

    def batched(self, *, as_stored: bool = False, framework: str = "dgl", with_ids: bool = False) -> BatchView:
        """Return a view that maps a list of ids to ``(DGLGraph, labels)`` on the device, without padding.

        The arguments are as in `GraphStore.batched`. The ids that `with_ids` adds stay on the CPU.
        """
        if framework != "dgl":
            raise InputError(
                f"framework is {shown(framework)}, but on {self.device} only DGL batches are made without padding; use "
                'padded batches, or move each batch of store.batched(framework="pyg") there with batch.to(device).'
            )
        return BatchView(self, as_stored=as_stored, with_ids=with_ids)

    def maker(
        self, shape: PaddedShape | None, *, separate: bool = False, as_stored: bool = False, framework: str = "dgl"
    ) -> Callable[[GraphRows], Any]:
        """Return a function like that of `StoredGraphs.maker`; `separate` and `framework` have no effect."""
        if shape is not None:
            return functools.partial(self._padded, shape.on(self.device))
        schema = self.store.batch_schema(as_stored)
        return functools.partial(self._plain, schema, BatchBuilder(schema))

    def item(self, i: int) -> Any:
        """Return graph `i` on the device, with its label."""
        return _on_device(self.store[i], self.device)

    def _padded(self, shape: PaddedShape, graphs: GraphRows) -> PaddedBatch:
        joined, ids = self._joined_graphs(shape.schema, graphs)
        batch = padded_batch(shape, joined)
        batch.graph_ids = torch.nn.functional.pad(ids, (0, shape.num_graphs - len(ids)), value=-1)
        return batch

    def _plain(self, schema: Schema, builder: BatchBuilder, graphs: GraphRows) -> Any:
        totals = checked_totals(schema, graphs.totals)
        joined, _ = self._joined_graphs(schema, graphs)
        # In the order of `BatchBuilder.batch`.
        tensors = [joined.lengths[t] for t in schema.types.values()]
        tensors += [end for e in schema.edge_types for end in joined.endpoints[e]]
        tensors += [joined.shifted(column, schema.index_columns.get(column)) for column, _ in schema.columns()]
        return builder.batch(totals, tensors)

    def _joined_graphs(self, schema: Schema, graphs: GraphRows) -> tuple[GraphBlock, Tensor]:
        """Gather the rows of graphs on the device, without waiting for it; return graphs and ids, int64 ``[n]``."""
        types = list(schema.types.values())
        numbers = dict(zip([*types, None], graphs.totals.tolist(), strict=True))
        first_in_arrays, lengths, ids = self._sent(types, graphs)
        # By type, for each graph: its first row in the batch.
        first_in_batch = {t: torch.cumsum(lengths[t], 0) - lengths[t] for t in types}
        # By type, for each row of the batch: its graph (`graph_of`), and its row in the joined arrays (`rows`).
        graph_of = {t: torch.repeat_interleave(lengths[t], output_size=numbers[t]) for t in types}
        # Labels, of the type None, have one row for each graph.
        rows: dict[Any, Tensor] = {None: first_in_arrays[None]}
        for t in types:
            shift = first_in_arrays[t] - first_in_batch[t]
            rows[t] = torch.arange(numbers[t], device=self.device) + shift[graph_of[t]]
        ends = {}
        for e in schema.edge_types:
            # Stored endpoints count from 0 in each graph.
            src, dst = (
                (self._ends[end, e][rows[e]].to(torch.int64) + first_in_batch[t][graph_of[e]]).to(schema.idtype)
                for end, t in zip(ENDS, (e[0], e[2]), strict=True)
            )
            ends[e] = src, dst
        # A column is (content, type, name).
        columns = {column: self._values[column][rows[column[1]]].to(spec.dtype) for column, spec in schema.columns()}
        return schema.block(lengths, ends, columns.__getitem__, totals=numbers), ids

    def _sent(
        self, types: list[GraphType], graphs: GraphRows
    ) -> tuple[dict[Any, Tensor], dict[GraphType, Tensor], Tensor]:
        """Send the first rows of graphs in the arrays, their numbers of rows, and their ids, as one table."""
        with_labels = [*types, None]
        firsts = [graphs.rows[i, 0] + self._first_rows[t][graphs.segments] for i, t in enumerate(with_labels)]
        table = torch.from_numpy(np.stack([*firsts, *graphs.rows[:-1, 1], graphs.ids]))
        sent = (table.pin_memory() if self.device.type == "cuda" else table).to(self.device, non_blocking=True)
        first_rows, lengths = sent[: len(with_labels)], sent[len(with_labels) : -1]
        return dict(zip(with_labels, first_rows, strict=True)), dict(zip(types, lengths, strict=True)), sent[-1]

    def __repr__(self) -> str:
        return f"DeviceStore({self.store!r}, device {self.device})"


def _on_device(item: Any, device: torch.device) -> Any:
    """Send an item of a store to a device: graphs (a DGLGraph or a dict of them), or a pair of graphs and a label."""
    if isinstance(item, tuple):
        return tuple(_on_device(part, device) for part in item)
    if isinstance(item, dict):
        return {name: part.to(device) for name, part in item.items()}
    return item.to(device)
