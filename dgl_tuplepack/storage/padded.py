"""Whole padded batches from the arrays of opened stores, assembled in one compiled pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.layout import batch_of
from dgl_tuplepack.batches.shape import PaddedShape
from dgl_tuplepack.graphs.blocks import Array
from dgl_tuplepack.graphs.relations import sorting_order
from dgl_tuplepack.graphs.values import as_array
from dgl_tuplepack.storage.assembler import Assembler
from dgl_tuplepack.storage.memory import BatchMemory, Field, fields_of
from dgl_tuplepack.storage.rows import GraphRows
from dgl_tuplepack.storage.selection import Selection


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
