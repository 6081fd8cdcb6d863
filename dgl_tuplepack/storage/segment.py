"""A segment: the opened arrays of one store, with methods that read and check the graphs in them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from dgl_tuplepack._core.progress import DELAY, progress_bar
from dgl_tuplepack.errors import FormatError, SchemaError, SizesError
from dgl_tuplepack.graphs.blocks import ENDS, Array, EdgeType, GraphBlock, GraphType
from dgl_tuplepack.graphs.build import build_item
from dgl_tuplepack.graphs.relations import check_values
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, as_label, as_tensor
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.storage.array_file import check_bytes, open_array
from dgl_tuplepack.storage.format import DTYPES, ArrayEntry, Key, StoreMetadata, offsets_key

_GRAPHS_PER_CHECK, GRAPHS_PER_BLOCK = 65_536, 4096


class Segment:
    """The memory-mapped arrays of one store, and their metadata.

    Three values identify an array: its content (such as "node_offsets", "sources" or "label"), its node or edge type,
    and its name. The type of a label or split is None; the name of offsets or endpoints is None.
    """

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
        """Open the store at `path`; try again if another process replaces the store during the attempt.

        Raise FormatError for a damaged store.
        """
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

    @property
    def checksum(self) -> str:
        """SHA-256 that identifies the content of the store."""
        return self.metadata.checksum

    def stored_spec(self, key: Key) -> ArraySpec:
        """Return the shape of a row of a feature or label, and the dtype that its values have in the file."""
        entry = self.entries[key]
        # Integers may be narrowed. bfloat16 is not: its bits are stored as uint16, since numpy has no bfloat16.
        narrowed = entry.stored != entry.dtype and entry.dtype != "bfloat16"
        return ArraySpec(entry.spec.shape, getattr(torch, entry.stored) if narrowed else entry.spec.dtype)

    def array(self, content: str, type_: GraphType | None = None, name: str | None = None) -> Array:
        """Return the array with this content, type and name."""
        return self._arrays[content, type_, name]

    def offsets(self, type_: GraphType) -> IntArray:
        """Return the row of the first node (edge) of each graph, then the number of all rows, int64 ``[N + 1]``."""
        return self._arrays[offsets_key(type_)]

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
        schema, spans = self.schema, dict[Any, slice]()
        spans[None] = slice(graph_id, graph_id + 1)
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
                    self.refuse_endpoints(graph_id, end, e)
            endpoints[e] = tuple(torch.from_numpy(nodes).to(schema.idtype) for nodes in ends.values())
        of_nodes, of_edges, labels = schema.arranged(
            lambda column: as_tensor(self._arrays[column][spans[column[1]]], schema.spec_of(column).dtype)
        )
        graph = build_item(schema.graph_names, endpoints, num_nodes, of_nodes, of_edges)
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

    def refuse_offsets(self, graph_id: int, type_: GraphType) -> NoReturn:
        """Raise FormatError: the offsets of a graph are outside the store."""
        self._refuse(self.entries[offsets_key(type_)], f"points outside the store for graph {graph_id}")

    def refuse_endpoints(
        self, graph_id: int, end: str, edge_type: EdgeType | None, name: str | None = None
    ) -> NoReturn:
        """Raise FormatError: endpoints or indices of a graph point outside the graph.

        `end`, `edge_type` and `name` identify the wrong array: endpoints, or a feature or label that holds indices.
        """
        self._refuse(self.entries[end, edge_type, name], f"points outside graph {graph_id}")

    def _refuse(self, entry: ArrayEntry, what: str) -> NoReturn:
        path = self.data / entry.file
        raise FormatError(
            f"{path} {what}; the store is damaged, write it again (dgl-tuplepack verify checks every byte)."
        )

    def verify(self) -> None:
        """Compare every byte of the files with their checksums, and the arrays with each other.

        Raise FormatError for the first difference.
        """
        total = sum(array.nbytes for array in self._arrays.values())
        with progress_bar(desc="check", total=total, unit="B", unit_scale=True, delay=DELAY) as progress:
            for entry in self.metadata.arrays:
                check_bytes(self.data, entry, progress.update)
        self.check_positions()
        if self.histogram != SizeHistogram.from_sizes(self.sizes):
            self._refuse(self.entries["size_classes", None, None], "is not the histogram of the graphs' sizes")
        for name, ids in self.splits.items():
            if len(ids) and not 0 <= ids.min() <= ids.max() < self.num_graphs:
                self._refuse(self.entries["split", None, name], f"names graphs outside 0..{self.num_graphs - 1}")

    def check_positions(self) -> None:
        """Check the offsets, endpoints, ties and indices of all graphs; raise FormatError if one is wrong."""
        for t in self.rows:
            self._check_offsets(t)
        # Check some graphs at a time: the checks need more memory than the arrays in the files.
        slices = [*self._slices(_GRAPHS_PER_CHECK)]
        for graphs in progress_bar(slices, desc="check", unit=" blocks", delay=DELAY):
            for e in self.schema.edge_types:
                for end, node_type in zip(ENDS, (e[0], e[2]), strict=True):
                    self._check_endpoints(end, e, node_type, graphs)
            if self.schema.ties or self.schema.indices:
                self._check_relations(graphs)

    def _check_offsets(self, t: GraphType) -> None:
        """Check that the offsets of a type begin at 0, never fall, and end at the number of rows."""
        offsets = self.offsets(t)
        falling = np.flatnonzero(np.diff(offsets) < 0)
        if offsets[0] != 0 or len(falling) or offsets[-1] != self.rows[t]:
            self.refuse_offsets(int(falling[0]) if len(falling) else 0, t)

    def _check_endpoints(self, end: str, edge_type: EdgeType, node_type: str, graphs: slice) -> None:
        """Check the sources or destinations (`end`) of some graphs; the caller has checked the offsets."""
        first_nodes, first_edges = (self.offsets(t)[graphs.start : graphs.stop + 1] for t in (node_type, edge_type))
        nodes = self.array(end, edge_type)[first_edges[0] : first_edges[-1]]
        # Endpoints are counted from 0 in each graph.
        outside = np.flatnonzero((nodes < 0) | (nodes >= np.repeat(np.diff(first_nodes), np.diff(first_edges))))
        if len(outside):
            wrong_edge = first_edges[0] + outside[0]
            graph = np.searchsorted(first_edges, wrong_edge, side="right") - 1
            self.refuse_endpoints(graphs.start + int(graph), end, edge_type)

    def _check_relations(self, graphs: slice) -> None:
        """Check the ties and indices of some graphs; the caller has checked the offsets."""
        try:
            check_values(self.schema, *self._within(graphs), lambda i: f"graph {graphs.start + i}")
        except SchemaError as error:
            raise FormatError(
                f"{self.path} does not match its ties or indices: {error} The store is damaged, write it again."
            ) from error


def block_of(schema: Schema, lengths: Callable[[GraphType], IntArray], values: Callable[[Key], Array]) -> GraphBlock:
    """Return a block of graphs that have this schema.

    `lengths` returns the number of nodes (edges) of a type in each graph. `values` returns the rows of an array
    (endpoints, a feature or a label), given its content, type and name.
    """
    return GraphBlock(
        {t: lengths(t) for t in schema.node_types},
        {e: lengths(e) for e in schema.edge_types},
        {e: (values((ENDS[0], e, None)), values((ENDS[1], e, None))) for e in schema.edge_types},
        *schema.arranged(values),
    )
