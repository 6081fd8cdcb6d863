"""Stores and datasets of shards as sources, by their paths or opened, or a subset of one: read in blocks."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.graphs.blocks import Array, EdgeType, GraphBlock, GraphType
from dgl_tuplepack.sizes import GraphSizes, IntArray
from dgl_tuplepack.sources import Source
from dgl_tuplepack.store.format import DTYPES, ENDS, MANIFEST, METADATA
from dgl_tuplepack.store.graph_store import GraphStore, StoredGraphs
from dgl_tuplepack.store.multi_store import MultiStore
from dgl_tuplepack.store.selection import Selection

# Graphs of a subset in a block.
_GRAPHS = 4096


class Stored(Source):
    """What `GraphStore.write` or `preprocess_shards` made."""

    knows_sizes = True

    def __init__(self, store: StoredGraphs) -> None:
        super().__init__(str(store.path))
        self._store, self.schema = store, store.schema

    @classmethod
    def of_path(cls, path: Path, settings: Mapping[str, Any]) -> Source | None:
        """Recognise a folder by the file that is written last."""
        return cls(open_stored(path)) if any(os.path.exists(path / file) for file in (METADATA, MANIFEST)) else None

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Recognise an opened store, or a subset of one."""
        return cls(given) if isinstance(given, StoredGraphs) else None

    def sizes(self, cache: Path | None = None) -> GraphSizes:
        """Differences of the offsets."""
        return self._store.sizes

    def num_graphs(self) -> int | None:
        """Number of graphs."""
        return len(self._store)

    def splits(self) -> Mapping[str, Any]:
        """The splits as written; of a subset, none."""
        return self._store.splits

    def blocks(self) -> Iterator[GraphBlock] | None:
        """Runs of the arrays; of a subset, gathered rows."""
        if self._store.chosen is None:
            return itertools.chain.from_iterable(part.blocks() for part in self._store.parts)
        return _chosen_blocks(self._store, self._store.chosen)


def is_sharded(path: Path) -> bool:
    """Whether a folder holds a dataset of shards, and no store.

    Raises
    ------
    FormatError
        It holds both, put there by hand; each command must speak of the same one.
    """
    if not os.path.exists(path / MANIFEST):
        return False
    if os.path.exists(path / METADATA):
        raise FormatError(f"{path} holds a store and a dataset of shards; move one of them to another folder.")
    return True


def open_stored(path: Path) -> StoredGraphs:
    """The store, or the dataset of shards, in a folder."""
    return MultiStore(path) if is_sharded(path) else GraphStore(path)


def _chosen_blocks(selection: Selection, ids: IntArray) -> Iterator[GraphBlock]:
    for part in selection.parts:
        part.check_positions()
    schema = selection.schema
    for first in range(0, len(ids), _GRAPHS):
        chosen = _Chosen(selection, ids[first : first + _GRAPHS])
        yield GraphBlock(
            num_nodes={t: chosen.lengths(t) for t in schema.node_types},
            num_edges={e: chosen.lengths(e) for e in schema.edge_types},
            endpoints={e: chosen.endpoints(e) for e in schema.edge_types},
            node_features={t: chosen.columns("node_feature", t, names) for t, names in schema.node_features.items()},
            edge_features={e: chosen.columns("edge_feature", e, names) for e, names in schema.edge_features.items()},
            labels=chosen.columns("label", None, schema.labels),
        )


class _Chosen:
    """Some graphs of one or several stores, in any order."""

    def __init__(self, selection: Selection, ids: IntArray) -> None:
        part_of = np.searchsorted(selection.first_ids, ids, side="right") - 1
        order = np.argsort(part_of, kind="stable")
        # Where each graph is, once they are sorted by their store.
        self._place = np.argsort(order)
        self._parts = [
            (selection.parts[part], ids[order][part_of[order] == part] - selection.first_ids[part])
            for part in np.unique(part_of)
        ]

    def lengths(self, t: GraphType) -> IntArray:
        """Nodes or edges of each graph."""
        return self._sorted_lengths(t)[self._place]

    def endpoints(self, e: EdgeType) -> tuple[Array, Array]:
        """Sources and destinations of the edges of all graphs."""
        source, destination = (self._rows(end, e, None).astype(np.int64) for end in ENDS)
        return source, destination

    def columns(self, content: str, t: GraphType | None, names: Iterable[str]) -> dict[str, Array]:
        """Features or labels of all graphs, in the dtypes that are handed out."""
        entries = self._parts[0][0].entries
        return {
            name: self._rows(content, t, name).astype(DTYPES[entries[content, t, name].dtype], copy=False)
            for name in names
        }

    def _sorted_lengths(self, t: GraphType) -> IntArray:
        found = [part.offsets(t)[ids + 1] - part.offsets(t)[ids] for part, ids in self._parts]
        return np.concatenate(found)

    def _rows(self, content: str, t: GraphType | None, name: str | None) -> Array:
        if t is None:
            labels: Array = np.concatenate([part.array(content, t, name)[ids] for part, ids in self._parts])
            return labels[self._place]
        found: list[Array] = []
        for part, ids in self._parts:
            first, last = part.offsets(t)[ids], part.offsets(t)[ids + 1]
            found.append(part.array(content, t, name)[_spans(first, last - first)])
        if len(found) == 1:
            return found[0]
        lengths = self._sorted_lengths(t)
        first = np.cumsum(lengths) - lengths
        rows: Array = np.concatenate(found)
        return rows[_spans(first[self._place], lengths[self._place])]


def _spans(first: IntArray, lengths: IntArray) -> IntArray:
    """The integers first, first + 1, ... of each span, one span after the other."""
    return np.repeat(first - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
