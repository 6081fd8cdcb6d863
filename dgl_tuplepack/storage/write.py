"""Write blocks of graphs to a store on the disk; make the blocks, and transform graphs before they are written."""

from __future__ import annotations

import contextlib
import copy
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dgl_tuplepack._core.checks import as_ids
from dgl_tuplepack._core.files import writing
from dgl_tuplepack.errors import SchemaError, SizesError
from dgl_tuplepack.graphs.blocks import ENDS, Array, EdgeType, GraphBlock
from dgl_tuplepack.graphs.build import graph_blocks, items_of
from dgl_tuplepack.graphs.items import as_item, parts_of
from dgl_tuplepack.graphs.readers.items import sizes_of_items
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.graphs.relations import Indices, Ties, check_endpoints, check_values
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, refuse_levels
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.storage.array_file import ArrayWriter
from dgl_tuplepack.storage.format import ArrayEntry, PreTransform, StoreMetadata, dtype_name, offsets_key

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
        self._totals: dict[Any, int] = dict.fromkeys(schema.types.values(), 0)
        self._writers: dict[tuple[str, Any, str | None], ArrayWriter] = {}

    def begin(self) -> None:
        """Create the files; raise SchemaError if a store cannot hold a dtype."""
        for t in self._totals:
            self._add(*offsets_key(t)).append(np.zeros(1, np.int64))
            for end in () if isinstance(t, str) else ENDS:
                self._add(end, t)
            self._add_columns(t)
        self._add_columns(None)

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

    def _add_columns(self, *types: Any) -> None:
        """Create the files of features that have none, unless no graph so far has nodes (edges) of the type."""
        for (content, t, name), spec in self._schema.columns():
            if t in types and t not in self._schema.empty and (content, t, name) not in self._writers:
                self._add(content, t, name, dtype_name(spec, f"the {content} {name!r}"), spec.shape)

    def append(self, block: GraphBlock) -> None:
        """Write the graphs of a block; raise SchemaError for an invalid graph."""

        def where(i: int) -> str:
            """Return the display name of graph `i` of the block."""
            return f"graph {self._num_graphs + i}"

        if block.schema is not None and block.schema.empty != self._schema.empty:
            self._schema = block.schema
            self._add_columns(*self._totals)
        lengths: dict[Any, IntArray] = {**block.num_nodes, **block.num_edges}
        check_values(self._schema, lengths.__getitem__, block.column, where)
        for t, counts in lengths.items():
            # Where the rows of each graph end.
            offsets = self._totals[t] + np.cumsum(counts)
            self._totals[t] = int(offsets[-1])
            self._writers[offsets_key(t)].append(offsets)
        for e in self._schema.edge_types:
            for end, node_type, values in zip(ENDS, (e[0], e[2]), block.endpoints[e], strict=True):
                check_endpoints(values, block.num_edges[e], block.num_nodes[node_type], where, "correct the source.")
                self._writers[end, e, None].append(values)
        for column, _ in self._schema.columns():
            if column in self._writers:
                self._writers[column].append(block.column(column))
        self._num_graphs += len(block)
        sizes = GraphSizes(np.stack([*lengths.values()], axis=1), self._schema.components)
        histogram = SizeHistogram.from_sizes(sizes)
        self._histogram = histogram.without_ids() if self._histogram is None else self._histogram + histogram

    def finish(self, data: str, splits: Mapping[str, Sequence[int] | IntArray]) -> StoreMetadata:
        """Complete all files and return the metadata, which the caller saves; `data` is the name of the data folder."""
        self._schema = replace(self._schema, empty=frozenset())
        self._add_columns(*self._totals)
        for name, ids in splits.items():
            self._add("split", None, str(name)).append(as_ids(ids, self._num_graphs))
        assert self._histogram is not None
        classes = np.column_stack([self._histogram.sizes, self._histogram.counts])
        self._add("size_classes", None, row_shape=classes.shape[1:]).append(classes)
        schema, idtype = self._schema, str(self._schema.idtype).removeprefix("torch.")
        # Features that came late stand next to the other arrays of their type.
        types = [*self._totals, None]
        keys = sorted(self._writers, key=lambda key: types.index(key[1]))
        arrays: tuple[ArrayEntry, ...] = tuple(self._writers[key].finish() for key in keys)
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
        with writing(data.parent):
            writer.begin()
        # Read blocks outside of `writing`, which would report a failed read of the source as a failed write.
        for block in blocks:
            with writing(data.parent):
                writer.append(block)
        with writing(data.parent):
            return writer.finish(data.name, splits)


