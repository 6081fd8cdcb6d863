"""Batches without padding from the arrays of a selection: a DGLGraph as `dgl.batch` makes it, and labels."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.kernels.assemble import ENDPOINTS, FIELD, INDICES, PER_GRAPH, ROWS, assemble
from dgl_tuplepack._core.kernels.gather import ARRAY, CODES, OTHER
from dgl_tuplepack.errors import InputError, SizesError
from dgl_tuplepack.graphs.batch_builder import BatchBuilder
from dgl_tuplepack.graphs.blocks import GraphType
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.format import DTYPES, ENDS, Key
from dgl_tuplepack.storage.rows import Finder, GraphRows, address_of, array_record
from dgl_tuplepack.storage.selection import Selection

# The most nodes or edges that the index types of DGL can number.
_MOST = {idtype: torch.iinfo(idtype).max for idtype in (torch.int32, torch.int64)}


class BatchView:
    """Base of views whose item for a list of ids is a whole batch; `framework` is whose batch it is."""

    framework = "dgl"

    def __getitems__(self, ids: Sequence[int]) -> NoReturn:
        """Refuse (InputError) a loader that collates single graphs itself; torch's loaders call this."""
        loader = "tp.GraphDataLoader" if self.framework == "dgl" else "tp.pyg.DataLoader"
        raise InputError(
            "store.batched() makes whole batches, but this loader collates single graphs; give the store itself to "
            f"the loader that fetches whole batches, {loader}(store, batch_size=64, shuffle=True), or to any loader "
            "with a collate_fn of your own."
        )


class BatchedStore(BatchView):
    """View of a store whose item for a list of ids is ``(DGLGraph, labels)``, as DGL's collate makes it of the items.

    Made by `GraphStore.batched`. `GraphDataLoader` makes one of the store that it is given. In any other loader,
    ``sampler=PackBatchSampler(...), batch_size=None`` gives batches within limits on nodes and edges.

    Without labels the item is the DGLGraph alone. The item for a single id is that of the store. The empty list gives a
    batch of no graphs.

    Raises
    ------
    SizesError
        For an item: an id is not in 0..N-1, or more nodes or edges than the index type of the graphs can number.
    FormatError
        For an item: offsets or endpoints are wrong, since the files were damaged after opening.
    """

    def __init__(self, store: Selection, as_stored: bool = False) -> None:
        self.store, self.as_stored = store, as_stored
        self._prepare()

    def _prepare(self) -> None:
        schema = self._schema = self.store.batch_schema(self.as_stored)
        self._types: list[GraphType | None] = [*schema.node_types, *schema.edge_types, None]
        self._finder, self._parts = Finder(self.store), self.store.parts
        self._builder, self._tensors = self._builder_of(schema), self._tensors_of(schema)
        # Type and shape of a row of each tensor, and its dtype as numpy's, None where numpy lacks it, and torch's.
        self._made = [
            (self._types.index(None if key[0] == "per_graph" else key[1]), row, _in_numpy(dtype), dtype)
            for key, dtype, row in self._tensors
        ]
        # Nothing is padded, but the kernel takes an address.
        self._no_fill = np.zeros(1, np.uint8)
        self._fields = np.array([self._field(number) for number in range(len(self._tensors))], FIELD)
        self._stored = np.zeros((len(self._fields), len(self._parts)), ARRAY)
        for stored, (key, _, _) in zip(self._stored, self._tensors, strict=True):
            if key[0] != "per_graph":
                stored[:] = [array_record(part.array(*key)) for part in self._parts]

    def _builder_of(self, schema: Schema) -> Any:
        """Return what makes a batch of its tensors."""
        return BatchBuilder(schema)

    def _tensors_of(self, schema: Schema) -> list[tuple[Key, torch.dtype, tuple[int, ...]]]:
        """Return key, dtype and shape of a row of each tensor."""
        return tensors_of(schema)

    def _field(self, number: int) -> tuple[int, ...]:
        """Return the record `FIELD` of a tensor, which has a stretch of memory of its own, for the kernel."""
        key, dtype, row = self._tensors[number]
        content, t = key[:2]
        kind = PER_GRAPH if content == "per_graph" else ENDPOINTS if content in ENDS else ROWS
        nodes = self._types.index(t[0 if content == ENDS[0] else 2]) if kind == ENDPOINTS else 0
        if key in self._schema.index_columns:
            kind, nodes = INDICES, self._types.index(self._schema.index_columns[key])
        width, code = prod(row), CODES.get(DTYPES[str(dtype).removeprefix("torch.")], OTHER)
        fill = address_of(self._no_fill)
        return kind, self._types.index(t), nodes, number, 0, width, width * dtype.itemsize, code, fill, 1, 0

    def __getstate__(self) -> dict[str, Any]:
        return {"store": self.store, "as_stored": self.as_stored}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, ids: int | Sequence[int] | IntArray | Tensor) -> Any:
        if is_one_id(ids):
            return self.store[ids]  # type: ignore[index]
        return self._builder.batch(*self.tensors(ids)[1:])  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.store)

    def tensors(self, ids: Sequence[int] | IntArray | Tensor) -> tuple[GraphRows, list[int], list[Tensor]]:
        """Return the rows of the graphs, the numbers of all, and the tensors of their batch, as `tensors_of` says."""
        graphs, totals = self._found(ids)
        tensors = [new_tensor(totals[t], row, in_numpy, dtype) for t, row, in_numpy, dtype in self._made]
        self._fill(graphs, [tensor.data_ptr() for tensor in tensors])
        return graphs, totals, tensors

    def _found(self, ids: Sequence[int] | IntArray | Tensor) -> tuple[GraphRows, list[int]]:
        """Return the rows of the graphs, and the numbers of all."""
        graphs = self._finder.find(ids)
        return graphs, checked_totals(self._schema, graphs.totals)

    def _fill(self, graphs: GraphRows, addresses: list[int]) -> None:
        """Fill the tensors of a batch, which begin at these addresses."""
        memory = np.array(addresses, np.int64)
        wrong = assemble(
            memory, self._fields, self._stored, graphs.totals, graphs.ids, graphs.parts, graphs.rows, graphs.totals
        )
        if wrong:
            f, i = divmod(-1 - wrong, len(graphs.ids))
            self._parts[graphs.parts[i]].refuse_endpoints(int(graphs.part_ids[i]), *self._tensors[f][0])


def is_one_id(ids: Any) -> bool:
    """Whether `ids` is one id, and not several."""
    if isinstance(ids, list):
        return False
    try:
        operator.index(ids)
    except TypeError:
        return False
    return not isinstance(ids, np.ndarray | Tensor) or ids.ndim == 0


def tensors_of(schema: Schema) -> list[tuple[Key, torch.dtype, tuple[int, ...]]]:
    """Return key, dtype and shape of a row of each tensor of a batch, in the order that `BatchBuilder` takes."""
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
    """Return memory for `number` rows; that of numpy takes half as long to come by as that of torch."""
    if in_numpy is None:
        return torch.empty((number, *row), dtype=dtype, device="cpu")
    return torch.from_numpy(np.empty((number, *row), in_numpy))


def _in_numpy(dtype: torch.dtype) -> np.dtype[Any] | None:
    name = str(dtype).removeprefix("torch.")
    return np.dtype(name) if DTYPES[name] == name else None


def no_graphs(schema: Schema) -> Any:
    """Return a batch of no graphs."""
    tensors = [torch.empty((0, *row), dtype=dtype, device="cpu") for _, dtype, row in tensors_of(schema)]
    return BatchBuilder(schema).batch([0] * (len(schema.components) + 1), tensors)
