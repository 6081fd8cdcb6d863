"""Write a store: lock its folder, write blocks of graphs into a new data folder, and save the metadata last.

`metadata.json` names the data folder, so an existing store stays valid until the new store is complete.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import re
import secrets
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from dgl_tuplepack._core.checks import as_ids, as_path, as_split, true_or_false
from dgl_tuplepack._core.files import is_there, read_json, writing
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.errors import FormatError, SchemaError, SizesError
from dgl_tuplepack.graphs.blocks import ENDS, Array, GraphBlock
from dgl_tuplepack.graphs.build import graph_blocks, ids_in, items_of
from dgl_tuplepack.graphs.items import as_item, parts_of
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.readers.datasets import sizes_of_items
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.graphs.relations import Indices, Ties, check_endpoints, check_values
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, refuse_levels
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.storage.array_file import ArrayWriter
from dgl_tuplepack.storage.format import (
    MANIFEST,
    METADATA,
    Key,
    PreTransform,
    StoreMetadata,
    dtype_name,
    offsets_key,
)
from dgl_tuplepack.storage.selection import Segment, Selection


@dataclass(frozen=True)
class WriteSettings:
    """The settings that `GraphStore.write`, `preprocess` and `preprocess_shards` share."""

    compact: bool
    overwrite: bool
    pre_transform: Callable[[Any], Any] | None
    transform_seed: int
    transform_name: str | None
    ties: Ties | None
    indices: Indices | None
    levels: Levels | None

    def __post_init__(self) -> None:
        for name in ("compact", "overwrite"):
            object.__setattr__(self, name, true_or_false(name, getattr(self, name)))


def write_graphs(
    path: str | os.PathLike[str],
    source: Any,
    settings: WriteSettings,
    *,
    splits: Mapping[str, Sequence[int] | IntArray] | None = None,
    shard: str = "",
    prepare: Callable[[Selection, Path], None] | None = None,
) -> None:
    """Write a store, as `GraphStore.write` does; the name `shard` gives `pre_transform` its own random numbers.

    `prepare` is called with the graphs and their data folder; files that it saves there become visible with the store.
    """
    path = as_path(path)
    # `fresh_data` checks the folder first, since reading the source may take long.
    with fresh_data(path, settings.overwrite) as data:
        opened = resolve(source).with_levels(settings.levels)
        if settings.pre_transform is not None:
            opened = Transformed(opened, settings, shard)
        num_graphs = opened.num_graphs()
        chosen = _checked_splits(source, opened.splits() if splits is None else splits, num_graphs)
        schema, blocks = blocks_of(opened, settings.ties, settings.indices)
        written = _write_blocks(data, schema, blocks, num_graphs, chosen, settings.compact)
        metadata = replace(written, pre_transform=opened.pre_transform)
        if prepare is not None:
            prepare(Selection(path, [Segment(path, metadata)]), data)
        metadata.save(path)


def _checked_splits(source: Any, splits: Any, num_graphs: int | None) -> dict[Any, Any]:
    """Return the ids of each split; raise SizesError before any graph is written if they cannot be right."""
    if not isinstance(splits, Mapping):
        raise SizesError(
            f'splits must be a mapping of names to ids, but are {splits!r:.200}; give {{"train": ids}}, say.'
        )
    chosen = {name: ids_in(source, ids) for name, ids in splits.items()}
    # Two keys of a mapping, such as 1 and "1", may be the same text.
    name, uses = Counter(map(str, chosen)).most_common(1)[0] if chosen else ("", 0)
    if uses > 1:
        raise SizesError(f"{uses} splits have the name {name!r:.200} as text; give each its own name.")
    # A dataset without graphs is refused later.
    if num_graphs:
        for ids in chosen.values():
            as_split(ids, num_graphs)
    return chosen


_NOT_PLAIN = re.compile(r"[^A-Za-z0-9]+")


def plain_name(names: Sequence[str]) -> str:
    """Join names into one text, perhaps empty, that may be part of a file name; other names may give the same text."""
    # Leave out "N" and "E", which come from DGL's default types "_N" and "_E".
    words = [word for text in names for word in _NOT_PLAIN.split(text) if word and word not in ("N", "E")]
    return "_".join(words)[:60]


class StoreWriter:
    """Write the arrays of one store into a folder, block after block; only one block is in memory at a time."""

    def __init__(self, folder: Path, schema: Schema, compact: bool) -> None:
        self._folder, self._schema, self._compact = folder, schema, compact
        self._histogram: SizeHistogram | None = None
        self._num_graphs = 0
        self._totals: dict[Any, int] = dict.fromkeys(schema.types.values(), 0)
        self._writers: dict[Key, ArrayWriter] = {}

    def begin(self) -> None:
        """Create the files; raise SchemaError if a store cannot hold a dtype."""
        for t in self._totals:
            self._add(offsets_key(t)).append(np.zeros(1, np.int64))
            for end in () if isinstance(t, str) else ENDS:
                self._add((end, t, None))
            self._add_columns(t)
        self._add_columns(None)

    def _add(self, key: Key, dtype: str = "int64", row_shape: tuple[int, ...] = ()) -> ArrayWriter:
        """Create the file of an array, and return its writer."""
        content, t, name = key
        # Number the files: the names of two features may differ only in characters that file names cannot have.
        names = [content, *((t,) if isinstance(t, str) else t or ()), name or ""]
        file = f"{len(self._writers):02d}_{plain_name(names)}.npy"
        narrow = content in ENDS or (self._compact and content in ("node_feature", "edge_feature", "label"))
        self._writers[key] = ArrayWriter(self._folder, file, key, dtype, row_shape, narrow)
        return self._writers[key]

    def _add_columns(self, *types: Any) -> None:
        """Create the files of features that have none, unless no graph so far has nodes (edges) of the type."""
        for key, spec in self._schema.columns():
            if key[1] in types and key[1] not in self._schema.empty and key not in self._writers:
                self._add(key, dtype_name(spec, f"the {key[0]} {key[2]!r}"), spec.shape)

    def append(self, block: GraphBlock) -> None:
        """Write the graphs of a block; raise SchemaError for an invalid graph."""

        def where(i: int) -> str:
            """Return the display name of graph `i` of the block."""
            return f"graph {self._num_graphs + i}"

        if block.schema is not None and block.schema.empty != self._schema.empty:
            self._schema = block.schema
            self._add_columns(*self._totals)
        lengths = block.lengths
        check_values(self._schema, lengths.__getitem__, block.column, where)
        for t, counts in lengths.items():
            # Where the rows of each graph end.
            offsets = self._totals[t] + np.cumsum(counts)
            self._totals[t] = int(offsets[-1])
            self._writers[offsets_key(t)].append(offsets)
        for e in self._schema.edge_types:
            for end, node_type, values in zip(ENDS, (e[0], e[2]), block.endpoints[e], strict=True):
                check_endpoints(values, lengths[e], lengths[node_type], where, "correct the source.")
                self._writers[end, e, None].append(values)
        for column, _ in self._schema.columns():
            if column in self._writers:
                self._writers[column].append(block.column(column))
        self._num_graphs += len(block)
        sizes = GraphSizes(np.stack([*lengths.values()], axis=1), self._schema.components)
        histogram = SizeHistogram.from_sizes(sizes)
        self._histogram = histogram.without_ids() if self._histogram is None else self._histogram + histogram

    def finish(self, data: str, splits: Mapping[str, Sequence[int] | IntArray]) -> StoreMetadata:
        """Complete all files; return the metadata, which the caller saves. `data` is the name of the data folder."""
        self._schema = replace(self._schema, empty=frozenset())
        self._add_columns(*self._totals)
        for name, ids in splits.items():
            self._add(("split", None, str(name))).append(as_ids(ids, self._num_graphs))
        assert self._histogram is not None
        classes = np.column_stack([self._histogram.sizes, self._histogram.counts])
        self._add(("size_classes", None, None), row_shape=classes.shape[1:]).append(classes)
        schema, idtype = self._schema, str(self._schema.idtype).removeprefix("torch.")
        # Features that came late stand next to the other arrays of their type.
        types = [*self._totals, None]
        keys = sorted(self._writers, key=lambda key: types.index(key[1]))
        arrays = tuple(self._writers[key].finish() for key in keys)
        return StoreMetadata(
            data, self._num_graphs, schema.node_types, schema.edge_types, idtype, arrays,
            graph_names=schema.graph_names, ties=schema.ties, indices=schema.indices, pyg=schema.pyg,
        )  # fmt: skip

    def close(self) -> None:
        """Close all files, complete or not."""
        for writer in self._writers.values():
            writer.close()


def _write_blocks(
    data: Path, schema: Schema, blocks: Iterator[Any], total: int | None, splits: Mapping[str, Any], compact: bool
) -> StoreMetadata:
    """Write all blocks into the folder `data`, and return the metadata; `total` is the number of graphs, if known."""
    progress = progress_bar(desc="graphs", total=total, unit=" graphs")
    with contextlib.closing(StoreWriter(data, schema, compact)) as writer, progress:
        with writing(data.parent):
            writer.begin()
        # Read blocks outside of `writing`, which would report a failed read of the source as a failed write.
        for block in blocks:
            with writing(data.parent):
                writer.append(block)
            progress.update(len(block))
        with writing(data.parent):
            return writer.finish(data.name, splits)


def blocks_of(
    source: Source, ties: Ties | None = None, indices: Indices | None = None
) -> tuple[Schema, Iterator[GraphBlock]]:
    """Return the schema of a source, and its blocks; `ties` and `indices`, if not None, replace those of the source."""
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
    features = {t: _specs(arrays) for t, arrays in block.features.items()}
    types = tuple(t for t in features if isinstance(t, str)), tuple(t for t in features if isinstance(t, tuple))
    return Schema(*types, features, _specs(block.labels), idtype=torch.int64, has_ids=True)


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
    """A source whose graphs are transformed when they are read; its sizes are the sizes after the transform."""

    def __init__(self, source: Source, settings: WriteSettings, shard: str) -> None:
        super().__init__(source.title)
        self.levels, self.is_stream = source.levels, source.is_stream
        transform: Any
        transform, seed, name = settings.pre_transform, settings.transform_seed, settings.transform_name
        self._source, self._transform = source, GraphTransform(transform, seed, may_grow=True, levels=self.levels)
        self._stream = zlib.crc32(shard.encode())
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
            where = f"item {position}"
            given = parts_of(item, where)
            # Seed random numbers by the position, in place of an id, and by the shard, in place of an epoch.
            (transformed,) = self._transform([given._replace(id=position)], [where], self._stream)
            yield as_item(transformed._replace(id=given.id))


LOCK = ".lock"
_DATA = "data-"
_NAMES = {"store": "a store", "chunks": "chunks"}
# Names of partial metadata files, which a killed process leaves behind.
_PARTIAL = re.compile(r"\.metadata\.json\..*\.partial")


@contextlib.contextmanager
def fresh_data(path: Path, overwrite: bool, what: str = "store") -> Iterator[Path]:
    """Provide a new data folder inside the store `path`; the caller writes arrays there, then saves the metadata.

    If it fails before that, the new data folder is removed, else the older ones: there is always one whole store.
    """
    data = path / f"{_DATA}{secrets.token_hex(8)}"
    with locked(path, functools.partial(check_folder, path, overwrite, what)):
        try:
            with writing(path):
                current = _current(path)
                # If the metadata cannot be read, keep all data folders: a newer release may have written them.
                if current is not None or not is_there(path / METADATA):
                    _remove_data(path, keep=current)
                data.mkdir()
            yield data
            with writing(path):
                _remove_data(path, keep=data.name)
        except BaseException:
            # Keep the new data folder if the metadata already names it: the error may come after the metadata is saved.
            # Search the bytes for the name, which is random: the metadata may be damaged.
            metadata = path / METADATA
            if not (is_there(metadata) and data.name.encode() in metadata.read_bytes()):
                shutil.rmtree(data, ignore_errors=True)
            raise


@contextlib.contextmanager
def locked(path: Path, check: Callable[[], None]) -> Iterator[None]:
    """Make the folder `path` and lock it; `check` raises an error if the folder's content does not allow writing.

    If the ``with`` block fails, a folder that holds only the lock file is removed, with the parents that were made.
    """
    made = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    with writing(path):
        check()
        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout as held:
            raise FormatError(f"another process is writing to {path}; wait for it, or choose another folder.") from held
    try:
        # Check again: another process may have written to the folder since the first check.
        with writing(path):
            check()
        yield
    except BaseException:
        # Delete the lock file while this process still holds the lock.
        with contextlib.suppress(OSError):
            if os.listdir(path) == [LOCK]:
                (path / LOCK).unlink()
                for folder in made:
                    folder.rmdir()
        raise
    finally:
        lock.release()


def names_in(path: Path) -> list[str]:
    """Return the sorted names in a folder; none if it does not exist. Raise FormatError if it is not a folder."""
    if path.is_dir():
        return sorted(os.listdir(path))
    if os.path.lexists(path):
        raise FormatError(f"{path} is not a folder; choose another path.")
    return []


def refuse_others(path: Path, others: Sequence[str], what: str) -> None:
    """Raise FormatError if the folder `path`, which is for `what`, has other content."""
    if others:
        raise FormatError(f"{path} holds other things, such as {others[0]}, but no {what}; choose an empty folder.")


def check_folder(path: Path, overwrite: bool, what: str = "store") -> None:
    """Raise FormatError unless `path` is empty, or has a store (or chunks), unfinished or with `overwrite` finished."""
    names = names_in(path)
    if MANIFEST in names:
        raise FormatError(f"{path} holds a dataset of shards ({MANIFEST}); choose another folder.")
    data = [name for name in names if name.startswith(_DATA)]
    # A damaged store still has data folders, so it may be overwritten. Without a data folder, a metadata.json that is
    # not the metadata of a store belongs to another program.
    if METADATA in names and (data or _current(path) is not None):
        try:
            found = "store" if "format" in read_json(path / METADATA) else "chunks"
        except (FormatError, TypeError):
            found = what
        if found != what:
            raise FormatError(f"{path} holds {_NAMES[found]}, but no {what}; choose another folder.")
        if not overwrite:
            raise FormatError(
                f"{path} holds {_NAMES[what]} already; choose another path, or overwrite it (overwrite=True, "
                "--overwrite)."
            )
        return
    ours = (LOCK, *data)
    refuse_others(path, [name for name in names if name not in ours and not _PARTIAL.fullmatch(name)], what)


def is_begun(path: Path) -> bool:
    """Return whether `path` is a folder that holds only files of a store; the store may be unfinished."""
    return path.is_dir() and all(
        name in (LOCK, METADATA) or name.startswith(_DATA) or _PARTIAL.fullmatch(name) for name in os.listdir(path)
    )


def _current(path: Path) -> str | None:
    """Return the name of the data folder of the store at `path`; None if no metadata can be read."""
    try:
        return StoreMetadata.load(path).data
    except FormatError:
        return None


def _remove_data(path: Path, keep: str | None) -> None:
    """Remove all partial metadata files, and all data folders except the folder named `keep`."""
    for name in os.listdir(path):
        if name.startswith(_DATA) and name != keep:
            # Ignore errors: the next write tries again.
            shutil.rmtree(path / name, ignore_errors=True)
        elif _PARTIAL.fullmatch(name):
            (path / name).unlink(missing_ok=True)
