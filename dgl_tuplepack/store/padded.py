"""Whole padded batches out of the arrays of a store, or of several, by compiled copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import get_worker_info

from dgl_tuplepack._checks import whole_number
from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.kernels.gather import add_loops, gather_endpoints, gather_widened, gather_words
from dgl_tuplepack.padding.batch import PaddedBatch
from dgl_tuplepack.padding.schema import ArraySpec, EdgeType
from dgl_tuplepack.padding.shape import PaddedShape
from dgl_tuplepack.sizes import IntArray
from dgl_tuplepack.sources.blocks import Array
from dgl_tuplepack.store.format import Key, columns_of
from dgl_tuplepack.store.memory import BatchMemory, batch_of_tensors
from dgl_tuplepack.store.places import Finder, Places, addresses_of
from dgl_tuplepack.store.values import as_array

if TYPE_CHECKING:
    from dgl_tuplepack.store.stored_graphs import StoredGraphs

# Parts, starts, counts and firsts of graphs, as in `Places`.
_Rows = tuple[IntArray, IntArray, IntArray, IntArray]

_WORDS = {8: np.uint64, 4: np.uint32, 2: np.uint16, 1: np.uint8}


@dataclass(frozen=True)
class _Form:
    """An array in those parts of a store that hold it in one dtype; `holds` tells which, None: all of them.

    `like` is flat, and of that dtype. `addresses` are meaningless for other parts.
    """

    like: Array
    addresses: IntArray
    holds: NDArray[np.bool_] | None

    @classmethod
    def all_of(cls, arrays: Sequence[Array]) -> list[_Form]:
        """One form for each dtype that any part holds an array in."""
        dtypes = {array.dtype: array for array in arrays}
        addresses = addresses_of(arrays)
        if len(dtypes) == 1:
            return [cls(arrays[0].reshape(-1), addresses, None)]
        return [
            cls(like.reshape(-1), addresses, np.array([array.dtype == dtype for array in arrays]))
            for dtype, like in dtypes.items()
        ]

    def rows(self, places: Places, t: Any) -> tuple[IntArray | None, _Rows]:
        """Positions in the batch of the graphs that this form holds (None: all), and where their rows are."""
        parts, starts, counts, firsts = places.parts, places.starts[t], places.counts[t], places.firsts[t]
        if self.holds is None:
            return None, (parts, starts, counts, firsts)
        chosen = np.flatnonzero(self.holds[parts])
        return chosen, (parts[chosen], starts[chosen], counts[chosen], firsts[chosen])


@dataclass(frozen=True)
class _Column:
    """A feature or label: how its values are stored, and how to copy them.

    `width` values make a row. Forms that are copied as they are, are seen as words, so many to a value; else 0.
    """

    forms: list[tuple[_Form, int]]
    width: int
    fill: Any

    @classmethod
    def of(cls, arrays: Sequence[Array], spec: ArraySpec, fill: float) -> _Column:
        """How to copy an array of the store as values of `spec`."""
        padding = as_array(torch.full((1,), fill, dtype=spec.dtype))
        forms = []
        for form in _Form.all_of(arrays):
            size, words = form.like.itemsize, 0
            if form.like.dtype == padding.dtype:
                word = _WORDS[min(size, 8)]
                words, form = size // np.dtype(word).itemsize, replace(form, like=form.like.view(word))
            forms.append((form, words))
        return cls(forms, prod(spec.shape), padding[0])

    def copy(self, places: Places, t: Any, out: Array) -> None:
        """Copy the rows of the graphs, and fill the rest of `out`."""
        for form, words in self.forms:
            _, rows = form.rows(places, t)
            if words:
                gather_words(form.like, self.width * words, form.addresses, *rows, out.view(form.like.dtype))
            else:
                gather_widened(form.like, self.width, form.addresses, *rows, out)
        out[places.totals[t] * self.width :] = self.fill


class PaddedStore:
    """View of a store whose item for a list of ids is one whole `PaddedBatch`.

    Made by `GraphStore.padded`, for a loader with ``sampler=PackBatchSampler(...), batch_size=None``. Batches equal
    those of `PaddedCollate` on the same graphs. The empty list gives a batch of padding alone.

    Raises
    ------
    GraphTooLargeError, SizesError
        For an item: the graphs exceed the packs, or an id is not in 0..N-1.
    FormatError
        For an item: what was read cannot be right, since the files were damaged after opening.
    """

    def __init__(self, store: StoredGraphs, shape: PaddedShape, ring: int = 0) -> None:
        self.store, self.shape = store, shape
        self.ring = whole_number("ring", ring, 0, error=SamplerError)
        if self.ring == 1:
            raise SamplerError("a ring of 1 would overwrite each batch by the next; use 0 (no ring), or 2 and more.")
        self._prepare()

    def _prepare(self) -> None:
        self._memory = BatchMemory(self.shape, self.ring)
        schema, arrays = self.shape.schema, self.store._arrays
        self._finder = Finder(self.store, self.shape)
        # Kept, since what compiled code knows is their addresses alone.
        self._parts = parts = arrays.parts
        self._ends = [
            (end, e, t, _Form.all_of([part.array(end, e) for part in parts]))
            for e in schema.edge_types
            for end, t in (("sources", e[0]), ("destinations", e[2]))
        ]
        fills = {None: self.shape.label_values}
        self._columns = []
        for key, spec in columns_of(schema):
            fill = fills.get(key[1], self.shape.feature_values)[key[2]]
            self._columns.append((key, _Column.of([part.array(*key) for part in parts], spec, fill)))

    def __getstate__(self) -> dict[str, Any]:
        return {"store": self.store, "shape": self.shape, "ring": self.ring}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, ids: Sequence[int] | IntArray | Tensor) -> PaddedBatch:
        if self.ring and get_worker_info() is not None:
            raise SamplerError("a ring of buffers works in the main process only; use ring=0 or num_workers=0.")
        places = self._finder.find(ids)
        arrays, tensors = self._memory.take()
        for end, e, t, forms in self._ends:
            self._move_endpoints(forms, places, e, t, arrays[end, e])
        for key, column in self._columns:
            column.copy(places, key[1], arrays[key])
        _fill_slots(arrays, places)
        return batch_of_tensors(self.shape, tensors, places.totals)

    def _move_endpoints(self, forms: list[_Form], places: Places, e: EdgeType, t: str, out: Array) -> None:
        """Endpoints of the graphs, which are nodes of type `t`, then those of padding edges."""
        for form in forms:
            chosen, rows = form.rows(places, e)
            nodes, first_nodes = places.counts[t], places.firsts[t]
            if chosen is not None:
                nodes, first_nodes = nodes[chosen], first_nodes[chosen]
            bad = gather_endpoints(form.like, form.addresses, *rows, nodes, first_nodes, out)
            if bad:
                position = -1 - bad if chosen is None else chosen[-1 - bad]
                self._parts[places.parts[position]].refuse_endpoints(int(places.part_ids[position]), e)
        add_loops(out[places.totals[e] :], places.totals[t], self.shape.num_nodes[t])


def _fill_slots(arrays: Mapping[Key, Array], places: Places) -> None:
    """Masks, ids, and the sizes of all graph slots."""
    number = len(places)
    for t, total in places.totals.items():
        mask = arrays["mask", t]
        mask[:total] = True
        mask[total:] = False
        if t is not None:
            per_graph = arrays["per_graph", t]
            per_graph[:number] = places.counts[t]
            per_graph[number:-1] = 0
            per_graph[-1] = len(mask) - total
    arrays["graph_ids",][:number] = places.own_ids
    arrays["graph_ids",][number:] = -1
