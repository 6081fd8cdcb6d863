"""DGL's chunked graph format: one large graph in several files, read as the small graphs that it consists of."""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import as_path, shown, true_or_false, whole_number
from dgl_tuplepack._core.files import is_there, open_file, read_json
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, SizesError
from dgl_tuplepack.graphs.blocks import Array, EdgeType, GraphBlock
from dgl_tuplepack.graphs.readers.large_graph import GRAPH_ID, GraphRecord, LargeGraph, pairs_of
from dgl_tuplepack.graphs.readers.source import SizedSource, Source, reading
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray

# In ``metadata.json``, the value of `RECORD_KEY` is the path of a `GraphRecord`; DGL ignores this key.
METADATA, RECORD_KEY = "metadata.json", "dgl_tuplepack"
# Keys of ``metadata.json`` by which a chunked graph is recognised.
_KEYS = ("node_type", "num_nodes_per_chunk", "edge_type", "num_edges_per_chunk", "edges")


def is_chunked(document: Any) -> bool:
    """Return whether a ``metadata.json`` describes a chunked graph; that of a store has the key "format"."""
    return isinstance(document, dict) and "format" not in document and all(key in document for key in _KEYS)


class ChunkedGraph:
    """The small graphs in a folder in DGL's chunked graph format; the folder holds them as one large graph.

    Parameters
    ----------
    path
        The folder.
    graph_ids
        The graph of each node: integers ``[V]``, or a mapping from node types to such arrays. Graphs are ordered by
        these integers. The default is the node data ``graph_id`` of the folder. If the folder has no such data, each
        connected component is a graph, and graphs are ordered by their first nodes.
    absolute_paths
        Whether absolute paths in ``metadata.json`` may lead out of the folder.

    Attributes
    ----------
    path
        The folder.

    Raises
    ------
    FormatError, SizesError
        The folder does not exist, or its files are damaged or contradict each other; or `graph_ids` are not one integer
        for each node. Some of these errors are raised only when sizes or graphs are read.

    Notes
    -----
    Labels and splits are read only from folders that `write_chunks` wrote, and only if `graph_ids` is not given.
    Reading needs about 40 bytes of memory for each node and edge; CSV and parquet files stay in memory.
    """

    def __init__(self, path: str | os.PathLike[str], *, graph_ids: Any = None, absolute_paths: bool = False) -> None:
        self.path, self._given = as_path(path).absolute(), graph_ids
        self._absolute = true_or_false("absolute_paths", absolute_paths)
        document = read_json(self.path / METADATA)
        if not is_chunked(document):
            raise FormatError(f"{self.path / METADATA} lacks {' or '.join(_KEYS)}; give a folder of a chunked graph.")
        try:
            self._open_files(document)
        except FormatError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else f"{error!s:.300}"
            raise FormatError(f"{self.path / METADATA} describes no chunked graph ({reason}); correct it.") from error
        # The node data `graph_id` is not a feature, but the graph of each node.
        self._ids = {t: self._features[t].pop(GRAPH_ID) for t in self._num_nodes if GRAPH_ID in self._features[t]}
        self.record: GraphRecord | None = None
        if RECORD_KEY in document and graph_ids is None:
            self.record = GraphRecord.load(inside(self.path, document[RECORD_KEY], False))
            self._check_record(self.record.schema)

    def _open_files(self, document: Mapping[str, Any]) -> None:
        """Open the files that ``metadata.json`` describes; any error means that it describes no chunked graph."""
        nodes = dict(zip(document["node_type"], document["num_nodes_per_chunk"], strict=True))
        edges = dict(zip(document["edge_type"], document["num_edges_per_chunk"], strict=True))
        self._num_nodes: dict[str, int] = {t: _total(numbers) for t, numbers in nodes.items()}
        types: dict[str, EdgeType] = {}
        for name in edges:
            source, _, destination = types[name] = tuple(name.split(":"))
            if not {source, destination} <= nodes.keys():
                raise ValueError(f"the edge type {name} is not source:relation:destination with two of its node types")
        if not types:
            raise ValueError("it names no edge types")

        opened = functools.partial(RowFiles, self.path, self._absolute)

        def data_of(key: str, t: str, number: int) -> dict[str, RowFiles]:
            """Return the files of each feature of a type, by name."""
            specs = document.get(key, {}).get(t, {})
            return {name: opened(f"{key} {t} {name}", spec, number) for name, spec in specs.items()}

        for key, known in (("node_data", nodes), ("edge_data", edges), ("edges", edges)):
            if unknown := document.get(key, {}).keys() - known.keys():
                raise ValueError(f"it has {key} of {min(unknown)!r}, but its types are {[*known]}")
        totals = {name: _total(numbers) for name, numbers in edges.items()}
        self._edges = {
            types[name]: opened(f"edges {name}", document["edges"][name], number, pairs=True)
            for name, number in totals.items()
        }
        self._features: dict[Any, dict[str, RowFiles]]
        self._features = {t: data_of("node_data", t, number) for t, number in self._num_nodes.items()}
        self._features |= {types[name]: data_of("edge_data", name, number) for name, number in totals.items()}

    def _check_record(self, schema: Any) -> None:
        """Raise FormatError unless the files have the types and features of the recorded `schema`."""
        found = {
            (t, name): (str(files.empty.dtype), files.empty.shape[1:])
            for t, data in self._features.items() for name, files in data.items()
        }  # fmt: skip
        # numpy has no bfloat16, so the bits of bfloat16 values are stored as uint16.
        expected = {
            (t, name): (str(spec.dtype).removeprefix("torch.").replace("bfloat16", "uint16"), spec.shape)
            for (_, t, name), spec in schema.columns() if t is not None
        }  # fmt: skip
        types = [*self._num_nodes], [*self._edges]
        if found != expected or types != ([*schema.node_types], [*schema.edge_types]):
            raise FormatError(
                f"{self.path / METADATA} names other types, features, dtypes or shapes than the record that "
                f"its key {RECORD_KEY!r} points to; write the chunks again, or remove that key to read the graphs "
                "without labels and splits."
            )

    @property
    def sizes(self) -> GraphSizes:
        """Sizes of all graphs."""
        return self._large.sizes()

    @property
    def splits(self) -> Mapping[str, IntArray]:
        """The ids of each split by its name; empty if another program wrote the folder, or with `graph_ids`."""
        return {} if self.record is None else self.record.splits

    def __len__(self) -> int:
        return self._large.num_graphs

    def blocks(self) -> Iterator[GraphBlock]:
        """Yield all graphs in order, a few thousand at a time."""
        return self._large.blocks()

    @functools.cached_property
    def _large(self) -> LargeGraph:
        """The large graph, with the index of the small graph of each node."""
        ids, record = self._given_ids() or self._components(), self.record
        # The graph ids of all nodes, one node type after the other.
        joined, ends = np.concatenate(list(ids.values())), np.cumsum([len(own) for own in ids.values()])
        if record is None:
            # Without a record, ids may be any integers. Replace them by 0..N-1, in the same order.
            known, joined = np.unique(joined, return_inverse=True)
            ids = dict(zip(ids, np.split(joined.astype(np.int64), ends[:-1]), strict=True))
        number = len(known) if record is None else len(record.sizes)
        if len(joined) and not 0 <= joined.min() <= joined.max() < number:
            raise FormatError(
                f"{self.path} has a {GRAPH_ID} outside 0..{number - 1}: the smallest is {joined.min()}, the largest "
                f"{joined.max()}; the folder is damaged, write the chunks again."
            )
        labels = {} if record is None else record.labels
        large = LargeGraph(str(self.path), number, ids, self._edges, self._features, labels)
        if record is not None and not np.array_equal(large.sizes().array, record.sizes):
            raise FormatError(f"the graphs in {self.path} have other sizes than were recorded; write the chunks again.")
        return large

    def _given_ids(self) -> dict[str, IntArray] | None:
        """Return the graph id of each node, ``[V_t]`` by type: from the user, else from the folder, else None."""
        given: Any = self._given
        if given is None:
            if not self._ids:
                return None
            if self._ids.keys() != self._num_nodes.keys():
                raise FormatError(
                    f"{self.path} has a {GRAPH_ID} for nodes of {list(self._ids)}, but not for all of "
                    f"{list(self._num_nodes)}; add it, or give ChunkedGraph(folder, graph_ids=...)."
                )
            given = {t: files[np.arange(len(files))] for t, files in self._ids.items()}
        elif not isinstance(given, Mapping):
            given = {t: given for t in self._num_nodes}
        ids = {}
        for t, number in self._num_nodes.items():
            array = np.asarray(given.get(t, np.empty(0, np.int64))).reshape(-1)
            if len(array) and array.dtype.kind not in "iu":
                raise SizesError(f"the {GRAPH_ID} of {t!r} in {self.path} is {array.dtype}; give integers.")
            if len(array) != number:
                raise SizesError(
                    f"there are {len(array):,} graph ids for the {number:,} nodes of {t!r}; give one integer for each "
                    "node of each type."
                )
            ids[t] = array.astype(np.int64)
        return ids

    def _components(self) -> dict[str, IntArray]:
        """Return, by node type, the first node of each node's component, ``[V_t]``, numbered across all types."""
        sparse, graph = load("scipy.sparse"), load("scipy.sparse.csgraph")
        # `first`: the number of the first node of each type.
        ends = np.cumsum([0, *self._num_nodes.values()])
        first = dict(zip(self._num_nodes, ends.tolist(), strict=False))
        pairs = [
            own + np.array([first[e[0]], first[e[2]]])
            for e, edges in self._edges.items()
            for _, own in pairs_of(edges, e, self._num_nodes, str(self.path))
        ]
        src, dst = np.concatenate([np.empty((0, 2), np.int64), *pairs]).T
        matrix = sparse.coo_array((np.ones(len(src), np.bool_), (src, dst)), shape=(ends[-1], ends[-1]))
        _, component = graph.connected_components(matrix, directed=False)
        # first_nodes[c]: the first node of component c. `numbered`: the component of each node.
        _, first_nodes, numbered = np.unique(component, return_index=True, return_inverse=True)
        return dict(zip(self._num_nodes, np.split(first_nodes[numbered], ends[1:-1]), strict=True))


