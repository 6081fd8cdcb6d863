"""One large graph that consists of small graphs: read the small graphs, and their sizes, from the large graph."""

from __future__ import annotations

import functools
import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dgl_tuplepack._core.checks import as_ids
from dgl_tuplepack._core.files import JsonFormat, is_there, open_file
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, SchemaError, SizesError
from dgl_tuplepack.graphs.blocks import Array, EdgeType, GraphBlock, GraphType, components_of
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray

# Graphs in a block, and edges that are read at once.
_GRAPHS, _EDGES = 4096, 1 << 20


class Rows(Protocol):
    """Rows of an array, or of several files."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def __getitem__(self, rows: IntArray) -> Array:
        """Return the rows at these indices."""


@dataclass(frozen=True)
class LargeGraph:
    """Arrays with a row for each node (edge) of a large graph, and the index of the small graph of each node.

    There are V_t nodes (E_t edges) of each type t, in any order, which the nodes (edges) of a small graph keep.
    """

    title: str
    num_graphs: int
    # [V_t] for each node type.
    graph_of_node: Mapping[str, IntArray]
    # Source and destination of each edge, [E_t, 2]; nodes are numbered 0..V_t-1 in each type.
    edges: Mapping[EdgeType, Rows]
    # Features [V_t, ...] and [E_t, ...] by type and name, and labels [N, ...] by name.
    features: Mapping[Any, Mapping[str, Rows]]
    labels: Mapping[str, Array] = field(default_factory=dict)

    def blocks(self) -> Iterator[GraphBlock]:
        """Yield all small graphs in order, a few thousand at a time."""
        graph_of: dict[GraphType, IntArray] = dict([*self.graph_of_node.items(), *self.graph_of_edge.items()])
        counts = {t: np.bincount(graphs, minlength=self.num_graphs) for t, graphs in graph_of.items()}
        # order[t]: all nodes (edges), sorted by small graph. In it, those of graph i begin at offsets[t][i].
        order = {t: np.argsort(graphs, kind="stable") for t, graphs in graph_of.items()}
        offsets = {t: np.append(0, np.cumsum(own)) for t, own in counts.items()}
        # The position of each node in its small graph.
        position = {}
        for t, graphs in self.graph_of_node.items():
            position[t] = np.empty_like(order[t])
            position[t][order[t]] = np.arange(len(graphs))
            position[t] -= offsets[t][graphs]
        for begin in range(0, self.num_graphs, _GRAPHS):
            end = min(begin + _GRAPHS, self.num_graphs)
            rows = {t: order[t][own[begin] : own[end]] for t, own in offsets.items()}
            # Source and destination of each edge of this block, as nodes of the large graph, [n, 2].
            ends = {e: edges[rows[e]] for e, edges in self.edges.items()}
            yield GraphBlock(
                {t: own[begin:end] for t, own in counts.items()},
                {e: (position[e[0]][pairs[:, 0]], position[e[2]][pairs[:, 1]]) for e, pairs in ends.items()},
                {t: {n: values[rows[t]] for n, values in data.items()} for t, data in self.features.items()},
                {name: values[begin:end] for name, values in self.labels.items()},
            )

    def sizes(self) -> GraphSizes:
        """Return the sizes of the small graphs."""
        graphs = (*self.graph_of_node.values(), *self.graph_of_edge.values())
        array = np.stack([np.bincount(own, minlength=self.num_graphs) for own in graphs], axis=1)
        return GraphSizes(array, components_of([*self.graph_of_node], [*self.edges]))

    @functools.cached_property
    def graph_of_edge(self) -> Mapping[EdgeType, IntArray]:
        """The small graph of each edge, ``[E_t]``; FormatError for an edge between two small graphs."""
        number = {t: len(own) for t, own in self.graph_of_node.items()}
        found = {e: np.empty(len(edges), np.int64) for e, edges in self.edges.items()}
        for e, edges in self.edges.items():
            for begin, pairs in pairs_of(edges, e, number, self.title):
                ours, theirs = self.graph_of_node[e[0]][pairs[:, 0]], self.graph_of_node[e[2]][pairs[:, 1]]
                apart = np.flatnonzero(ours != theirs)
                if len(apart):
                    raise FormatError(
                        f"edge {begin + apart[0]:,} of {text_of(e)} in {self.title} connects the graphs "
                        f"{ours[apart[0]]} and {theirs[apart[0]]}; correct the node data graph_id, "
                        "or pass a different graph_ids= to ChunkedGraph."
                    )
                found[e][begin : begin + len(pairs)] = ours
        return found


def pairs_of(edges: Rows, e: EdgeType, num_nodes: Mapping[str, int], title: str) -> Iterator[tuple[int, IntArray]]:
    """Yield runs of consecutive edges of a type: the index of the first edge, and all edges of the run, ``[n, 2]``."""
    for begin in range(0, len(edges), _EDGES):
        pairs = edges[np.arange(begin, min(begin + _EDGES, len(edges)))]
        for t, ends in zip((e[0], e[2]), pairs.T, strict=True):
            wrong = np.flatnonzero((ends < 0) | (ends >= num_nodes[t]))
            if len(wrong):
                raise FormatError(
                    f"edge {begin + wrong[0]:,} of {text_of(e)} in {title} has the node {ends[wrong[0]]}, but nodes of "
                    f"{t!r} are 0..{num_nodes[t] - 1}; correct the files of edges."
                )
        yield begin, pairs.astype(np.int64)


def ends_in_large(block: GraphBlock, e: EdgeType, firsts: Mapping[str, IntArray]) -> list[IntArray]:
    """Return the sources and the destinations of the edges of type `e`, as nodes of the large graph.

    ``firsts[t]`` has the number of the first node of type `t` of each small graph in the large graph.
    """
    # Endpoints in a block count from 0 in each small graph.
    counts = block.lengths[e]
    return [own + np.repeat(firsts[t], counts) for t, own in zip((e[0], e[2]), block.endpoints[e], strict=True)]


def text_of(edge_type: EdgeType) -> str:
    """Return the name of an edge type in DGL's files, "source:relation:destination"."""
    return ":".join(edge_type)


