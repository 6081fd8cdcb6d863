"""Batches without padding from the arrays of a selection: a DGLGraph as `dgl.batch` makes it, and labels."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack.errors import InputError, SizesError
from dgl_tuplepack.graphs.blocks import GraphType
from dgl_tuplepack.graphs.build import build_batch
from dgl_tuplepack.graphs.schema import Schema, as_label
from dgl_tuplepack.kernels.assemble import ENDPOINTS, FIELD, PER_GRAPH, ROWS, assemble
from dgl_tuplepack.kernels.gather import ARRAY, CODES, OTHER
from dgl_tuplepack.sizes import IntArray
from dgl_tuplepack.store.format import DTYPES, ENDS, Key
from dgl_tuplepack.store.rows import Finder, GraphRows, address_of, array_record
from dgl_tuplepack.store.selection import Selection


class BatchedStore:
    """View of a store whose item for a list of ids is ``(DGLGraph, labels)``, as DGL's collate makes it of the items.

    Made by `GraphStore.batched`. It stands in for the dataset of a script: a loader that batches by itself, such as
    ``GraphDataLoader(view, batch_size=64, shuffle=True)``, gets whole batches too. With
    ``sampler=PackBatchSampler(...), batch_size=None`` batches keep a limit on nodes and edges.

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
        # Key, dtype and shape of a row of each tensor of a batch.
        self._tensors: list[tuple[Key, torch.dtype, tuple[int, ...]]] = [
            *((("per_graph", t), torch.int64, ()) for t in self._types[:-1]),
            *(((end, e), schema.idtype, ()) for e in schema.edge_types for end in ENDS),
            *((key, spec.dtype, spec.shape) for key, spec in schema.columns()),
        ]
        # Nothing is padded, but the kernel takes an address.
        self._no_fill = np.zeros(1, np.uint8)
        self._fields = np.array([self._field(number) for number in range(len(self._tensors))], FIELD)
        self._stored = np.zeros((len(self._fields), len(self._parts)), ARRAY)
        for stored, (key, _, _) in zip(self._stored, self._tensors, strict=True):
            if key[0] != "per_graph":
                stored[:] = [array_record(part.array(*key)) for part in self._parts]

    def _field(self, number: int) -> tuple[int, ...]:
        """Return the record `FIELD` of a tensor, which has a stretch of memory of its own, for the kernel."""
        key, dtype, row = self._tensors[number]
        content, t = key[:2]
        kind = PER_GRAPH if content == "per_graph" else ENDPOINTS if content in ENDS else ROWS
        nodes = self._types.index(t[0 if content == ENDS[0] else 2]) if kind == ENDPOINTS else 0
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
        return batch_of(self._schema, *self.tensors(ids)[1:])  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.store)

    def tensors(self, ids: Sequence[int] | IntArray | Tensor) -> tuple[GraphRows, dict[Any, int], dict[Key, Tensor]]:
        """Return the rows of the graphs, the numbers of all by type, and the tensors of their batch."""
        graphs = self._finder.find(ids)
        totals = checked_totals(self._schema, graphs.totals)
        tensors = {
            key: torch.empty((totals[None if key[0] == "per_graph" else key[1]], *row), dtype=dtype, device="cpu")
            for key, dtype, row in self._tensors
        }
        memory = np.array([tensor.data_ptr() for tensor in tensors.values()], np.int64)
        wrong = assemble(
            memory, self._fields, self._stored, graphs.totals, graphs.ids, graphs.parts, graphs.rows, graphs.totals
        )
        if wrong:
            f, i = divmod(-1 - wrong, len(graphs.ids))
            end, edge_type = self._tensors[f][0]
            self._parts[graphs.parts[i]].refuse_endpoints(int(graphs.part_ids[i]), end, edge_type)
        return graphs, totals, tensors

    def __getitems__(self, ids: Sequence[int]) -> list[Any]:
        """Return what the collate functions of DGL and torch turn into the batch; torch's loaders call this."""
        return collatable(self[ids])