def blocks_of(
    source: Source, ties: Ties | None = None, indices: Indices | None = None
) -> tuple[Schema, Iterator[GraphBlock]]:
    """Return the schema of a source, and an iterator over blocks with all its graphs.

    `ties` and `indices`, if not None, replace the ties and indices that are declared for the source.
    """
    ties, indices = source.ties if ties is None else ties, source.indices if indices is None else indices
    # Change only a copy: `blocks` may read `indices`, and may set `schema` and `own_indices`.
    source = copy.copy(source)
    source.indices = indices
    blocks = source.blocks()
    # A source without flat arrays is read graph by graph.
    if blocks is None:
        number = None if source.is_stream else source.num_graphs()
        return graph_blocks(source.items(), ties, indices, source.levels, number)
    if source.schema is None or source.schema.pyg is None:
        # The graphs are not from PyG.
        refuse_levels(source.levels, source.title)
    if source.schema is not None:
        return replace(source.schema, ties=ties, indices={**source.own_indices, **indices}), blocks
    first = next(blocks, None)
    if first is None:
        raise SizesError(f"{source.title} has no graphs; at least one is needed.")
    return _schema_of(first).with_declared(ties, indices), chain([first], blocks)


def _schema_of(block: GraphBlock) -> Schema:
    return Schema(
        node_types=tuple(block.num_nodes),
        edge_types=tuple(block.num_edges),
        node_features={t: _specs(arrays) for t, arrays in block.node_features.items()},
        edge_features={t: _specs(arrays) for t, arrays in block.edge_features.items()},
        labels=_specs(block.labels),
        idtype=torch.int64,
        has_ids=True,
    )


def _specs(arrays: Mapping[str, Array]) -> dict[str, ArraySpec]:
    """Return, for each array, the shape of a row and the torch dtype; raise SchemaError if torch lacks the dtype."""
    specs = {}
    for name, array in arrays.items():
        try:
            specs[name] = ArraySpec(tuple(array.shape[1:]), torch.from_numpy(np.empty(0, array.dtype)).dtype)
        except TypeError as error:
            raise SchemaError(
                f"the feature or label {name!r:.200} has the dtype {array.dtype}, which torch lacks; convert it to "
                "numbers."
            ) from error
    return specs


class Transformed(Source):
    """A source whose graphs are transformed when they are read; its sizes are the sizes after the transform.

    Random numbers are a function of `seed`, of the position of the graph, and of `shard`, the name of the shard. `name`
    identifies the transform in the store, instead of its `repr`.
    """

    def __init__(
        self, source: Source, transform: Callable[[Any], Any], seed: int, name: str | None = None, shard: str = ""
    ) -> None:
        super().__init__(source.title)
        self.levels, self.is_stream = source.levels, source.is_stream
        self._source, self._transform = source, GraphTransform(transform, seed, may_grow=True, levels=self.levels)
        self._stream = zlib.crc32(shard.encode("utf-8", "surrogatepass"))
        # Identify the transform before its first call, which may change its attributes and thus its `repr`.
        self.pre_transform = PreTransform.after(source.pre_transform, transform, self._transform.draws.seed, name)
        self.ties, self.indices = source.ties, source.indices

    def num_graphs(self) -> int | None:
        """Return the number of graphs; None if it is unknown before they are read."""
        return self._source.num_graphs()

    def splits(self) -> Mapping[str, Any]:
        """Return the splits of the source."""
        return self._source.splits()

    def sizes(self) -> GraphSizes:
        """Read and transform all graphs, and return their sizes."""
        return sizes_of_items(self.items(), self.levels)

    def items(self) -> Iterator[Any]:
        """Yield the transformed graphs with their labels; items keep their ids."""
        in_blocks = not self._source.prefers_items and self._source.blocks() is not None
        inner = items_of(*blocks_of(self._source)) if in_blocks else self._source.items()
        for position, item in enumerate(inner):
            yield self._transformed(position, item)

    def _transformed(self, position: int, item: Any) -> Any:
        """Return the transformed graph of an item, with its label and id."""
        where = f"item {position}"
        given = parts_of(item, where)
        # Seed random numbers by the position, in place of an id, and by the shard, in place of an epoch.
        (transformed,) = self._transform([given._replace(id=position)], [where], self._stream)
        return as_item(transformed._replace(id=given.id))
