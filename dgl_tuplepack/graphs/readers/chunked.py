"""DGL's chunked graph format: one large graph in several files, read as the small graphs that it consists of."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import as_integers, as_path, shown, true_or_false
from dgl_tuplepack._core.files import is_there, read_json
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, SizesError
from dgl_tuplepack.graphs.blocks import Array, EdgeType, GraphBlock, components_of
from dgl_tuplepack.graphs.readers.graph_record import GRAPH_ID, GraphRecord
from dgl_tuplepack.graphs.readers.row_files import RowFiles, inside
from dgl_tuplepack.graphs.readers.source import SizedSource, Source
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray

METADATA, RECORD = "metadata.json", "dgl_tuplepack"
# Keys of the file, by which the folder is recognised.
_KEYS = ("node_type", "num_nodes_per_chunk", "edge_type", "num_edges_per_chunk", "edges")
# Graphs in a block, and edges that are read at once.
_GRAPHS, _EDGES = 4096, 1 << 20


@dataclass(frozen=True)
class _Members:
    """The graph of each row of a type, ``[V]``; rows in the order of graphs (None: as they are); rows of each graph."""

    graph: IntArray
    order: IntArray | None
    counts: IntArray

    @classmethod
    def of(cls, graph: IntArray, number: int) -> _Members:
        order = None if (graph[1:] >= graph[:-1]).all() else np.argsort(graph, kind="stable")
        return cls(graph, order, np.bincount(graph, minlength=number))

    @functools.cached_property
    def first(self) -> IntArray:
        """First row of each graph in the order of graphs, and the number of rows."""
        return np.cumsum([0, *self.counts], dtype=np.int64)

    @functools.cached_property
    def local(self) -> IntArray:
        """Position of each row in its graph."""
        positions = np.arange(len(self.graph))
        if self.order is not None:
            positions[self.order] = np.arange(len(self.graph))
        return np.asarray(positions - self.first[self.graph], np.int64)

    def rows(self, first: int, last: int) -> slice | IntArray:
        """Return the rows of the graphs first..last-1."""
        rows = slice(int(self.first[first]), int(self.first[last]))
        return rows if self.order is None else self.order[rows]


class ChunkedGraph:
    """A folder in DGL's chunked graph format, with ``metadata.json``, as the small graphs that it consists of.

    Parameters
    ----------
    path
        The folder.
    graph_ids
        The graph of each node: integers ``[V]``, or a mapping from node types to such arrays. Graphs are ordered by
        these numbers. None: the node data ``graph_id`` of the folder; without such data, each connected component is a
        graph, and graphs are ordered by their first nodes.
    absolute_paths
        Whether absolute paths in ``metadata.json`` may lead out of the folder.

    Attributes
    ----------
    path
        The folder.

    Raises
    ------
    FormatError
        The folder does not exist, or its files are damaged or contradict each other (at once, or while reading).

    Notes
    -----
    Only folders that `write_chunks` wrote have labels and splits. Reading needs up to 24 bytes of memory for each node
    and 16 for each edge, and one file. If the nodes or edges of graphs are not next to each other, all CSV and parquet
    files are kept in memory.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        graph_ids: Any = None,
        absolute_paths: bool = False,
    ) -> None:
        self.path, self._given = as_path(path).absolute(), graph_ids
        self._absolute = true_or_false("absolute_paths", absolute_paths)
        document = read_json(self.path / METADATA)
        if not is_chunked(document):
            raise FormatError(f"{self.path / METADATA} lacks {' or '.join(_KEYS)}; give a folder of a chunked graph.")
        self._document, self.record = document, self._record(document)
        self._num_nodes = self._numbers("node_type", "num_nodes_per_chunk")
        by_name = self._numbers("edge_type", "num_edges_per_chunk")
        self._num_edges = {self._edge_type(name): number for name, number in by_name.items()}
        self._edges = {
            e: self._files(f"the edges {':'.join(e)}", document["edges"], ":".join(e), number, True)
            for e, number in self._num_edges.items()
        }
        self._node_data = {t: self._data("node_data", t, n) for t, n in self._num_nodes.items()}
        self._edge_data = {e: self._data("edge_data", ":".join(e), n) for e, n in self._num_edges.items()}
        self._ids = {t: data.pop(GRAPH_ID) for t, data in self._node_data.items() if GRAPH_ID in data}
        if self.record is not None:
            self._check_schema(self.record.schema)

    def _record(self, document: Mapping[str, Any]) -> GraphRecord | None:
        if RECORD not in document:
            return None
        try:
            return GraphRecord.from_document(document[RECORD])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(
                f"the key {RECORD!r} in {self.path / METADATA} is damaged ({error!s:.200}); write the chunks again."
            ) from error

    def _check_schema(self, schema: Any) -> None:
        """Raise FormatError unless the files have the types and features of the schema that was recorded."""
        agrees = ([*schema.node_types], [*schema.edge_types]) == ([*self._num_nodes], [*self._num_edges])
        for (content, t, name), spec in schema.columns() if agrees else ():
            by_type: Any = self._node_data if content == "node_feature" else self._edge_data
            if content != "label":
                # numpy has no bfloat16; its bits are stored.
                dtype = str(spec.dtype).removeprefix("torch.").replace("bfloat16", "uint16")
                rows = by_type[t][name].rows(slice(0, 0)) if name in by_type[t] else np.empty(0, "V1")
                agrees &= (str(rows.dtype), rows.shape[1:]) == (dtype, spec.shape)
        if not agrees:
            raise FormatError(
                f"{self.path / METADATA} names other types, features, dtypes or shapes than its key {RECORD!r}; "
                "write the chunks again, or remove that key, and with it labels and splits."
            )

    def _numbers(self, types: str, numbers: str) -> dict[str, int]:
        """Return the number of nodes (edges) of each type: the sum over all chunks."""
        names, rows = self._document[types], self._document[numbers]
        lists = isinstance(names, list) and isinstance(rows, list) and all(isinstance(row, list) for row in rows)
        if not lists or not len(names) == len(rows) == len(set(map(str, names))):
            raise FormatError(
                f"{self.path} has the {types} {shown(names)} and {numbers} {shown(rows)}; it needs distinct types, and "
                "one list of numbers for each of them."
            )
        for number in (number for row in rows for number in row):
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise FormatError(f"{self.path} has {shown(number)} among {numbers}; give whole numbers >= 0.")
        return {str(name): sum(row) for name, row in zip(names, rows, strict=True)}

    def _edge_type(self, name: str) -> EdgeType:
        source, relation, destination = [*name.split(":"), "", ""][:3]
        if name.count(":") != 2 or not {source, destination} <= self._num_nodes.keys():
            raise FormatError(
                f"{self.path} has the edge type {name!r:.200}; it must be source:relation:destination, with two of the "
                f"node types {list(self._num_nodes)}."
            )
        return source, relation, destination

    def _data(self, key: str, t: str, number: int) -> dict[str, RowFiles]:
        of_type = self._mapping(self._mapping(self._document.get(key, {}), key).get(t, {}), f"{key} of {t}")
        return {str(name): self._files(f"{key} {t}/{name}", of_type, name, number) for name in of_type}

    def _mapping(self, value: Any, what: str) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise FormatError(f"{what} in {self.path / METADATA} is {shown(value)}; it must be an object with names.")
        return value

    def _files(self, what: str, specs: Any, name: str, number: int, pairs: bool = False) -> RowFiles:
        if name not in self._mapping(specs, what):
            raise FormatError(f"{self.path / METADATA} does not name the files of {what}; add them.")
        files = RowFiles.of_spec(what, specs[name], self.path, self._absolute, pairs)
        if len(files) != number:
            raise FormatError(
                f"the files of {what} hold {len(files):,} rows, but {METADATA} counts {number:,} in all chunks of "
                f"{self.path}; a file is missing, truncated or of another graph."
            )
        return files

    @property
    def sizes(self) -> GraphSizes:
        """Sizes of all graphs."""
        columns = [members.counts for members in (*self._nodes.values(), *self._edges_of_graphs.values())]
        return GraphSizes(np.stack(columns, axis=1), components_of([*self._num_nodes], [*self._num_edges]))

    @property
    def splits(self) -> Mapping[str, IntArray]:
        """The ids of each split, by its name; empty for a folder of another program."""
        return {} if self.record is None else {n: self._of_graphs(n, f) for n, f in self.record.splits.items()}

    def _of_graphs(self, name: str, file: str) -> Array:
        return RowFiles(f"{name!r}", [inside(self.path, file, False)], "numpy").rows(slice(0, 2**62))

    def __len__(self) -> int:
        return self._number

    @functools.cached_property
    def _graphs(self) -> tuple[int, dict[str, IntArray]]:
        """The number of graphs, and the graph of each node by type."""
        given = self._given_ids()
        if given is None:
            given = self._components()
        joined = np.concatenate(list(given.values())) if given else np.empty(0, np.int64)
        if self.record is not None and self._given is None:
            number = self.record.num_graphs
            if len(joined) and not 0 <= joined.min() <= joined.max() < number:
                raise FormatError(
                    f"{self.path} has a {GRAPH_ID} outside 0..{number - 1}, {joined.min()} or {joined.max()}; it is "
                    "damaged, write the chunks again."
                )
            return number, given
        known, joined = np.unique(joined, return_inverse=True)
        ends = np.cumsum([len(ids) for ids in given.values()])[:-1]
        return len(known), dict(zip(given, np.split(joined.astype(np.int64), ends), strict=True))

    def _given_ids(self) -> dict[str, IntArray] | None:
        """Return the ids that the user or the folder gives; None if there are none."""
        given: Any = self._given
        if given is None:
            if self._ids and self._ids.keys() != self._num_nodes.keys():
                raise FormatError(
                    f"{self.path} has a {GRAPH_ID} for nodes of {list(self._ids)}, but not for all of "
                    f"{list(self._num_nodes)}; add it, or give ChunkedGraph(folder, graph_ids=...)."
                )
            given = {t: files.rows(slice(0, len(files))) for t, files in self._ids.items()} or None
            if given is None:
                return None
        elif not isinstance(given, Mapping):
            given = {t: given for t in self._num_nodes}
        ids = {t: as_integers(np.asarray(given[t]).reshape(-1)) if t in given else None for t in self._num_nodes}
        for t, number in self._num_nodes.items():
            found = ids[t]
            if found is None or len(found) != number:
                raise SizesError(
                    f"there are {'no' if found is None else f'{len(found):,}'} graph ids for the {number:,} nodes of "
                    f"{t!r}; give one integer for each node of each type."
                )
        return {t: np.asarray(array, np.int64) for t, array in ids.items()}

    def _components(self) -> dict[str, IntArray]:
        """Return the connected component of each node, over all types; numbered by their first nodes."""
        sparse = load("scipy.sparse")
        first = dict(zip(self._num_nodes, np.cumsum([0, *self._num_nodes.values()]).tolist(), strict=False))
        total = sum(self._num_nodes.values())
        ends = [np.stack([s + first[e[0]], d + first[e[2]]]) for e in self._num_edges for _, s, d in self._pairs(e)]
        src, dst = np.concatenate([np.empty((2, 0), np.int64), *ends], axis=1)
        matrix = sparse.coo_array((np.ones(len(src), np.bool_), (src, dst)), shape=(total, total))
        _, component = load("scipy.sparse.csgraph").connected_components(matrix, directed=False)
        _, begins, numbered = np.unique(component, return_index=True, return_inverse=True)
        component = np.argsort(np.argsort(begins))[numbered].astype(np.int64)
        return {t: component[first[t] : first[t] + number] for t, number in self._num_nodes.items()}

    def _pairs(self, e: EdgeType) -> Iterator[tuple[int, IntArray, IntArray]]:
        """Yield the first number, the sources and the destinations of the edges of a type, some at a time."""
        for begin in range(0, self._num_edges[e], _EDGES):
            pairs = self._edges[e].rows(slice(begin, begin + _EDGES))
            for t, ends in zip((e[0], e[2]), pairs.T, strict=True):
                wrong = np.flatnonzero((ends < 0) | (ends >= self._num_nodes[t]))
                if len(wrong):
                    raise FormatError(
                        f"edge {begin + wrong[0]:,} of {':'.join(e)} in {self.path} has the node {ends[wrong[0]]}, but "
                        f"nodes of {t!r} are 0..{self._num_nodes[t] - 1}; correct the files of edges."
                    )
            yield begin, pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)

    @property
    def _number(self) -> int:
        return self._graphs[0]

    @functools.cached_property
    def _nodes(self) -> dict[str, _Members]:
        return {t: _Members.of(graph, self._number) for t, graph in self._graphs[1].items()}

    @functools.cached_property
    def _edges_of_graphs(self) -> dict[EdgeType, _Members]:
        members = {}
        for e, number in self._num_edges.items():
            graph = np.empty(number, np.int64)
            for begin, src, dst in self._pairs(e):
                ours, theirs = self._nodes[e[0]].graph[src], self._nodes[e[2]].graph[dst]
                apart = np.flatnonzero(ours != theirs)
                if len(apart):
                    raise FormatError(
                        f"edge {begin + apart[0]:,} of {':'.join(e)} in {self.path} joins the graphs {ours[apart[0]]} "
                        f"and {theirs[apart[0]]}; correct {GRAPH_ID}, or give other ChunkedGraph(..., graph_ids=...)."
                    )
                graph[begin : begin + len(src)] = ours
            members[e] = _Members.of(graph, self._number)
        return members

    def blocks(self) -> Iterator[GraphBlock]:
        """Yield all graphs in order, a few thousand at a time."""
        nodes, edges, record = self._nodes, self._edges_of_graphs, self.record
        labels = {} if record is None else {n: self._of_graphs(n, f) for n, f in record.labels.items()}
        for name, values in labels.items():
            if len(values) != self._number:
                raise FormatError(
                    f"the label {name!r:.200} in {self.path} has {len(values)} values for {self._number} graphs; "
                    "write the chunks again."
                )
        for first in range(0, self._number, _GRAPHS):
            last = min(first + _GRAPHS, self._number)
            rows: dict[Any, Any] = {t: m.rows(first, last) for t, m in (*nodes.items(), *edges.items())}
            ends = {e: self._edges[e].rows(rows[e]).astype(np.int64) for e in edges}
            yield GraphBlock(
                {t: members.counts[first:last] for t, members in nodes.items()},
                {e: members.counts[first:last] for e, members in edges.items()},
                {e: (nodes[e[0]].local[pairs[:, 0]], nodes[e[2]].local[pairs[:, 1]]) for e, pairs in ends.items()},
                {t: {n: np.asarray(f.rows(rows[t])) for n, f in data.items()} for t, data in self._node_data.items()},
                {e: {n: np.asarray(f.rows(rows[e])) for n, f in data.items()} for e, data in self._edge_data.items()},
                {name: np.asarray(values[first:last]) for name, values in labels.items()},
            )