# GRAPH_ID: the name of the node data with the index of each node's graph.
RECORD, GRAPH_ID = "graphs.npz", "graph_id"
_VERSION = 1
# zipfile raises RuntimeError if a damaged bit marks a file as encrypted.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, RuntimeError)


@dataclass(frozen=True)
class GraphRecord:
    """Facts about N small graphs, in one file of numpy arrays.

    `sizes` ``[N, k]`` has a column for each node type and edge type; `ids` are positions in the source, the values of
    `splits` positions among these N graphs.
    """

    schema: Any
    sizes: IntArray
    ids: IntArray
    labels: Mapping[str, Array]
    splits: Mapping[str, IntArray]

    def save(self, file: Path) -> None:
        """Write the file. The arrays of labels and splits are numbered, since their names may have any characters."""
        names = {"labels": list(self.labels), "splits": list(self.splits)}
        document = {"version": _VERSION, **names, **document_of(self.schema)}
        arrays: dict[str, Any] = {f"label{i}": values for i, values in enumerate(self.labels.values())}
        arrays |= {f"split{i}": ids for i, ids in enumerate(self.splits.values())}
        np.savez(file, document=np.array(json.dumps(document)), sizes=self.sizes, ids=self.ids, **arrays)

    @classmethod
    def load(cls, file: Path) -> GraphRecord:
        """Read the file; FormatError if it is missing or damaged, or its arrays contradict each other."""
        load("torch")
        with open_file(file) as opened:
            try:
                with np.load(opened, allow_pickle=False) as arrays:
                    document = json.loads(arrays["document"].item())
                    if document["version"] != _VERSION or document["idtype"] not in ("int32", "int64"):
                        raise ValueError(f"its version must be {_VERSION}, and its idtype int32 or int64")
                    sizes, ids = arrays["sizes"], arrays["ids"]
                    labels = {name: arrays[f"label{i}"] for i, name in enumerate(document["labels"])}
                    splits = {name: arrays[f"split{i}"] for i, name in enumerate(document["splits"])}
                schema = _schema_of(document)
                lengths = {len(rows) for rows in (sizes, ids, *labels.values())}
                if len(lengths) > 1 or labels.keys() != schema.labels.keys():
                    raise ValueError("its labels or ids do not match its graphs")
                splits = {name: as_ids(own, len(sizes)) for name, own in splits.items()}
            except (KeyError, AttributeError, TypeError, ValueError, OSError, EOFError, *_ZIP_ERRORS) as error:
                raise FormatError(f"{file} is damaged ({error!s:.200}); write its folder again.") from error
        return cls(schema, sizes, ids, labels, splits)


