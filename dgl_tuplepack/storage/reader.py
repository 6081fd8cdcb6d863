"""The kind of source for stores and datasets of shards: a path, an opened store, or a subset of one."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dgl_tuplepack.graphs.blocks import Array, GraphBlock, GraphType, rows_of_spans
from dgl_tuplepack.graphs.readers.source import SizedSource, Source
from dgl_tuplepack.graphs.subsets import chosen_from
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.format import MANIFEST, METADATA, Key
from dgl_tuplepack.storage.graph_store import GraphStore, MultiStore, StoredGraphs
from dgl_tuplepack.storage.segment import GRAPHS_PER_BLOCK, Segment, block_of
from dgl_tuplepack.storage.selection import Selection
from dgl_tuplepack.storage.view import BatchView


class Stored(SizedSource):
    """A store that `GraphStore.write` made, or a dataset that `preprocess_shards` made."""

    def __init__(self, store: StoredGraphs) -> None:
        super().__init__(str(store.path), store)
        self.schema, self.pre_transform = store.schema, store.pre_transform
        self.ties, self.indices = store.schema.ties, store.schema.indices

    @classmethod
    def of_path(cls, path: Path, settings: Mapping[str, Any]) -> Source | None:
        """Recognise a folder by the file that is written last, `metadata.json` (store) or `manifest.json` (shards)."""
        return cls(open_stored(path)) if any(os.path.exists(path / file) for file in (METADATA, MANIFEST)) else None

    @classmethod
    def of_object(cls, given: Any) -> Stored | None:
        """Recognise an opened store, a view ``store.batched()``, and a subset of one of these."""
        if isinstance(given, BatchView) and not given.shapes:
            given = given.store
        subset = chosen_from(given)
        # An empty subset is read like an empty list.
        if subset is not None and len(subset.positions):
            inner = cls.of_object(subset.dataset)
            given = None if inner is None else inner.by_position().subset(subset.positions)
        return cls(given) if isinstance(given, StoredGraphs) else None

    def by_position(self) -> StoredGraphs:
        """Return the opened store."""
        store: StoredGraphs = self._given
        return store

    def static_shape(self, batch_size: int) -> Limits | None:
        """Return the stored shape of these graphs; shards have none."""
        return self._given.static_shape(batch_size) if isinstance(self._given, GraphStore) else None

    def blocks(self) -> Iterator[GraphBlock] | None:
        """Return all graphs in blocks: slices of the arrays or, for a subset, copies of the chosen rows."""
        if self._given.chosen is None:
            return itertools.chain.from_iterable(segment.blocks() for segment in self._given.segments)
        return _chosen_blocks(self._given, self._given.chosen)


def is_sharded(path: Path) -> bool:
    """Return whether a folder holds a dataset of shards."""
    return os.path.exists(path / MANIFEST)


def open_stored(path: Path) -> StoredGraphs:
    """Open the store, or the dataset of shards, in a folder."""
    return MultiStore(path) if is_sharded(path) else GraphStore(path)


def _chosen_blocks(selection: Selection, ids: IntArray) -> Iterator[GraphBlock]:
    """Yield the graphs `ids` in blocks of a few thousand graphs."""
    for segment in selection.segments:
        segment.check_positions()
    for first in range(0, len(ids), GRAPHS_PER_BLOCK):
        yield chosen_block(selection, ids[first : first + GRAPHS_PER_BLOCK])


class _SegmentGraphs(NamedTuple):
    """Some graphs of one segment, by their indices in the segment."""

    segment: Segment
    indices: IntArray

    def lengths(self, t: GraphType) -> IntArray:
        """Return the number of nodes (edges) of type `t` in each graph."""
        offsets = self.segment.offsets(t)
        return offsets[self.indices + 1] - offsets[self.indices]

    def values(self, key: Key) -> Array:
        """Return the rows of an array for these graphs."""
        t = key[1]
        if t is None:
            # Labels have one row for each graph.
            return self.segment.values(key, self.indices)
        return self.segment.values(key, rows_of_spans(self.segment.offsets(t)[self.indices], self.lengths(t)))


def chosen_block(selection: Selection, ids: IntArray) -> GraphBlock:
    """Return one block of the graphs `ids`, in the order of `ids`; without ids, the block is empty.

    `ids` are positions among all graphs of all segments, even for a subset. Rows are read segment by segment, then put
    into the order of `ids`.
    """
    segment_of = np.searchsorted(selection.first_ids, ids, side="right") - 1
    groups = [
        _SegmentGraphs(selection.segments[segment], ids[segment_of == segment] - selection.first_ids[segment])
        for segment in (np.unique(segment_of) if len(ids) else [0])
    ]
    # The graphs of all groups are sorted by segment: graph ids[i] is at index read_at[i].
    read_at = np.argsort(np.argsort(segment_of, kind="stable"))

    def lengths_as_read(t: GraphType) -> IntArray:
        """Return the number of nodes (edges) of type `t` in each graph; the graphs are sorted by segment."""
        return np.concatenate([group.lengths(t) for group in groups])

    def values(key: Key) -> Array:
        """Return the rows of an array for all graphs, in the order of `ids`."""
        gathered = [group.values(key) for group in groups]
        if len(gathered) == 1:
            # With one segment, sorting has not changed the order.
            return gathered[0]
        t = key[1]
        if t is None:
            return np.concatenate(gathered)[read_at]
        lengths = lengths_as_read(t)
        first_rows = np.cumsum(lengths) - lengths
        return np.concatenate(gathered)[rows_of_spans(first_rows[read_at], lengths[read_at])]

    return block_of(selection.schema, lambda t: lengths_as_read(t)[read_at], values)
