"""Stores as sources of graphs: a path, an opened store or a subset of one; and any other source as a store."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from dgl_tuplepack._core.files import writing
from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.graphs.blocks import Array, GraphBlock, GraphType, rows_of_spans
from dgl_tuplepack.graphs.build import chosen_from
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.graphs.readers.large_graph import check_names
from dgl_tuplepack.graphs.readers.source import SizedSource, Source
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.format import MANIFEST, METADATA, Key
from dgl_tuplepack.storage.graph_store import GraphStore, MultiStore, StoredGraphs
from dgl_tuplepack.storage.selection import GRAPHS_PER_BLOCK, Selection, block_of
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


def chosen_block(selection: Selection, ids: IntArray) -> GraphBlock:
    """Return one block of the graphs `ids`, in this order; `ids` are positions among all graphs of all segments."""
    segment_of = np.searchsorted(selection.first_ids, ids, side="right") - 1
    # For each segment with chosen graphs: the segment, their positions in `ids`, and their indices in the segment.
    groups = [
        (selection.segments[i], at := np.flatnonzero(segment_of == i), ids[at] - selection.first_ids[i])
        for i in (np.unique(segment_of) if len(ids) else [0])
    ]
    positions = np.concatenate([at for _, at, _ in groups])

    def lengths(t: GraphType) -> IntArray:
        """Return the number of nodes (edges) of type `t` in each graph, in the order of `ids`."""
        found = np.empty(len(ids), np.int64)
        for segment, at, indices in groups:
            found[at] = segment.offsets(t)[indices + 1] - segment.offsets(t)[indices]
        return found

    def values(key: Key) -> Array:
        """Return the rows of an array for all graphs, in the order of `ids`."""
        # Labels, of the type None, have one row for each graph.
        t, numbers = key[1], None if key[1] is None else lengths(key[1])
        gathered = [
            segment.values(key, indices if numbers is None else rows_of_spans(segment.offsets(t)[indices], numbers[at]))
            for segment, at, indices in groups
        ]
        if len(gathered) == 1:
            return gathered[0]
        # The rows were read segment by segment.
        rows = positions
        if numbers is not None:
            rows = rows_of_spans((np.cumsum(numbers) - numbers)[positions], numbers[positions])
        joined = np.concatenate(gathered)
        found = np.empty_like(joined)
        found[rows] = joined
        return found

    return block_of(selection.schema, lengths, values)


@contextmanager
def as_store(source: Any, folder: Path, levels: Levels | None) -> Iterator[StoredGraphs]:
    """Provide a store with the graphs of a source, whose names `check_names` checks.

    A source that is not a store is written to `folder`, which is removed at the end of the ``with`` block.
    """
    opened = resolve(source).with_levels(levels)
    # The graphs of ``with_ids(store)`` are read as items.
    if isinstance(opened, Stored) and isinstance(store := opened.by_position(), StoredGraphs):
        check_names(store.schema)
        yield store
        return
    try:
        store = _written(folder, opened)
        check_names(store.schema)
        yield store
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _written(folder: Path, source: Source, **declared: Any) -> GraphStore:
    if source.num_graphs() == 0:
        raise SizesError(f"{source.title} has no graphs; at least one is needed.")
    return GraphStore.write(folder, source, overwrite=True, **declared)


def temporary_store(source: Source, **declared: Any) -> GraphStore:
    """Write a source to a temporary folder, and return the store; `declared` has ties, indices and levels.

    The folder is removed when the store and all its subsets are deleted, or when the process exits.
    """
    folder = _Folder()
    store = _written(Path(folder.path, "store"), source, **declared)
    # Subsets of the store share this attribute.
    store.__dict__["_folder"] = folder
    return store


class _Folder:
    """A temporary folder, with these files, that is removed together with this object. A pickled copy has the files."""

    def __init__(self, files: Mapping[Path, bytes] = MappingProxyType({})) -> None:
        with writing("a temporary folder"):
            self.path = tempfile.mkdtemp(prefix="dgl_tuplepack-")
        weakref.finalize(self, _remove, self.path, os.getpid())
        for name, content in files.items():
            (Path(self.path) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(self.path) / name).write_bytes(content)

    def __deepcopy__(self, memo: Any) -> _Folder:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        files = [path for path in Path(self.path).rglob("*") if path.is_file()]
        return _Folder, ({path.relative_to(self.path): path.read_bytes() for path in files},)


def _remove(path: str, process: int) -> None:
    # A forked worker has a copy of the `_Folder`, but only the process that made the folder may remove it.
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)
