"""Batches without padding from the arrays of a selection, assembled in one compiled pass."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.kernels.assemble import ENDPOINTS, FIELD, INDICES, PER_GRAPH, ROWS, assemble
from dgl_tuplepack._core.kernels.gather import ARRAY, CODES, OTHER
from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.graphs.blocks import ENDS, GraphType
from dgl_tuplepack.graphs.build import BatchBuilder
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.format import DTYPES, Key
from dgl_tuplepack.storage.rows import GraphRows, address_of, array_record
from dgl_tuplepack.storage.selection import Selection

# Index type of DGL -> the most nodes or edges that it can number.
_MOST = {idtype: torch.iinfo(idtype).max for idtype in (torch.int32, torch.int64)}


class Face(Protocol):
    """Make batches of one framework from tensors in the order of `tensors_of`."""

    # Whether the numbers of nodes and edges of each graph are among the tensors.
    has_counts: bool
    # Whether endpoints are the rows of one tensor ``[2, E]``; these tensors come first.
    has_pairs: bool

    def __call__(self, graphs: GraphRows, totals: list[int], tensors: Sequence[Tensor]) -> Any:
        """Return the batch; `totals` are the numbers of nodes of each type, edges of each type, and graphs."""


class DglFace:
    """Make DGLGraphs with their labels, as DGL's collate does."""

    has_counts, has_pairs = True, False

    def __init__(self, schema: Schema) -> None:
        self._builder = BatchBuilder(schema)

    def __call__(self, graphs: GraphRows, totals: list[int], tensors: Sequence[Tensor]) -> Any:
        """Return ``(DGLGraph, labels)``, or the DGLGraph if there are no labels."""
        return self._builder.batch(totals, tensors)


class PlainBatches:
    """Make batches without padding from the arrays of a selection, for the framework of `face`."""

    def __init__(self, store: Selection, schema: Schema, face: Face) -> None:
        self._schema, self._face, self._parts = schema, face, store.parts
        self._types: list[GraphType | None] = [*schema.node_types, *schema.edge_types, None]
        self._tensors = [made for made in tensors_of(schema) if made[0][0] != "per_graph" or face.has_counts]
        # For each tensor: number of its type, shape of a row, dtype of numpy (None if numpy lacks it), dtype of torch.
        self._made = [
            (self._types.index(None if key[0] == "per_graph" else key[1]), row, _in_numpy(dtype), dtype)
            for key, dtype, row in self._tensors
        ]
        # The number of tensors at the start that are rows of one tensor: sources and destinations of each edge type.
        self._pairs = 2 * len(schema.edge_types) if face.has_pairs else 0
        # Nothing is padded, but the kernel needs an address.
        self._no_fill = np.zeros(1, np.uint8)
        self._fields = np.array([self._field(number) for number in range(len(self._tensors))], FIELD)
        self._stored = np.zeros((len(self._fields), len(self._parts)), ARRAY)
        for stored, (key, _, _) in zip(self._stored, self._tensors, strict=True):
            if key[0] != "per_graph":
                stored[:] = [array_record(part.array(*key)) for part in self._parts]

    def __call__(self, graphs: GraphRows) -> Any:
        """Return the batch of graphs."""
        totals = checked_totals(self._schema, graphs.totals)
        pairs = [
            new_tensor(2, (totals[t],), in_numpy, dtype) for t, _, in_numpy, dtype in self._made[: self._pairs : 2]
        ]
        tensors = [new_tensor(totals[t], row, in_numpy, dtype) for t, row, in_numpy, dtype in self._made[self._pairs :]]
        # Sources are the first half of a pair, destinations the second half.
        addresses = [pair.data_ptr() + row * pair.nbytes // 2 for pair in pairs for row in (0, 1)]
        addresses += [tensor.data_ptr() for tensor in tensors]
        memory = np.array(addresses, np.int64)
        wrong = assemble(
            memory, self._fields, self._stored, graphs.totals, graphs.ids, graphs.parts, graphs.rows, graphs.totals
        )
        # The kernel returns -1 - (f * n + i) if field f points outside graph i of n.
        if wrong:
            f, i = divmod(-1 - wrong, len(graphs.ids))
            self._parts[graphs.parts[i]].refuse_endpoints(int(graphs.part_ids[i]), *self._tensors[f][0])
        return self._face(graphs, totals, pairs + tensors)

    def _field(self, number: int) -> tuple[int, ...]:
        """Return the record `FIELD` (`_core/kernels/assemble.py`) of a tensor, which has its own stretch of memory."""
        key, dtype, row = self._tensors[number]
        content, t = key[:2]
        kind = PER_GRAPH if content == "per_graph" else ENDPOINTS if content in ENDS else ROWS
        nodes = self._types.index(t[0 if content == ENDS[0] else 2]) if kind == ENDPOINTS else 0
        if key in self._schema.index_columns:
            kind, nodes = INDICES, self._types.index(self._schema.index_columns[key])
        width, code = prod(row), CODES.get(DTYPES[str(dtype).removeprefix("torch.")], OTHER)
        fill = address_of(self._no_fill)
        return kind, self._types.index(t), nodes, number, 0, width, width * dtype.itemsize, code, fill, 1, 0


def tensors_of(schema: Schema) -> list[tuple[Key, torch.dtype, tuple[int, ...]]]:
    """Return key, dtype and shape of a row of each tensor of a batch, in the order that `BatchBuilder` expects."""
    return [
        *((("per_graph", t), torch.int64, ()) for t in (*schema.node_types, *schema.edge_types)),
        *(((end, e), schema.idtype, ()) for e in schema.edge_types for end in ENDS),
        *((key, spec.dtype, spec.shape) for key, spec in schema.columns()),
    ]


def checked_totals(schema: Schema, totals: IntArray) -> list[int]:
    """Return the numbers of nodes and edges of each type, and of graphs; SizesError if an index cannot number them."""
    checked: list[int] = totals.tolist()
    most = _MOST[schema.idtype]
    if max(checked[:-1]) > most:
        number, name = max(zip(checked, schema.components, strict=False))
        raise SizesError(
            f"the batch holds {number} {name}, but indices of {schema.idtype} number at most {most}; take fewer "
            "graphs, or write the store from graphs with g.long()."
        )
    return checked


def new_tensor(number: int, row: tuple[int, ...], in_numpy: np.dtype[Any] | None, dtype: torch.dtype) -> Tensor:
    """Return a new tensor of `number` rows; numpy allocates its memory in half the time that torch needs."""
    if in_numpy is None:
        return torch.empty((number, *row), dtype=dtype, device="cpu")
    return torch.from_numpy(np.empty((number, *row), in_numpy))


def _in_numpy(dtype: torch.dtype) -> np.dtype[Any] | None:
    name = str(dtype).removeprefix("torch.")
    return np.dtype(name) if DTYPES[name] == name else None
