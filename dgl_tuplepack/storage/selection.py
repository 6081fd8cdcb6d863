"""Opened graphs: a segment is the arrays of one store, a selection is all or some graphs of one or more segments."""

from __future__ import annotations

import copy
import functools
import hashlib
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.checks import as_ids, true_or_false
from dgl_tuplepack._core.progress import DELAY, progress_bar
from dgl_tuplepack.errors import FormatError, SchemaError, SizesError
from dgl_tuplepack.graphs.blocks import ENDS, Array, EdgeType, GraphBlock, GraphType
from dgl_tuplepack.graphs.build import build_item
from dgl_tuplepack.graphs.relations import Column, check_values
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, as_label, as_tensor
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.storage.array_file import check_bytes, open_array
from dgl_tuplepack.storage.format import DTYPES, ArrayEntry, Key, PreTransform, StoreMetadata, offsets_key

_GRAPHS_PER_CHECK, GRAPHS_PER_BLOCK = 65_536, 4096


class Segment:
    """The memory-mapped arrays of one store, and their metadata; content, type and name identify an array."""

    def __init__(self, path: Path, metadata: StoreMetadata) -> None:
        self.path, self.metadata, self.data = path, metadata, path / metadata.data
        self.entries = {(entry.content, entry.type, entry.name): entry for entry in metadata.arrays}
        self._arrays: dict[tuple[str, Any, str | None], Array] = {
            key: open_array(self.data, entry) for key, entry in self.entries.items()
        }
        # The numbers of rows are the last offsets: read now, since `open_array` has just read the end of each file.
        schema = metadata.schema
        self.rows: dict[GraphType, int] = {t: int(self.offsets(t)[-1]) for t in schema.types.values()}
        for t, rows in self.rows.items():
            known = metadata.num_rows(t)
            if known is not None and rows != known:
                self.refuse_offsets(self.num_graphs - 1, t)
        self.schema = replace(schema, empty=frozenset(t for t, rows in self.rows.items() if not rows))

    def settled(self, schema: Schema) -> Segment:
        """Return the segment with the features of `schema` for types without nodes (edges), which have no rows here."""
        made = copy.copy(self)
        made.schema = self.schema.settled(schema.shown)
        made.entries, made._arrays = dict(self.entries), dict(self._arrays)
        for key, spec in made.schema.columns():
            if key[1] in self.schema.empty - made.schema.empty:
                made.entries[key] = entry = ArrayEntry.without_rows(key, spec)
                made._arrays[key] = np.empty(entry.shape, entry.stored)
        return made

    @classmethod
    def open(cls, path: Path) -> Segment:
        """Open the store at `path`; try again if another process replaces the store during the attempt."""
        while True:
            metadata = StoreMetadata.load(path)
            try:
                return cls(path, metadata)
            except FileNotFoundError as error:
                # If the metadata still names the same data folder, the store was not replaced: a file is missing.
                if StoreMetadata.load(path).data == metadata.data:
                    raise FormatError(f"{error.filename} is missing; the store is damaged, write it again.") from error

    @property
    def num_graphs(self) -> int:
        """Number of graphs in the store."""
        return self.metadata.num_graphs

    def stored_spec(self, key: Key) -> ArraySpec:
        """Return the shape of a row of a feature or label, and the dtype that its values have in the file."""
        entry = self.entries[key]
        # Integers may be narrowed. bfloat16 is not: its bits are stored as uint16, since numpy has no bfloat16.
        narrowed = entry.stored != entry.dtype and entry.dtype != "bfloat16"
        return ArraySpec(entry.spec.shape, getattr(torch, entry.stored) if narrowed else entry.spec.dtype)

    def array(self, content: str, type_: GraphType | None = None, name: str | None = None) -> Array:
        """Return the array with this content, type and name."""
        return self._arrays[content, type_, name]

    def offsets(self, t: GraphType) -> IntArray:
        """Return the row of the first node (edge) of each graph, then the number of all rows, int64 ``[N + 1]``."""
        return self._arrays[offsets_key(t)]

    @functools.cached_property
    def sizes(self) -> GraphSizes:
        """Sizes of all graphs."""
        try:
            columns = [self.offsets(t)[1:] - self.offsets(t)[:-1] for t in self.rows]
            return GraphSizes(np.stack(columns, axis=1), self.schema.components)
        except SizesError as error:
            raise FormatError(f"{self.path} has damaged offsets ({error}); write the store again.") from error

    @functools.cached_property
    def histogram(self) -> SizeHistogram:
        """The stored histogram of sizes."""
        classes = self.array("size_classes")
        try:
            return SizeHistogram(classes[:, :-1], classes[:, -1], self.schema.components)
        except SizesError as error:
            raise FormatError(
                f"the size classes in {self.path} are damaged ({error}); write the store again."
            ) from error

    @property
    def splits(self) -> dict[str, IntArray]:
        """The ids of each split, by the name of the split."""
        return {str(entry.name): self.array("split", None, entry.name) for entry in self.metadata.of_content("split")}

    def item(self, graph_id: int) -> Any:
        """Return one item: a DGLGraph or a dict of DGLGraphs, or a pair of it and the label."""
        # spans[t]: the rows of the graph in the arrays of type t; spans[None]: its row in the labels.
        schema, spans = self.schema, dict[Any, slice]({None: slice(graph_id, graph_id + 1)})
        for t, num_rows in self.rows.items():
            first, last = (int(offset) for offset in self.offsets(t)[graph_id : graph_id + 2])
            if not 0 <= first <= last <= num_rows:
                self.refuse_offsets(graph_id, t)
            spans[t] = slice(first, last)
        num_nodes = {t: spans[t].stop - spans[t].start for t in schema.node_types}
        endpoints = {}
        for e in schema.edge_types:
            # Nodes are counted from 0 in each graph.
            ends = {end: self.values((end, e, None), spans[e]) for end in ENDS}
            for (end, nodes), t in zip(ends.items(), (e[0], e[2]), strict=True):
                if len(nodes) and not 0 <= nodes.min() <= nodes.max() < num_nodes[t]:
                    self.refuse((end, e, None), f"points outside graph {graph_id}")
            endpoints[e] = tuple(torch.from_numpy(nodes).to(schema.idtype) for nodes in ends.values())
        features, labels = schema.arranged(
            lambda column: as_tensor(self._arrays[column][spans[column[1]]], schema.spec_of(column).dtype)
        )
        graph = build_item(schema.graph_names, endpoints, num_nodes, features)
        return (graph, as_label({name: value[0] for name, value in labels.items()})) if labels else graph

    def values(self, key: Key, rows: slice | IntArray) -> Array:
        """Return rows of an array, in the dtype of the schema; for bfloat16, the bits as uint16."""
        stored = np.asarray(self._arrays[key])
        # `take` is about twice as fast as indexing by an array.
        chosen = stored[rows] if isinstance(rows, slice) else stored.take(rows, axis=0)
        return chosen.astype(DTYPES[self.entries[key].dtype], copy=False)

    def blocks(self) -> Iterator[GraphBlock]:
        """Yield all graphs in order, a few thousand at a time, in the dtypes of the schema."""
        self.check_positions()
        for graphs in self._slices(GRAPHS_PER_BLOCK):
            yield block_of(self.schema, *self._within(graphs))

    def _slices(self, most: int) -> Iterator[slice]:
        """Yield slices of at most `most` graphs that cover all graphs, in order."""
        for first in range(0, self.num_graphs, most):
            yield slice(first, min(first + most, self.num_graphs))

    def _within(self, graphs: slice) -> tuple[Callable[[GraphType], IntArray], Callable[[Key], Array]]:
        """Return the arguments `lengths` and `values` of `block_of` for consecutive graphs."""
        bounds = {t: self.offsets(t)[graphs.start : graphs.stop + 1] for t in self.rows}
        rows: dict[GraphType | None, slice] = {t: slice(int(ends[0]), int(ends[-1])) for t, ends in bounds.items()}
        # Labels have one row for each graph.
        rows[None] = graphs
        return lambda t: np.diff(bounds[t]), lambda key: self.values(key, rows[key[1]])

    def refuse_offsets(self, graph_id: int, t: GraphType) -> NoReturn:
        """Raise FormatError: the offsets of a graph are outside the store."""
        self.refuse(offsets_key(t), f"points outside the store for graph {graph_id}")

    def refuse(self, key: Key, what: str) -> NoReturn:
        """Raise FormatError: the array with this key is damaged."""
        raise FormatError(
            f"{self.data / self.entries[key].file} {what}; the store is damaged, write it again (dgl-tuplepack verify "
            "checks every byte)."
        )

    def verify(self) -> None:
        """Compare every byte of the files with their checksums, and the arrays with each other."""
        total = sum(array.nbytes for array in self._arrays.values())
        with progress_bar(desc="check", total=total, unit="B", unit_scale=True, delay=DELAY) as progress:
            for entry in self.metadata.arrays:
                check_bytes(self.data, entry, progress.update)
        self.check_positions()
        if self.histogram != SizeHistogram.from_sizes(self.sizes):
            self.refuse(("size_classes", None, None), "is not the histogram of the graphs' sizes")
        for name, ids in self.splits.items():
            if len(ids) and not 0 <= ids.min() <= ids.max() < self.num_graphs:
                self.refuse(("split", None, name), f"names graphs outside 0..{self.num_graphs - 1}")

    def check_positions(self) -> None:
        """Check the offsets, endpoints, ties and indices of all graphs; raise FormatError if one is wrong."""
        for t, num_rows in self.rows.items():
            # Offsets begin at 0, never fall, and end at the number of rows.
            offsets = self.offsets(t)
            falling = np.flatnonzero(np.diff(offsets) < 0)
            if offsets[0] != 0 or len(falling) or offsets[-1] != num_rows:
                self.refuse_offsets(int(falling[0]) if len(falling) else 0, t)
        # Check some graphs at a time: the checks need more memory than the arrays in the files.
        slices = [*self._slices(_GRAPHS_PER_CHECK)]
        for graphs in progress_bar(slices, desc="check", unit=" blocks", delay=DELAY):
            for e in self.schema.edge_types:
                for end, node_type in zip(ENDS, (e[0], e[2]), strict=True):
                    self._check_endpoints(end, e, node_type, graphs)
            try:
                check_values(self.schema, *self._within(graphs), functools.partial(_name_of, graphs.start))
            except SchemaError as error:
                raise FormatError(
                    f"{self.path} does not match its ties or indices: {error} The store is damaged, write it again."
                ) from error

    def _check_endpoints(self, end: str, edge_type: EdgeType, node_type: str, graphs: slice) -> None:
        """Check the sources or destinations (`end`) of some graphs; the caller has checked the offsets."""
        first_nodes, first_edges = (self.offsets(t)[graphs.start : graphs.stop + 1] for t in (node_type, edge_type))
        nodes = self.array(end, edge_type)[first_edges[0] : first_edges[-1]]
        # Endpoints are counted from 0 in each graph.
        outside = np.flatnonzero((nodes < 0) | (nodes >= np.repeat(np.diff(first_nodes), np.diff(first_edges))))
        if len(outside):
            wrong_edge = first_edges[0] + outside[0]
            graph = np.searchsorted(first_edges, wrong_edge, side="right") - 1
            self.refuse((end, edge_type, None), f"points outside graph {graphs.start + int(graph)}")


