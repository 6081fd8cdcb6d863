"""Whole padded batches out of the arrays of a store, by compiled copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from dgl_tuplepack._checks import whole_number
from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.kernels.gather import gather_endpoints, gather_widened, gather_words
from dgl_tuplepack.padding.batch import PaddedBatch
from dgl_tuplepack.padding.schema import ArraySpec
from dgl_tuplepack.padding.shape import PaddedShape
from dgl_tuplepack.sizes import IntArray
from dgl_tuplepack.sources.blocks import Array
from dgl_tuplepack.store.format import Key, columns_of
from dgl_tuplepack.store.memory import BatchMemory, batch_of_tensors
from dgl_tuplepack.store.places import Finder, Places
from dgl_tuplepack.store.values import as_array

if TYPE_CHECKING:
    from dgl_tuplepack.store.graph_store import GraphStore

_WORDS = {8: np.uint64, 4: np.uint32, 2: np.uint16, 1: np.uint8}


@dataclass(frozen=True)
class _Column:
    """A feature or label: its values in the store, flat, and how to copy them.

    `width` values make a row; copied as they are, they are seen as `words` words of the type `word`.
    """

    source: Array
    width: int
    fill: Any
    word: Any
    words: int

    @classmethod
    def of(cls, source: Array, spec: ArraySpec, fill: float) -> _Column:
        """How to copy an array of the store as values of `spec`."""
        padding = as_array(torch.full((1,), fill, dtype=spec.dtype))
        width, flat = prod(spec.shape), source.reshape(-1)
        if flat.dtype != padding.dtype:
            return cls(flat, width, padding[0], None, 0)
        word = _WORDS[min(flat.itemsize, 8)]
        return cls(flat.view(word), width, padding[0], word, width * flat.itemsize // np.dtype(word).itemsize)

    def copy(self, starts: IntArray, counts: IntArray, real: int, out: Array) -> None:
        """Copy the rows of some graphs, `real` in all, and fill the rest of `out`."""
        if self.word is None:
            gather_widened(self.source, self.width, starts, counts, out)
        else:
            gather_words(self.source, self.words, starts, counts, out.view(self.word))
        out[real * self.width :] = self.fill


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

    def __init__(self, store: GraphStore, shape: PaddedShape, ring: int = 0) -> None:
        self.store, self.shape = store, shape
        self.ring = whole_number("ring", ring, 0, error=SamplerError)
        if self.ring == 1:
            raise SamplerError("a ring of 1 would overwrite each batch by the next; use 0 (no ring), or 2 and more.")
        self._prepare()

    def _prepare(self) -> None:
        self._memory = BatchMemory(self.shape, self.ring)
        schema, arrays = self.shape.schema, self.store._arrays
        self._finder = Finder(self.store, self.shape)
        self._ends = [
            (end, e, t, arrays.array(end, e))
            for e in schema.edge_types
            for end, t in (("sources", e[0]), ("destinations", e[2]))
        ]
        fills = {None: self.shape.label_values}
        self._columns = [
            (key, _Column.of(arrays.array(*key), spec, fills.get(key[1], self.shape.feature_values)[key[2]]))
            for key, spec in columns_of(schema)
        ]

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
        starts, counts, totals = places.starts, places.counts, places.totals
        arrays, tensors = self._memory.take()
        for end, e, t, source in self._ends:
            bad = gather_endpoints(
                source, starts[e], counts[e], counts[t], arrays[end, e], totals[t], self.shape.num_nodes[t]
            )
            if bad:
                self.store._arrays.refuse_endpoints(int(places.graph_ids[-1 - bad]), e)
        for key, column in self._columns:
            column.copy(starts[key[1]], counts[key[1]], totals[key[1]], arrays[key])
        _fill_slots(arrays, places)
        return batch_of_tensors(self.shape, tensors, totals)


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