def is_one_id(ids: Any) -> bool:
    """Whether `ids` is one id, and not several."""
    try:
        operator.index(ids)
    except TypeError:
        return False
    return not isinstance(ids, np.ndarray | Tensor) or ids.ndim == 0


def checked_totals(schema: Schema, totals: IntArray) -> dict[Any, int]:
    """Return the numbers of nodes and edges of each type, and of graphs; SizesError if an index cannot number them."""
    checked = dict(zip((*schema.node_types, *schema.edge_types, None), totals.tolist(), strict=True))
    most = torch.iinfo(schema.idtype).max
    for name, number in zip(schema.components, checked.values(), strict=False):
        if number > most:
            raise SizesError(
                f"the batch holds {number} {name}, but indices of {schema.idtype} number at most {most}; take fewer "
                "graphs, or write the store from graphs with g.long()."
            )
    return checked


def batch_of(schema: Schema, totals: Mapping[Any, int], tensors: Mapping[Key, Tensor]) -> Any:
    """Make ``(DGLGraph, labels)``, or the DGLGraph alone, of the tensors of a batch by content, type and name."""
    graph = build_batch(
        {e: (tensors[ENDS[0], e], tensors[ENDS[1], e]) for e in schema.edge_types},
        (
            {t: {n: tensors["node_feature", t, n] for n in names} for t, names in schema.node_features.items()},
            {e: {n: tensors["edge_feature", e, n] for n in names} for e, names in schema.edge_features.items()},
        ),
        {t: tensors["per_graph", t] for t in schema.node_types},
        {e: tensors["per_graph", e] for e in schema.edge_types},
        {t: totals[t] for t in schema.node_types},
    )
    labels = {name: tensors["label", None, name] for name in schema.labels}
    return (graph, as_label(labels)) if labels else graph


def no_graphs(schema: Schema) -> Any:
    """Return a batch of no graphs, as `batch_of` makes one."""
    types: list[GraphType | None] = [*schema.node_types, *schema.edge_types, None]
    tensors: dict[Key, Tensor] = {("per_graph", t): torch.empty(0, dtype=torch.int64) for t in types[:-1]}
    tensors |= {(end, e): torch.empty(0, dtype=schema.idtype) for e in schema.edge_types for end in ENDS}
    tensors |= {key: torch.empty((0, *spec.shape), dtype=spec.dtype) for key, spec in schema.columns()}
    return batch_of(schema, dict.fromkeys(types, 0), tensors)


class _Text(str):
    """A text that carries a batch: collate functions hand lists of texts on as they are."""

    batch: Any


class _Whole(tuple[_Text]):
    """A named tuple of one text. Another one made of the collated texts is the batch that the text carries."""

    _fields = ("text",)

    def __new__(cls, texts: list[_Text]) -> Any:
        return texts[0].batch

    def __iter__(self) -> Iterator[_Text]:
        _refuse_others(sys._getframe(1).f_globals)
        return super().__iter__()

    def __getitem__(self, index: Any) -> Any:
        _refuse_others(sys._getframe(1).f_globals)
        return super().__getitem__(index)


def _refuse_others(scope: Mapping[str, Any]) -> None:
    """Refuse (InputError) to be taken apart by code that would take the text for a graph; `scope` has its globals."""
    if str(scope.get("__name__")).partition(".")[0] not in ("dgl", "torch", "torch_geometric"):
        raise InputError(
            "store.batched() gives whole batches to loaders, which only the collate functions of DGL and torch hand "
            "on; a collate_fn of your own wants single graphs: give the loader the store in place of store.batched(), "
            "or leave collate_fn out."
        )


def collatable(batch: Any) -> list[Any]:
    """Return a list that the collate functions of DGL and torch turn into `batch`."""
    text = _Text()
    text.batch = batch
    return [tuple.__new__(_Whole, (text,))]
