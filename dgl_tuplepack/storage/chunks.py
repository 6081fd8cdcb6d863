"""Write any source as one large graph in several files: DGL's chunked graph format."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import as_path, choice, true_or_false, whole_number
from dgl_tuplepack._core.files import is_there, read_json, write_text
from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.errors import FormatError, InputError, SizesError
from dgl_tuplepack.graphs.blocks import Array, GraphType
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.readers.chunked import METADATA, RECORD, ChunkedGraph, is_chunked
from dgl_tuplepack.graphs.readers.graph_record import GRAPH_ID, GraphRecord, text_of
from dgl_tuplepack.graphs.readers.row_files import FORMATS, SHAPE
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.as_store import as_store
from dgl_tuplepack.storage.folder import fresh_data, writing_to
from dgl_tuplepack.storage.graph_store import StoredGraphs
from dgl_tuplepack.storage.reader import chosen_block
from dgl_tuplepack.storage.write import plain_name

FEATURE_FORMATS = ("numpy", "parquet")
_ENDINGS = {"csv": "csv", "numpy": "npy", "parquet": "parquet"}
_LINES = 1 << 16
# Content, type and name of an array.
_Key = tuple[str, str, str]


def write_chunks(
    source: Any,
    folder: str | os.PathLike[str],
    chunks: int = 8,
    *,
    edges_as: str = "csv",
    features_as: str = "numpy",
    name: str = "graphs",
    overwrite: bool = False,
    levels: Levels | None = None,
) -> ChunkedGraph:
    """Write all graphs of a source as one large graph in DGL's chunked graph format.

    DGL's pipeline for distributed training reads the folder (user guide, chapter 7.1), and so does every function and
    command of this package. Graphs keep their order, and no graph is in two chunks.

    Parameters
    ----------
    source, levels
        As in `GraphStore.write`.
    folder
        Folder to make, or an empty folder.
    chunks
        Number of chunks, >= 1, of about equal numbers of nodes and edges. There are never more chunks than graphs.
    edges_as
        Format of the files of edges: "csv" (two numbers in a line, separated by a space), "numpy" or "parquet".
    features_as
        Format of the files of features: "numpy" or "parquet". Parquet needs pyarrow. Complex features stay numpy.
    name
        Name of the large graph.
    overwrite
        Replace existing chunks. They stay valid until the new ones are complete.

    Returns
    -------
    ChunkedGraph
        The chunks, opened.

    Raises
    ------
    FormatError
        The folder has other content or cannot be written, or a file of the source is damaged.
    SchemaError, SizesError
        Graphs differ in types or features, have names that the format cannot hold, or there are no graphs.
    InputError
        Another argument is not allowed.

    Notes
    -----
    Each node has the number of its graph as the data ``graph_id``. Labels and splits are numpy files that
    ``metadata.json`` names under the key ``dgl_tuplepack``. One chunk is in memory at a time. A source other than a
    store is first written to a temporary store in the folder.

    Examples
    --------
    >>> import dgl, tempfile
    >>> graphs = [dgl.graph(([0, 1], [1, 2])), dgl.graph(([0], [1]))]
    >>> write_chunks(graphs, tempfile.mkdtemp(), 2).sizes.array.tolist()
    [[3, 2], [2, 1]]
    """
    path, chunks = as_path(folder), whole_number("the number of chunks", chunks, 1, 2**20)
    edges_as = choice("edges_as", edges_as, FORMATS)
    features_as = choice("features_as", features_as, FEATURE_FORMATS)
    if not isinstance(name, str) or not name:
        raise InputError(f"the name of the graph is {name!r:.100}; give a text that is not empty.")
    if "parquet" in (edges_as, features_as):
        load("pyarrow")
    _check_folder(path, true_or_false("overwrite", overwrite))
    with fresh_data(path, overwrite) as data:
        with as_store(source, data / "source", levels) as store, writing_to(path):
            document = {"graph_name": name, **_Chunks(store, data, edges_as, features_as).write(chunks)}
        write_text(path / METADATA, json.dumps(document, indent=1) + "\n")
    return ChunkedGraph(path)


def _check_folder(path: Path, overwrite: bool) -> None:
    """Raise FormatError for a folder of other data, such as a store, or of chunks that must not be overwritten."""
    try:
        is_ours = not is_there(path / METADATA) or is_chunked(read_json(path / METADATA))
    except FormatError:
        # Damaged chunks can be overwritten; `fresh_data` refuses them otherwise.
        return
    if not is_ours:
        raise FormatError(f"{path} holds a store or other data, but no chunks; choose another folder.")
    if is_there(path / METADATA) and not overwrite:
        raise FormatError(
            f"{path} holds chunks already; choose another path, or overwrite them (overwrite=True, --overwrite)."
        )


class _Chunks:
    """The files of chunks, written into the folder `data`."""

    def __init__(self, store: StoredGraphs, data: Path, edges_as: str, features_as: str) -> None:
        self._store, self._data, self._schema = store, data, store.schema
        self._forms, self._specs = {"edges": edges_as}, dict[_Key, dict[str, Any]]()
        self._features_as, self._names = features_as, dict[_Key, str]()

    def write(self, chunks: int) -> dict[str, Any]:
        """Write all chunks; return the content of ``metadata.json``."""
        schema, sizes = self._schema, self._store.sizes.array
        bounds = chunk_bounds(sizes.sum(axis=1), chunks)
        types: list[GraphType] = [*schema.node_types, *schema.edge_types]
        firsts = dict(zip(types, (np.cumsum(column) - column for column in sizes.T), strict=True))
        for number in progress_bar(range(len(bounds) - 1), desc="chunks", unit=" chunks"):
            ids = np.arange(bounds[number], bounds[number + 1])
            for key, array in self._arrays(ids, firsts):
                self._save(key, number, array)
        counts = np.add.reduceat(sizes, bounds[:-1], axis=0).T.tolist()
        per_type = dict(zip(types, counts, strict=True))
        return {
            "node_type": list(schema.node_types),
            "num_nodes_per_chunk": [per_type[t] for t in schema.node_types],
            "edge_type": [text_of(e) for e in schema.edge_types],
            "num_edges_per_chunk": [per_type[e] for e in schema.edge_types],
            "edges": {t: spec for (content, t, _), spec in self._specs.items() if content == "edges"},
            "node_data": self._nested("node_data"),
            "edge_data": self._nested("edge_data"),
            RECORD: self._record().as_document(),
        }

    def _nested(self, wanted: str) -> dict[str, dict[str, Any]]:
        nested: dict[str, dict[str, Any]] = {}
        for (content, t, name), spec in self._specs.items():
            if content == wanted:
                nested.setdefault(t, {})[name] = spec
        return nested

    def _arrays(self, ids: IntArray, firsts: Mapping[GraphType, IntArray]) -> Iterator[tuple[_Key, Array]]:
        """Yield the edges, the graph of each node, and the features of some graphs, with their keys."""
        block = chosen_block(self._store, self._store.ids_in_store(ids))
        for e, ends in block.endpoints.items():
            counts = block.num_edges[e]
            columns = [end + np.repeat(firsts[t][ids], counts) for t, end in zip((e[0], e[2]), ends, strict=True)]
            yield ("edges", text_of(e), ""), np.stack(columns, axis=1).astype(np.int64)
        for t, features in block.node_features.items():
            yield ("node_data", t, GRAPH_ID), np.repeat(ids, block.num_nodes[t])
            yield from ((("node_data", t, name), values) for name, values in features.items())
        for e, features in block.edge_features.items():
            yield from ((("edge_data", text_of(e), name), values) for name, values in features.items())

    def _save(self, key: _Key, number: int, array: Array) -> None:
        """Write an array of a chunk, and note its file in the specification of `key`."""
        form = self._forms.get(key[0], self._features_as)
        if form == "parquet" and (array.dtype.kind == "c" or 0 in array.shape[1:]):
            # Parquet has no complex numbers, and no rows without values.
            form = "numpy"
        if key not in self._specs:
            described = {"name": form, **({"delimiter": " "} if form == "csv" else {})}
            self._specs[key] = {"format": described, "data": []}
            # Number the names: two of them may differ only in characters that file names cannot have.
            self._names[key] = f"{len(self._names):02d}_{plain_name(key[1:]) or 'all'}"
            (self._data / key[0]).mkdir(exist_ok=True)
        file = self._data / key[0] / f"{self._names[key]}-{number}.{_ENDINGS[form]}"
        _WRITERS[form](file, array)
        self._specs[key]["data"].append(f"{self._data.name}/{key[0]}/{file.name}")

    def _record(self) -> GraphRecord:
        """Write labels and splits."""
        store, files = self._store, dict[str, dict[str, str]]()
        everything = np.arange(len(store))
        contents: dict[str, dict[str, Any]] = {"labels": {}, "splits": dict(store.splits)}
        if self._schema.labels:
            contents["labels"] = labels_of(store, everything)
        for content, arrays in contents.items():
            files[content] = {}
            for number, (name, array) in enumerate(arrays.items()):
                (self._data / content).mkdir(exist_ok=True)
                file = f"{content}/{number:02d}_{plain_name([name]) or 'y'}.npy"
                np.save(self._data / file, array)
                files[content][name] = f"{self._data.name}/{file}"
        return GraphRecord(len(store), self._schema, files["labels"], files["splits"])


def labels_of(store: StoredGraphs, ids: IntArray) -> dict[str, Array]:
    """Return the labels of some graphs by name, without reading anything else."""
    positions = store.ids_in_store(ids)
    part_of = np.searchsorted(store.first_ids, positions, side="right") - 1
    labels: dict[str, Array] = {}
    for name in store.schema.labels:
        key = ("label", None, name)
        empty = store.parts[0].values(key, slice(0, 0))
        labels[name] = np.empty((len(ids), *empty.shape[1:]), empty.dtype)
        for part in np.unique(part_of).tolist():
            here = part_of == part
            labels[name][here] = store.parts[part].values(key, positions[here] - store.first_ids[part])
    return labels


def chunk_bounds(weights: IntArray, chunks: int) -> IntArray:
    """Return the first graph of each chunk, and the number of graphs; chunks have about equal weights."""
    number = len(weights)
    chunks = min(chunks, number)
    if not chunks:
        raise SizesError("there are no graphs; at least one is needed.")
    goals = np.arange(1, chunks) * (weights.sum() / chunks)
    inner = np.searchsorted(np.cumsum(weights), goals, side="left") + 1
    # Every chunk has at least one graph.
    place = np.arange(1, chunks)
    inner = np.maximum.accumulate(np.maximum(inner, place) - place) + place
    return np.concatenate([[0], np.minimum(inner, number - chunks + place), [number]]).astype(np.int64)


def _write_csv(file: Path, array: Array) -> None:
    with open(file, "x", encoding="ascii") as opened:
        for first in range(0, len(array), _LINES):
            rows = array[first : first + _LINES]
            opened.write("%d %d\n" * len(rows) % tuple(rows.reshape(-1).tolist()))


def _write_parquet(file: Path, array: Array) -> None:
    pyarrow, parquet = load("pyarrow"), load("pyarrow.parquet")
    columns = array.reshape(len(array), -1 if array.size else int(np.prod(array.shape[1:])))
    names = list(map(str, range(columns.shape[1])))
    table = pyarrow.table([pyarrow.array(np.ascontiguousarray(column)) for column in columns.T], names=names)
    parquet.write_table(table.replace_schema_metadata({SHAPE: str(tuple(array.shape)).encode()}), file)


_WRITERS: dict[str, Callable[[Path, Array], None]] = {
    "csv": _write_csv,
    "numpy": lambda file, array: np.save(file, array),
    "parquet": _write_parquet,
}