def _name_of(first: int, i: int) -> str:
    return f"graph {first + i}"


def block_of(schema: Schema, lengths: Callable[[GraphType], IntArray], values: Callable[[Key], Array]) -> GraphBlock:
    """Return a block; `lengths` returns the number of nodes (edges) of each graph, `values` the rows of an array."""
    return GraphBlock(
        {t: lengths(t) for t in schema.features},
        {e: (values((ENDS[0], e, None)), values((ENDS[1], e, None))) for e in schema.edge_types},
        *schema.arranged(values),
    )


Chosen = TypeVar("Chosen", bound="Selection")

COMPARED = (
    "graph_names", "node_types", "edge_types", "idtype", "node_features", "edge_features", "labels", "ties", "indices",
    "pyg",
)  # fmt: skip
_AGREE = "shards of one dataset must agree"


class Selection:
    """All or some graphs of one or several opened stores, with the ids 0..N-1.

    A selection is pickled as its path, its checksum and its ids; unpickling opens the files again, and checks them.
    """

    def __init__(self, path: Path, segments: Sequence[Segment]) -> None:
        schema = functools.reduce(lambda found, each: found.settled(each.schema.shown), segments, segments[0].schema)
        self.path, self.segments = path, tuple(segment.settled(schema) for segment in segments)
        # int64 [N], read-only: the position of each graph among the graphs of all segments; None for all graphs.
        self.chosen: IntArray | None = None
        # int64 [N]: the ids that batches report for the graphs; None for 0..N-1.
        self.kept_ids: IntArray | None = None
        for segment in self.segments[1:]:
            check_same_schema(self.schema, segment.schema, str(segments[0].path), str(segment.path))
        # int64 [segments + 1]: the number of graphs before each segment, then the number of all graphs.
        self.first_ids: IntArray = np.cumsum([0, *(segment.num_graphs for segment in segments)], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.first_ids[-1]) if self.chosen is None else len(self.chosen)

    @property
    def schema(self) -> Schema:
        """Types, features and labels of the graphs."""
        return self.segments[0].schema

    @property
    def checksum(self) -> str:
        """SHA-256 that identifies the content of all segments, in order."""
        first, *others = (segment.metadata.checksum for segment in self.segments)
        return hashlib.sha256(" ".join([first, *others]).encode()).hexdigest() if others else first

    @property
    def pre_transform(self) -> PreTransform | None:
        """The transform that was applied to the graphs before they were written, or None."""
        return self.segments[0].metadata.pre_transform

    @functools.cached_property
    def stored_schema(self) -> Schema:
        """The schema with the dtypes of the files: for each feature and label, the widest dtype in any segment."""
        schema = self.schema
        # In a batch, indices are counted over all graphs of the batch, and may exceed the stored dtype.
        return schema.with_columns(
            {
                column: spec if column in schema.index_columns else self.stored_spec(column)
                for column, spec in schema.columns()
            }
        )

    def batch_schema(self, as_stored: bool) -> Schema:
        """Return the schema of batches; with `as_stored`, narrowed integers keep the dtypes of the files."""
        return self.stored_schema if true_or_false("as_stored", as_stored) else self.schema

    def stored_spec(self, column: Column) -> ArraySpec:
        """Return the shape of a row of a feature or label, and the widest dtype that its file has in any segment."""
        return max((segment.stored_spec(column) for segment in self.segments), key=lambda spec: spec.dtype.itemsize)

    @property
    def original_ids(self) -> IntArray:
        """int64 ``[N]``, the id of each graph in the whole store."""
        return np.arange(len(self)) if self.chosen is None else self.chosen

    @property
    def graph_ids(self) -> IntArray:
        """int64 ``[N]``, the ids that batches report: 0..N-1; after `split`, ids in the selection that was split."""
        return np.arange(len(self)) if self.kept_ids is None else self.kept_ids

    def ids_in_store(self, ids: IntArray) -> IntArray:
        """Convert ids of the selection to ids in the whole store."""
        return ids if self.chosen is None else self.chosen[ids]

    @functools.cached_property
    def sizes(self) -> GraphSizes:
        """Sizes of the graphs, computed from the offsets only."""
        first, *others = (segment.sizes for segment in self.segments)
        if others:
            first = GraphSizes(np.concatenate([first.array, *(sizes.array for sizes in others)]), first.components)
        return first if self.chosen is None else first.take(self.chosen)

    @functools.cached_property
    def histogram(self) -> SizeHistogram:
        """Histogram of the sizes: counted for a subset, otherwise read from the files."""
        if self.chosen is not None:
            return SizeHistogram.from_sizes(self.sizes).without_ids()
        return functools.reduce(SizeHistogram.__add__, (segment.histogram for segment in self.segments))

    @property
    def splits(self) -> dict[str, IntArray]:
        """The ids of each split, by the name of the split, from all segments together; empty for a subset."""
        if self.chosen is not None:
            return {}
        splits: dict[str, list[IntArray]] = {}
        for first, segment in zip(self.first_ids, self.segments, strict=False):
            for name, ids in segment.splits.items():
                splits.setdefault(name, []).append(ids + first if first else ids)
        return {name: np.concatenate(ids) if len(ids) > 1 else ids[0] for name, ids in splits.items()}

    def subset(self: Chosen, ids: Sequence[int] | IntArray | Tensor) -> Chosen:
        """Return a selection of some graphs, in the given order; these graphs get the ids 0, 1, ...

        Raises
        ------
        SizesError
            There are no ids, or an id is not in 0..N-1.
        """
        positions = as_ids(ids, len(self))
        if not len(positions):
            raise SizesError("a subset needs at least one id, but got none.")
        # Share the opened files: copy.copy would open `path` again, where another store may be by now.
        subset = type(self).__new__(type(self))
        subset.__dict__.update(self.__dict__)
        # Drop what is cached for the graphs of `self`.
        for name in ("sizes", "histogram"):
            subset.__dict__.pop(name, None)
        subset._choose(self.ids_in_store(positions), None)
        return subset

    def split(self: Chosen, ids: Sequence[int] | IntArray | Tensor) -> Chosen:
        """Return a subset, as `subset` does; but its batches report the ids before the split (`graph_ids`)."""
        split = self.subset(ids)
        split.kept_ids = as_ids(ids, len(self)).copy()
        return split

    def _choose(self, positions: IntArray, kept_ids: IntArray | None) -> None:
        """Set the positions of the graphs and the ids that batches report."""
        # Keep a read-only copy, because the compiled kernels do not check the positions.
        self.chosen, self.kept_ids = positions.copy(), kept_ids
        self.chosen.setflags(write=False)

    def __getitem__(self, index: int) -> Any:
        """Return graph `index` as a DGLGraph (or a dict of named graphs), or with its label; features are copies."""
        try:
            index = operator.index(index)
        except TypeError as error:
            raise SizesError(
                f"a store is indexed by one integer, but got {index!r:.200}; use subset(ids) or padded(limits)[ids]."
            ) from error
        (position,) = as_ids([index + len(self) if -len(self) <= index < 0 else index], len(self))
        graph_id = int(position if self.chosen is None else self.chosen[position])
        segment_index = int(np.searchsorted(self.first_ids, graph_id, side="right")) - 1
        return self.segments[segment_index].item(graph_id - int(self.first_ids[segment_index]))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def verify(self) -> None:
        """Compare every byte of the files with their checksums, and the arrays with each other.

        Raises
        ------
        FormatError
            A file has changed since it was written; the message names the first such file.
        """
        for segment in self.segments:
            segment.verify()

    def __reduce__(self) -> tuple[Any, ...]:
        # The folder of a temporary store. Workers of a loader end before the store, so they open the same folder.
        folder = self.__dict__.get("_folder") if get_spawning_popen() is None else None
        return _reopened, (type(self), self.path, self.checksum, self.chosen, self.kept_ids, folder)

    def __repr__(self) -> str:
        totals = self.sizes.totals()
        return f"{type(self).__name__}({len(self)} graphs, {', '.join(f'{totals[name]} {name}' for name in totals)})"


