"""Batches without padding from the arrays of a selection, assembled in one compiled pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.graphs.blocks import ENDS
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.assembler import Assembler
from dgl_tuplepack.storage.format import DTYPES, Key
from dgl_tuplepack.storage.memory import Field
from dgl_tuplepack.storage.rows import GraphRows
from dgl_tuplepack.storage.selection import Selection

# Index type of DGL -> the most nodes or edges that it can number.
_MOST = {idtype: torch.iinfo(idtype).max for idtype in (torch.int32, torch.int64)}


# Makes a batch from the rows of its graphs, the numbers of nodes of each type, edges of each type and graphs, and the
# tensors in the order of `tensors_of`.
_MakeBatch = Callable[[GraphRows, list[int], Sequence[Tensor]], Any]


class PlainBatches:
    """Make batches without padding from the arrays of a selection.

    With `for_pyg`, `make_batch` gets no numbers of nodes and edges of each graph, and the endpoints of each edge type
    as one tensor ``[2, E]``.
    """

    def __init__(self, store: Selection, schema: Schema, make_batch: _MakeBatch, for_pyg: bool) -> None:
        self._schema, self._make_batch = schema, make_batch
        made = [made for made in tensors_of(schema) if made[0][0] != "per_graph" or not for_pyg]
        # For each tensor: number of its type, shape of a row, dtype of numpy (None if numpy lacks it), dtype of torch.
        types = [*schema.types.values(), None]
        self._made = [
            (types.index(None if key[0] == "per_graph" else key[1]), row, _in_numpy(dtype), dtype)
            for key, dtype, row in made
        ]
        # The number of tensors at the start that are rows of one tensor: sources and destinations of each edge type.
        self._pairs = 2 * len(schema.edge_types) if for_pyg else 0
        # Each tensor has its own memory. Nothing is padded, but the kernel needs an address.
        fields = [Field(key, dtype, (0, *row), stretch) for stretch, (key, dtype, row) in enumerate(made)]
        self._assembler = Assembler(store, schema, fields, [np.zeros(1, np.uint8)] * len(fields))

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
        self._assembler.fill(np.array(addresses, np.int64), graphs, graphs.totals)
        return self._make_batch(graphs, totals, pairs + tensors)


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
            f"the batch holds {number} {name}, but indices of {schema.idtype} number at most {most}; use fewer graphs "
            "per batch, or write the store from graphs with 64-bit indices, g.long()."
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
