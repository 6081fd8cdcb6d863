"""Batches without padding from the arrays of opened stores, assembled in one compiled pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.graphs.blocks import ENDS
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.format import DTYPES, Key
from dgl_tuplepack.storage.padded import Assembler, Field
from dgl_tuplepack.storage.selection import Selection
from dgl_tuplepack.storage.view import GraphRows

# Index type of DGL -> largest number of nodes or edges that it can count.
_MOST = {idtype: torch.iinfo(idtype).max for idtype in (torch.int32, torch.int64)}


# Makes a batch from three arguments: the rows of its graphs; the numbers of nodes of each type, of edges of each type,
# and of graphs; and the tensors, in the order of `tensors_of`.
_MakeBatch = Callable[[GraphRows, list[int], Sequence[Tensor]], Any]


class _TensorSpec(NamedTuple):
    """A tensor of every batch: the index of its number of rows in the totals, the shape of a row, and the dtype."""

    type_index: int
    row: tuple[int, ...]
    in_numpy: np.dtype[Any] | None
    dtype: torch.dtype


class PlainBatches:
    """Make batches without padding.

    With `for_pyg`, `make_batch` gets no tensors with the numbers of nodes and edges in each graph. It gets the sources
    and destinations of each edge type as one tensor ``[2, E]``.
    """

    def __init__(self, store: Selection, schema: Schema, make_batch: _MakeBatch, for_pyg: bool) -> None:
        self._schema, self._make_batch = schema, make_batch
        # The tensors "per_graph" have the number of nodes (edges) in each graph.
        made = [entry for entry in tensors_of(schema) if entry[0][0] != "per_graph" or not for_pyg]
        # The type None is for labels and "per_graph", which have one row for each graph.
        types = [*schema.types.values(), None]
        specs = [
            _TensorSpec(types.index(None if key[0] == "per_graph" else key[1]), row, _in_numpy(dtype), dtype)
            for key, dtype, row in made
        ]
        # For PyG, the tensors begin with sources and destinations of each edge type, which share a tensor.
        in_pairs = 2 * len(schema.edge_types) if for_pyg else 0
        self._pairs, self._others = specs[:in_pairs:2], specs[in_pairs:]
        # Each tensor is a stretch of memory of its own; its number of rows is not used here, so it is 0. Nothing is
        # padded, but the kernel needs arrays of padding rows.
        fields = [Field(key, dtype, (0, *row), stretch) for stretch, (key, dtype, row) in enumerate(made)]
        self._assembler = Assembler(store, schema, fields, [np.zeros(1, np.uint8)] * len(fields))

    def __call__(self, graphs: GraphRows) -> Any:
        """Return the batch of the given graphs."""
        totals = checked_totals(self._schema, graphs.totals)
        # One tensor [2, E] for each edge type: sources are its first half, destinations its second half.
        pairs = [new_tensor(2, (totals[i],), in_numpy, dtype) for i, _, in_numpy, dtype in self._pairs]
        others = [new_tensor(totals[i], row, in_numpy, dtype) for i, row, in_numpy, dtype in self._others]
        addresses = [pair.data_ptr() + half * pair.nbytes // 2 for pair in pairs for half in (0, 1)]
        addresses += [tensor.data_ptr() for tensor in others]
        self._assembler.fill(np.array(addresses, np.int64), graphs, graphs.totals)
        return self._make_batch(graphs, totals, pairs + others)


def tensors_of(schema: Schema) -> list[tuple[Key, torch.dtype, tuple[int, ...]]]:
    """Return key, dtype and shape of a row for each tensor, in the order that `BatchBuilder.batch` needs."""
    return [
        *((("per_graph", t), torch.int64, ()) for t in (*schema.node_types, *schema.edge_types)),
        *(((end, e), schema.idtype, ()) for e in schema.edge_types for end in ENDS),
        *((key, spec.dtype, spec.shape) for key, spec in schema.columns()),
    ]


def checked_totals(schema: Schema, totals: IntArray) -> list[int]:
    """Return the numbers of nodes and edges of each type, and of graphs, as a list.

    Raise SizesError if there are more nodes or edges than the index type can count.
    """
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


def new_tensor(number: int, row: tuple[int, ...], in_numpy: np.dtype[Any] | None, dtype: torch.dtype) -> Tensor:
    """Return a new tensor of `number` rows of the shape `row`.

    If numpy has the dtype (`in_numpy`), numpy allocates the memory, in half the time that torch needs.
    """
    if in_numpy is None:
        return torch.empty((number, *row), dtype=dtype, device="cpu")
    return torch.from_numpy(np.empty((number, *row), in_numpy))


def _in_numpy(dtype: torch.dtype) -> np.dtype[Any] | None:
    """Return numpy's dtype for a dtype of torch; None if numpy lacks it."""
    name = str(dtype).removeprefix("torch.")
    return np.dtype(name) if DTYPES[name] == name else None