def document_of(schema: Any) -> dict[str, Any]:
    """Return a schema as a JSON document; each of its columns is (content, type, name, dtype, shape)."""
    return {
        "node_types": schema.node_types,
        "edge_types": schema.edge_types,
        "columns": [[*c, str(spec.dtype).removeprefix("torch."), spec.shape] for c, spec in schema.columns()],
        "idtype": str(schema.idtype).removeprefix("torch."),
        "ties": dict(schema.ties),
        "indices": dict(schema.indices),
        "pyg": schema.pyg and schema.pyg.as_document(),
    }


def _schema_of(document: Mapping[str, Any]) -> Any:
    import torch

    from dgl_tuplepack.graphs.pyg_layout import PygLayout, type_of_json
    from dgl_tuplepack.graphs.schema import ArraySpec, Schema

    columns = (
        ((content, type_of_json(t), name), ArraySpec(tuple(shape), getattr(torch, dtype)))
        for content, t, name, dtype, shape in document["columns"]
    )
    return Schema.of_columns(
        document["node_types"], [*map(tuple, document["edge_types"])], columns,
        idtype=getattr(torch, document["idtype"]), has_ids=True, ties=document["ties"], indices=document["indices"],
        pyg=document["pyg"] and PygLayout.from_document(document["pyg"]),
    )  # fmt: skip


def check_names(schema: Any) -> None:
    """Raise SchemaError if DGL's files cannot hold the graphs, because of the names of types, features or graphs."""
    if schema.graph_names:
        raise SchemaError(
            f"items of named graphs {list(schema.graph_names)} cannot be written as one large graph; write a store "
            "or shards, or give one of the graphs of each item."
        )
    types = {name for t in (*schema.node_types, *schema.edge_types) for name in ([t] if isinstance(t, str) else t)}
    features = {name for (content, _, name), _ in schema.columns() if content != "label"}
    # DGL's files separate names by these characters, and types are used in file names.
    for what, marks, names in (("type", ":/", types), ("feature", "/", features)):
        if wrong := sorted(name for name in names if any(mark in name for mark in marks)):
            raise SchemaError(
                f"the {what} {wrong[0]!r:.200} has a name that DGL's files cannot hold; rename it: no "
                f"{' or '.join(map(repr, marks))}."
            )
    if any(GRAPH_ID in features for features in schema.node_features.values()):
        raise SchemaError(f"nodes have a feature {GRAPH_ID!r}, but the files need this name themselves; rename it.")


GRAPH_FILE, NODE_FEATURES, EDGE_FEATURES, PART = "graph.dgl", "node_feat.dgl", "edge_feat.dgl", "part.json"
# PART holds the identity of a part, and the checksums of all other files in its folder.
PART_FILE = JsonFormat("dgl_tuplepack.part", 1, "record of a part", "write the partition again")


def checksum_of(file: Path) -> str:
    """Return the SHA-256 of a file; FormatError if it cannot be read."""
    with open_file(file) as opened:
        file_like: Any = opened
        return hashlib.file_digest(file_like, "sha256").hexdigest()


