"""Write blocks of graphs to a store on the disk."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import as_ids
from dgl_tuplepack.graphs.blocks import ENDS, EdgeType, GraphBlock
from dgl_tuplepack.graphs.relations import check_endpoints, check_values
from dgl_tuplepack.graphs.schema import ArraySpec, Schema
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.storage.array_file import ArrayWriter
from dgl_tuplepack.storage.folder import writing_to
from dgl_tuplepack.storage.format import ArrayEntry, StoreMetadata, dtype_name

_NOT_PLAIN = re.compile(r"[^A-Za-z0-9]+")


def plain_name(names: Sequence[str]) -> str:
    """Join names into one text that may be part of a file name.

    The text may be empty, and other names may give the same text.
    """
    # Leave out "N" and "E", which come from DGL's default types "_N" and "_E".
    words = [word for text in names for word in _NOT_PLAIN.split(text) if word and word not in ("N", "E")]
    return "_".join(words)[:60]


class StoreWriter:
    """Write the arrays of one store into a folder, block after block.

    Only one block and the size classes are in memory at a time. With `compact`, integer features and labels are stored
    in the narrowest dtype that holds their values.
    """

    def __init__(self, folder: Path, schema: Schema, compact: bool) -> None:
        self._folder, self._schema, self._compact = folder, schema, compact
        self._histogram: SizeHistogram | None = None
        self._num_graphs = 0
        self._totals: dict[Any, int] = {t: 0 for t in (*schema.node_types, *schema.edge_types)}
        self._writers: dict[tuple[str, Any, str | None], ArrayWriter] = {}

    def begin(self) -> None:
        """Create the files; raise SchemaError if a store cannot hold a dtype."""
        schema = self._schema
        for t in schema.node_types:
            self._add("node_offsets", t).append(np.zeros(1, np.int64))
            self._add_features("node_feature", t, schema.node_features[t])
        for edge_type in schema.edge_types:
            self._add("edge_offsets", edge_type).append(np.zeros(1, np.int64))
            for end in ENDS:
                self._add(end, edge_type)
            self._add_features("edge_feature", edge_type, schema.edge_features[edge_type])
        self._add_features("label", None, schema.labels)

    def _add(
        self, content: str, type_: str | EdgeType | None, name: str | None = None, dtype: str = "int64",
        row_shape: tuple[int, ...] = (),
    ) -> ArrayWriter:  # fmt: skip
        """Create the file of an array, and return its writer."""
        # Number the files: the names of two features may differ only in characters that file names cannot have.
        names = [content, *((type_,) if isinstance(type_, str) else type_ or ()), name or ""]
        file = f"{len(self._writers):02d}_{plain_name(names)}.npy"
        narrow = content in ENDS or (self._compact and content in ("node_feature", "edge_feature", "label"))
        writer = ArrayWriter(self._folder, file, content, type_, name, dtype, row_shape, narrow)
        self._writers[content, type_, name] = writer
        return writer

    def _add_features(self, content: str, type_: str | EdgeType | None, specs: Mapping[str, ArraySpec]) -> None:
        """Create the files of features that have none, unless no graph so far has nodes (edges) of the type."""
        for name, spec in specs.items():
            if type_ not in self._schema.empty and (content, type_, name) not in self._writers:
                self._add(content, type_, name, dtype_name(spec, f"the {content} {name!r}"), spec.shape)

    def _settle(self, schema: Schema) -> None:
        """Create the files of features that the graphs so far have not shown."""
        self._schema = schema
        for (content, t, name), spec in schema.columns():
            self._add_features(content, t, {name: spec})

    def append(self, block: GraphBlock) -> None:
        """Write the graphs of a block; raise SchemaError for an invalid graph."""

        def where(i: int) -> str:
            """Return the display name of graph `i` of the block."""
            return f"graph {self._num_graphs + i}"

        if block.schema is not None and block.schema.empty != self._schema.empty:
            self._settle(block.schema)
        lengths: dict[Any, IntArray] = {**block.num_nodes, **block.num_edges}
        check_values(self._schema, lengths.__getitem__, block.column, where)
        for t in self._schema.node_types:
            self._append_offsets("node_offsets", t, block.num_nodes[t])
        for e in self._schema.edge_types:
            self._append_offsets("edge_offsets", e, block.num_edges[e])
            for end, node_type, values in zip(ENDS, (e[0], e[2]), block.endpoints[e], strict=True):
                check_endpoints(values, block.num_edges[e], block.num_nodes[node_type], where, "correct the source.")
                self._writers[end, e, None].append(values)
        for column, _ in self._schema.columns():
            if column in self._writers:
                self._writers[column].append(block.column(column))
        self._num_graphs += len(block)
        columns = [*block.num_nodes.values(), *block.num_edges.values()]
        histogram = SizeHistogram.from_sizes(GraphSizes(np.stack(columns, axis=1), self._schema.components))
        self._histogram = histogram.without_ids() if self._histogram is None else self._histogram + histogram

    def _append_offsets(self, content: str, type_: str | EdgeType, counts: IntArray) -> None:
        """Append the offset at which the rows of each graph end; `counts` has the number of rows of each graph."""
        offsets = self._totals[type_] + np.cumsum(counts)
        self._totals[type_] = int(offsets[-1])
        self._writers[content, type_, None].append(offsets)

    def finish(self, data: str, splits: Mapping[str, Sequence[int] | IntArray]) -> StoreMetadata:
        """Complete all files and return the metadata, which the caller saves; `data` is the name of the data folder."""
        self._settle(replace(self._schema, empty=frozenset()))
        for name, ids in splits.items():
            self._add("split", None, str(name)).append(as_ids(ids, self._num_graphs))
        assert self._histogram is not None
        classes = np.column_stack([self._histogram.sizes, self._histogram.counts])
        self._add("size_classes", None, row_shape=classes.shape[1:]).append(classes)
        arrays: tuple[ArrayEntry, ...] = tuple(writer.finish() for writer in self._writers.values())
        schema, idtype = self._schema, str(self._schema.idtype).removeprefix("torch.")
        return StoreMetadata(
            data, self._num_graphs, schema.node_types, schema.edge_types, idtype, arrays,
            graph_names=schema.graph_names, ties=schema.ties, indices=schema.indices, pyg=schema.pyg,
        )  # fmt: skip

    def close(self) -> None:
        """Close all files, complete or not."""
        for writer in self._writers.values():
            writer.close()


def write_store(
    data: Path,
    schema: Schema,
    blocks: Iterable[GraphBlock],
    splits: Mapping[str, Sequence[int] | IntArray],
    compact: bool,
) -> StoreMetadata:
    """Write all blocks into the folder `data`, and return the metadata."""
    with contextlib.closing(StoreWriter(data, schema, compact)) as writer:
        with writing_to(data.parent):
            writer.begin()
        # Read blocks outside of `writing_to`, which would report a failed read of the source as a failed write.
        for block in blocks:
            with writing_to(data.parent):
                writer.append(block)
        with writing_to(data.parent):
            return writer.finish(data.name, splits)