class ChunkedSource(SizedSource):
    """A `ChunkedGraph`, or the path of its folder."""

    def __init__(self, chunked: ChunkedGraph) -> None:
        super().__init__(str(chunked.path), chunked)
        if chunked._given is None and not chunked._absolute:
            self.files = chunked.path
        if chunked.record is not None:
            self.schema = chunked.record.schema
            self.ties, self.indices = self.schema.ties, self.schema.indices

    @classmethod
    def of_path(cls, path: Path, settings: Mapping[str, Any]) -> Source | None:
        """Recognise a folder by its ``metadata.json``, which is not the file of a store."""
        if not is_there(path / METADATA):
            return None
        try:
            document = read_json(path / METADATA)
        except FormatError:
            # A damaged file may be the file of a store, which reports it.
            return None
        return cls(ChunkedGraph(path)) if is_chunked(document) else None

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Recognise a `ChunkedGraph`."""
        return cls(given) if isinstance(given, ChunkedGraph) else None

    def blocks(self) -> Iterator[GraphBlock] | None:
        """Return blocks of graphs, in the order of their ids."""
        blocks: Iterator[GraphBlock] = self._given.blocks()
        return blocks


def is_chunked(document: Any) -> bool:
    """Return whether the content of a ``metadata.json`` describes a chunked graph."""
    return isinstance(document, dict) and "format" not in document and all(key in document for key in _KEYS)