def check_files(folder: Path) -> str:
    """Return the identity of a part; raise FormatError if a file has changed since it was written."""
    with PART_FILE.reading(folder / PART) as document:
        identity, checksums = str(document["identity"]), dict(document["files"])
    for file, sha256 in checksums.items():
        if checksum_of(folder / file) != sha256:
            raise FormatError(f"{folder / file} has changed since it was written; write the partition again.")
    return identity


class PartSource(Source):
    """The folder of one part that `partition` wrote."""

    knows_sizes = True

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.files = self._folder = folder
        if not is_there(folder / PART):
            raise FormatError(
                f"{folder} is a part without the file {PART}, which `partition` writes; write the partition by "
                "dgl_tuplepack.partition, or read the graphs from the data that was partitioned."
            )
        self.record = GraphRecord.load(folder / RECORD)
        self.schema = self.record.schema
        self.ties, self.indices = self.schema.ties, self.schema.indices

    @classmethod
    def of_path(cls, path: Path, settings: Mapping[str, Any]) -> Source | None:
        """Recognise a folder by its file ``graph.dgl``."""
        return cls(path) if is_there(path / GRAPH_FILE) else None

    def num_graphs(self) -> int:
        """Return the number of graphs."""
        return len(self.record.sizes)

    def sizes(self) -> GraphSizes:
        """Return the sizes of the graphs."""
        return GraphSizes(self.record.sizes, components_of(self.schema.node_types, self.schema.edge_types))

    def splits(self) -> Mapping[str, Any]:
        """Return the ids of each split; these ids are positions in the part."""
        return self.record.splits

    def blocks(self) -> Iterator[GraphBlock] | None:
        """Return all graphs, a few thousand at a time."""
        if not self.num_graphs():
            raise SizesError(
                f"{self._folder} is a part without graphs: there were no graphs left for it; leave it out."
            )
        check_files(self._folder)
        schema = self.schema
        (graph,), _ = load("dgl").load_graphs(str(self._folder / GRAPH_FILE))
        features = {
            key: tensor
            for file in (NODE_FEATURES, EDGE_FEATURES)
            for key, tensor in load("dgl.data").load_tensors(str(self._folder / file)).items()
        }
        node_types, edge_types = schema.node_types, schema.edge_types
        totals = dict(zip((*node_types, *edge_types), self.record.sizes.sum(axis=0).tolist(), strict=True))
        # The first columns of `sizes` belong to the node types. Nodes of each type are sorted by small graph.
        columns = zip(node_types, self.record.sizes.T, strict=False)
        graph_of_node = {t: np.repeat(np.arange(self.num_graphs()), counts) for t, counts in columns}
        # In the file, nodes and edges are sorted by type, and nodes have one numbering for all types.
        ends = np.stack([end.numpy().astype(np.int64) for end in graph.edges()], axis=1)
        split = np.split(ends, np.cumsum([totals[e] for e in edge_types]))
        first = dict(zip(node_types, np.cumsum([0, *(totals[t] for t in node_types)]), strict=False))
        edges = {e: own - [first[e[0]], first[e[2]]] for e, own in zip(edge_types, split, strict=False)}
        data: Any = {t: self._features_of(t, features, totals[t], specs) for t, specs in schema.features.items()}
        number, labels = self.num_graphs(), self.record.labels
        return LargeGraph(str(self._folder), number, graph_of_node, edges, data, labels).blocks()

    def _features_of(
        self, t: GraphType, features: Mapping[str, Any], total: int, specs: Mapping[str, Any]
    ) -> dict[str, Array]:
        """Return the features of a type, which has `total` nodes (edges), from the features in DGL's files."""
        from dgl_tuplepack.graphs.schema import as_array

        found = {}
        for name, spec in specs.items():
            key = f"{t if isinstance(t, str) else text_of(t)}/{name}"
            value = features.get(key)
            if value is None:
                # Features without rows are missing in DGL's files, if they have certain dtypes.
                value = spec.filled(total, 0)
                if value.numel():
                    raise FormatError(f"{self._folder} lacks the feature {key!r}; write the partition again.")
            found[name] = as_array(value.to(spec.dtype))
        return found
