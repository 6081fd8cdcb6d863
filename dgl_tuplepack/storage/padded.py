"""Whole padded batches from the arrays of a selection, assembled in one compiled pass."""

from __future__ import annotations

from math import prod

import numpy as np
import torch

from dgl_tuplepack._core.kernels.assemble import (
    EDGE_ORDER,
    ENDPOINTS,
    FIELD,
    GRAPH_IDS,
    INDICES,
    MASK,
    PER_GRAPH,
    ROW_POINTERS,
    ROWS,
    assemble,
)
from dgl_tuplepack._core.kernels.gather import ARRAY, CODES, OTHER
from dgl_tuplepack._core.kernels.sort_edges import sort_edges
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.layout import batch_of
from dgl_tuplepack.batches.shape import PaddedShape
from dgl_tuplepack.graphs.blocks import ENDS, Array
from dgl_tuplepack.graphs.relations import sorting_order
from dgl_tuplepack.graphs.values import as_array
from dgl_tuplepack.storage.format import DTYPES
from dgl_tuplepack.storage.memory import BatchMemory, Field, fields_of
from dgl_tuplepack.storage.rows import GraphRows, address_of, array_record
from dgl_tuplepack.storage.selection import Selection

# Contents of tensors that the store has no array for -> how the kernel fills them.
_MADE = {
    "graph_ids": GRAPH_IDS,
    "mask": MASK,
    "per_graph": PER_GRAPH,
    "row_pointers": ROW_POINTERS,
    "edge_order": EDGE_ORDER,
}


class PaddedBatches:
    """Make padded batches of one shape from the arrays of a selection, equal to the batches of `PaddedCollate`.

    With `separate`, each tensor has its own memory.
    """

    def __init__(self, store: Selection, shape: PaddedShape, separate: bool = False) -> None:
        self.shape = shape
        self._tensors, self._parts = fields_of(shape, separate), store.parts
        self._memory = BatchMemory(self._tensors, separate)
        # Keep these arrays and the parts alive: compiled code holds only their addresses.
        self._fills = [_fill(self.shape, field) for field in self._tensors]
        self._slots = np.array(list(self.shape.slots.values()), np.int64)
        self._fields = np.array(
            [_field(self.shape, field, fill) for field, fill in zip(self._tensors, self._fills, strict=True)], FIELD
        )
        positions = {field.key: f for f, field in enumerate(self._tensors)}
        # If edges are sorted, a row for each edge type: the numbers of the fields of destinations, row pointers and
        # edge order, and of the node type that is tied to the edges, or -1.
        schema, types = self.shape.schema, list(self.shape.slots)
        tied = {e: types.index(t) for t, e in schema.tied.items()}
        self._sorted = np.array(
            [
                [positions[content, e] for content in ("destinations", "row_pointers", "edge_order")]
                + [tied.get(e, -1)]
                for e in (sorting_order(schema.edge_types, schema.tied) if self.shape.sort_edges else ())
            ],
            np.int64,
        ).reshape(-1, 4)
        # Array of each field in each part.
        self._stored = np.zeros((len(self._fields), len(self._parts)), ARRAY)
        for stored, field in zip(self._stored, self._tensors, strict=True):
            if field.key[0] not in _MADE:
                stored[:] = [array_record(part.array(*field.key)) for part in self._parts]

    def __call__(self, graphs: GraphRows) -> PaddedBatch:
        """Return the batch of graphs; GraphTooLargeError if they exceed the packs."""
        self.shape.check_content(graphs.totals.tolist())
        memory, tensors = self._memory.take()
        wrong = assemble(
            memory, self._fields, self._stored, self._slots, graphs.ids, graphs.parts, graphs.rows, graphs.totals
        )
        # The kernel returns -1 - (f * n + i) if field f points outside graph i of n.
        if wrong:
            f, i = divmod(-1 - wrong, len(graphs.ids))
            self._parts[graphs.parts[i]].refuse_endpoints(int(graphs.part_ids[i]), *self._tensors[f].key)
        if len(self._sorted):
            sort_edges(memory, self._fields, self._sorted, self._slots)
        return batch_of(self.shape.schema, tensors, graphs.totals.tolist())


def _fill(shape: PaddedShape, field: Field) -> Array:
    """Return the rows that pad a feature or label: one row, or one for each slot. Other tensors get an unused 0."""
    filling = shape.fillings.get(field.key)
    return as_array(torch.zeros(1, dtype=field.dtype, device="cpu") if filling is None else filling)


def _field(shape: PaddedShape, field: Field, fill: Array) -> tuple[int, ...]:
    """Return the record `FIELD` of a tensor, which `_core/kernels/assemble.py` defines."""
    content, t = field.key[:2]
    types, width = list(shape.slots), prod(field.shape[1:])
    nodes = types.index(t[0 if content == "sources" else 2]) if content in ENDS else 0
    kind = _MADE.get(content, ENDPOINTS if content in ENDS else ROWS)
    if (target := shape.schema.index_columns.get(field.key)) is not None:
        kind, nodes = INDICES, types.index(target)
    return (
        kind,
        types.index(t),
        nodes,
        field.stretch,
        field.first,
        width,
        width * field.dtype.itemsize,
        CODES.get(DTYPES[str(field.dtype).removeprefix("torch.")], OTHER),
        address_of(fill),
        len(fill),
        content == "destinations" and shape.is_chained(t),
    )