def _reopened(
    store_class: Any, path: Path, checksum: str, chosen: IntArray | None, kept_ids: IntArray | None, folder: Any
) -> Any:
    """Return an unpickled selection; raise FormatError if the files at `path` (or in `folder`) have changed."""
    selection = store_class(path if folder is None else Path(folder.path) / path.name)
    if folder is not None:
        selection.__dict__["_folder"] = folder
    if selection.checksum != checksum:
        raise FormatError(f"{path} was written again after it was opened; open it again in every process.")
    if chosen is not None:
        selection._choose(chosen, kept_ids)
    return selection


def check_same_schema(
    expected: Schema, found: Schema, where: str, other: str, compared: Sequence[str] = COMPARED, reason: str = _AGREE
) -> None:
    """Raise SchemaError if the schemas differ in an attribute of `compared`; `where` has the graphs of `expected`."""
    if "pyg" in compared and (expected.pyg is None) != (found.pyg is None):
        ours, theirs = ("DGLGraphs" if each.pyg is None else "PyG graphs" for each in (expected, found))
        raise SchemaError(f"{other} has {theirs}, but {where} has {ours}; {reason}.")
    for what in compared:
        theirs, ours = getattr(found, what), getattr(expected, what)
        if theirs != ours:
            raise SchemaError(
                f"the graphs of {other} have the {what.replace('_', ' ').replace('pyg', 'PyG layout')} "
                f"{_shown(theirs)}, but the graphs of {where} have {_shown(ours)}; {reason}."
            )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(inside)}" for key, inside in value.items()) + "}"
    return str(value)
