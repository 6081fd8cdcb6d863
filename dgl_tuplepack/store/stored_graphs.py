"""Graphs on the disk, in one store or in several, and all that can be asked of them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._checks import as_ids, true_or_false
from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import FormatError, SizesError
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.padding import PaddedBatch
from dgl_tuplepack.padding.shape import Fill, PaddedShape
from dgl_tuplepack.sizes import GraphSizes, IntArray
from dgl_tuplepack.store.device import DeviceStore
from dgl_tuplepack.store.joined import Arrays
from dgl_tuplepack.store.padded import PaddedStore

Stored = TypeVar("Stored", bound="StoredGraphs")


class StoredGraphs:
    """What `GraphStore` and `MultiStore` have in common: everything but how they are opened.

    Attributes
    ----------
    path
        The folder.
    schema
        Types, features and labels of the graphs.
    original_ids
        int64 ``[N]``, ids in the store; those of a subset count from 0.
    """

    def __init__(self, path: Path, arrays: Arrays, ids: IntArray | None = None) -> None:
        self.path, self._arrays, self._ids = path, arrays, ids

    def __len__(self) -> int:
        return self._arrays.num_graphs if self._ids is None else len(self._ids)

    @property
    def schema(self) -> Schema:
        """Types, features and labels of the graphs."""
        return self._arrays.schema

    @property
    def original_ids(self) -> IntArray:
        """int64 ``[N]``, the id in the store of each graph."""
        return np.arange(len(self)) if self._ids is None else self._ids

    @functools.cached_property
    def sizes(self) -> GraphSizes:
        """Sizes of the graphs, without a look at them."""
        sizes = self._arrays.sizes
        return sizes if self._ids is None else sizes.take(self._ids)

    @property
    def histogram(self) -> SizeHistogram:
        """Histogram of the sizes; stored, where this is no subset."""
        return self._arrays.histogram if self._ids is None else SizeHistogram.from_sizes(self.sizes).without_ids()

    @property
    def splits(self) -> dict[str, IntArray]:
        """Ids by name of the split, as written; of a subset, none."""
        return dict(self._arrays.splits) if self._ids is None else {}

    def subset(self: Stored, ids: Sequence[int] | IntArray | Tensor) -> Stored:
        """Some of the graphs, in the given order; they get the ids 0, 1, ...

        Raises
        ------
        SizesError
            There are no ids, or one is not in 0..N-1.
        """
        chosen = as_ids(ids, len(self))
        if not len(chosen):
            raise SizesError("a subset needs at least one id, but got none.")
        # The same opened files; copy.copy would open the path again, where another store may be by now.
        part = type(self).__new__(type(self))
        part.__dict__.update(self.__dict__, _ids=_owned(chosen if self._ids is None else self._ids[chosen]))
        # What is cached belongs to the whole.
        part.__dict__.pop("sizes", None)
        return part

    def __getitem__(self, index: int) -> Any:
        """Graph `index` as a DGLGraph, or (DGLGraph, label); features are copies."""
        try:
            index = operator.index(index)
        except TypeError as error:
            raise SizesError(
                f"a store is indexed by one integer, but got {index!r:.200}; use subset(ids) or batch(ids, limits)."
            ) from error
        (graph_id,) = as_ids([index + len(self) if -len(self) <= index < 0 else index], len(self))
        return self._arrays.item(int(graph_id if self._ids is None else self._ids[graph_id]))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def padded(
        self,
        limits: Limits,
        packs_per_batch: int = 1,
        *,
        label_fill: Fill = 0,
        feature_fill: Fill = 0,
        cover_padding: bool = False,
        idtype: torch.dtype = torch.int64,
        as_stored: bool = False,
        ring: int = 0,
        separate: bool = False,
    ) -> PaddedStore:
        """View whose item for a list of ids is one `PaddedBatch`: for a loader with ``batch_size=None``.

        Parameters
        ----------
        limits, packs_per_batch, label_fill, feature_fill, cover_padding, idtype
            As in `PaddedCollate`, whose batches these equal.
        as_stored
            Hand out integers that were narrowed by ``compact=True`` as they are stored.
        ring
            Take the memory of batches in turn from so many (>= 2) buffers, pinned where there is CUDA; 0: each batch
            has its own. A batch is overwritten when `ring` more have been taken: use it up before, or copy it.
            In the main process only.
        separate
            Give each tensor of a batch a memory of its own, instead of one for all of a dtype: for layers that free the
            storage of their input, such as DGL's GroupRevRes, and for tensors that are kept longer than their batch.
        """
        schema = self._arrays.stored_schema if true_or_false("as_stored", as_stored) else self.schema
        shape = PaddedShape(schema, limits, packs_per_batch, label_fill, feature_fill, cover_padding, idtype)
        return PaddedStore(self, shape, ring, separate)

    def batch(
        self, ids: Sequence[int] | IntArray | Tensor, limits: Limits, packs_per_batch: int = 1, **settings: Any
    ) -> PaddedBatch:
        """One padded batch of the graphs `ids`; settings as in `padded`, which is the quicker way to many."""
        return self.padded(limits, packs_per_batch, **settings)[ids]

    def to(self, device: torch.device | str) -> DeviceStore:
        """Copy all arrays to a device, to assemble batches there.

        Needs as much memory there as the files take, or somewhat more (endpoints of 16 bits take 32, parts are as wide
        as the widest of them); the arrays of the whole store go there, also for a subset.
        """
        return DeviceStore(self, device)

    def as_dgl_dataset(self) -> Any:
        """The store as a `dgl.data.DGLDataset`, for code that asks for one."""
        load("dgl")
        from dgl_tuplepack.store.dgl_dataset import StoreDataset

        return StoreDataset(self)

    def verify(self) -> None:
        """Compare every byte of the files with their checksums, and the arrays with each other.

        Raises
        ------
        FormatError
            Names the first file that is not as it was written.
        """
        self._arrays.verify()

    def __reduce__(self) -> tuple[Any, ...]:
        # A path, not the data: workers map the same files.
        return _reopened, (type(self), self.path, self._arrays.checksum, self._ids)

    def __repr__(self) -> str:
        totals = self.sizes.totals()
        return f"{type(self).__name__}({len(self)} graphs, {', '.join(f'{totals[name]} {name}' for name in totals)})"


def _owned(ids: IntArray) -> IntArray:
    """A copy that neither who gave the ids nor the file they came from can change: compiled code trusts it."""
    ids = ids.copy()
    ids.setflags(write=False)
    return ids


def _reopened(kind: Any, path: Path, checksum: str, ids: IntArray | None) -> Any:
    store = kind(path)
    if store._arrays.checksum != checksum:
        raise FormatError(f"{path} was written anew since it was opened; open it again in every process.")
    store._ids = None if ids is None else _owned(ids)
    return store