def _total(numbers: Any) -> int:
    return sum(whole_number("each number of a chunk", number, 0) for number in numbers)


class ChunkedSource(SizedSource):
    """A `ChunkedGraph`, or the path of its folder."""

    def __init__(self, chunked: ChunkedGraph) -> None:
        super().__init__(str(chunked.path), chunked)
        # With `graph_ids` or absolute paths, the graphs depend on more than the files in the folder.
        if chunked._given is None and not chunked._absolute:
            self.files = chunked.path
        if chunked.record is not None:
            self.schema = chunked.record.schema
            self.ties, self.indices = self.schema.ties, self.schema.indices

    @classmethod
    def of_path(cls, path: Path, settings: Mapping[str, Any]) -> Source | None:
        """Recognise a folder by its ``metadata.json``, unless that file belongs to a store."""
        try:
            document = read_json(path / METADATA) if is_there(path / METADATA) else None
        except FormatError:
            # A damaged file may belong to a store; the reader of stores then reports the damage.
            return None
        return cls(ChunkedGraph(path)) if is_chunked(document) else None

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Recognise a `ChunkedGraph`."""
        return cls(given) if isinstance(given, ChunkedGraph) else None


FORMATS = ("csv", "numpy", "parquet")
# Key in the metadata of a parquet file, under which DGL's tools write the shape of the array as text, "(5, 2)".
SHAPE = b"shape"


class RowFiles:
    """The rows of several files, numbered from 0 over all files; with `pairs`, each row is an edge: two integers.

    `spec` lists the files, which must have `number` rows; `what` is their content, for messages. Only one numpy file is
    memory-mapped at a time; CSV and parquet files are read once and stay in memory.
    """

    def __init__(self, folder: Path, absolute: bool, what: str, spec: Any, number: int, pairs: bool = False) -> None:
        form = spec["format"]
        name, delimiter = form["name"], form.get("delimiter", " " if pairs else ",")
        if name not in FORMATS or not isinstance(spec["data"], list) or len(delimiter) != 1:
            raise ValueError(
                f"{what} is {shown(spec, 200)}, but needs 'format' with the 'name' {' or '.join(FORMATS)} and a "
                "'delimiter' of one character, and 'data' with a list of files"
            )
        self._what, self._form, self._delimiter, self._pairs = what, name, delimiter, pairs
        self._files = [inside(folder, file, absolute) for file in spec["data"]]
        self._arrays: dict[int, Array] = {}
        if not self._files and not pairs:
            raise ValueError(f"{what} has no files")
        if pairs:
            # Edges are int64, since their files may have different integer dtypes.
            self.empty: Array = np.empty((0, 2), np.int64)
        else:
            self._arrays[0] = self._read(self._files[0])
            self.empty = self._arrays[0][:0]
        lengths = [len(self._array(i)) for i in range(len(self._files))]
        self._offsets = np.cumsum([0, *lengths], dtype=np.int64)
        if len(self) != number:
            raise FormatError(
                f"the files of {what} hold {len(self):,} rows, but {METADATA} counts {number:,} in all chunks of "
                f"{folder}; a file is missing, truncated or of another graph."
            )

    def __len__(self) -> int:
        return int(self._offsets[-1])

    def __getitem__(self, rows: IntArray) -> Array:
        found = np.empty((len(rows), *self.empty.shape[1:]), self.empty.dtype)
        file_of = np.searchsorted(self._offsets, rows, side="right") - 1
        for i in np.unique(file_of).tolist():
            found[file_of == i] = self._array(i)[rows[file_of == i] - self._offsets[i]]
        return found

    def _array(self, i: int) -> Array:
        if i not in self._arrays:
            if self._form == "numpy":
                self._arrays.clear()
            array = self._read(self._files[i])
            if not self._pairs and (array.dtype, array.shape[1:]) != (self.empty.dtype, self.empty.shape[1:]):
                raise FormatError(
                    f"{self._files[i]} holds {_row(array)} in each row, but {self._files[0]} has {_row(self.empty)}; "
                    "write both with the same dtype and shape."
                )
            self._arrays[i] = array
        return self._arrays[i]

    def _read(self, file: Path) -> Array:
        with reading(file, "it is truncated, or of another format"):
            array = _READERS[self._form](file, self._delimiter, self._pairs)
        if array.ndim == 0:
            raise FormatError(f"{file} holds a single value, but must hold rows of {self._what}.")
        if self._pairs and (array.shape[1:] != (2,) or array.dtype.kind not in "iu"):
            raise FormatError(
                f"{file} holds {_row(array)} in each row, but {self._what} needs two integers, a source and a "
                "destination; check the file and its delimiter."
            )
        return array


def _row(array: Array) -> str:
    """Return the dtype and shape of one row, for messages."""
    return f"{array.dtype} {list(array.shape[1:])}"


def inside(folder: Path, file: Any, absolute: bool) -> Path:
    """Return the path of a file that ``metadata.json`` in `folder` lists; FormatError if it is missing, or outside."""
    path = as_path(file)
    if path.is_absolute() and absolute:
        return path
    within, root = os.path.realpath(folder / path), os.path.realpath(folder)
    if os.path.commonpath([within, root]) != root:
        advice = "allow it by ChunkedGraph(folder, absolute_paths=True)" if path.is_absolute() else "move the file"
        raise FormatError(f"{folder} names the file {shown(str(file), 200)}, which lies outside the folder; {advice}.")
    if path.is_absolute() or is_there(Path(within)):
        return Path(within)
    raise FormatError(f"{folder} names the file {shown(str(file), 200)}, which does not exist; restore it.")


def _numpy(file: Path, *_: Any) -> Array:
    open_file(file).close()
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("it holds several arrays")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _csv(file: Path, delimiter: str, pairs: bool) -> Array:
    pandas = load("pandas")
    with open_file(file) as opened:
        try:
            table = pandas.read_csv(opened, sep=delimiter, header=None, dtype=np.int64 if pairs else None)
        except pandas.errors.EmptyDataError:
            return np.empty((0, 2 if pairs else 1), np.int64)
        return np.ascontiguousarray(table.to_numpy())


def _parquet(file: Path, *_: Any) -> Array:
    parquet = load("pyarrow.parquet")
    with open_file(file) as opened:
        table = parquet.read_table(opened)
    # Drop the columns in which pandas may have stored its index.
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])
    table = table.drop_columns([column for column in index if isinstance(column, str)])
    columns = [np.asarray(column.to_numpy()) for column in table.columns]
    # In a column of lists, each list is one row.
    columns = [np.stack(column.tolist()) if column.dtype == object and len(column) else column for column in columns]
    array = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
    shape = (table.schema.metadata or {}).get(SHAPE)
    return array if shape is None else array.reshape([int(n) for n in ast.literal_eval(shape.decode())])


_READERS = {"numpy": _numpy, "csv": _csv, "parquet": _parquet}
