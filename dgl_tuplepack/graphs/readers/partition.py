"""One part of a partition for `dgl.distributed`, read as the small graphs that the part consists of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._core.files import JsonFormat, is_there, open_file
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, SizesError
from dgl_tuplepack.graphs.blocks import Array, EdgeType, GraphBlock, GraphType, components_of
from dgl_tuplepack.graphs.readers.graph_record import RECORD, GraphRecord
from dgl_tuplepack.graphs.readers.large_graph import LargeGraph, text_of
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray

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
        types = (*schema.node_types, *schema.edge_types)
        totals = dict(zip(types, self.record.sizes.sum(axis=0).tolist(), strict=True))
        graph_ids = np.arange(self.num_graphs())
        # The first columns of `sizes` belong to the node types. Nodes of each type are sorted by small graph.
        columns = zip(schema.node_types, self.record.sizes.T, strict=False)
        graph_of_node = {t: np.repeat(graph_ids, counts) for t, counts in columns}
        ends = np.stack([end.numpy().astype(np.int64) for end in graph.edges()], axis=1)
        edges = self._edges_by_type(ends, totals)
        nodes = {t: self._features_of(t, features, totals[t], specs) for t, specs in schema.node_features.items()}
        of_edges = {e: self._features_of(e, features, totals[e], specs) for e, specs in schema.edge_features.items()}
        return LargeGraph(
            str(self._folder), self.num_graphs(), graph_of_node, edges, nodes, of_edges, self.record.labels
        ).blocks()

    def _edges_by_type(self, ends: IntArray, totals: Mapping[Any, int]) -> dict[EdgeType, IntArray]:
        """Return the edges of each type, with the nodes of each type numbered from 0; `totals` counts both by type.

        `ends` ``[edges, 2]`` has the end nodes of all edges, as in DGL's file: nodes and edges are sorted by type, and
        nodes have one numbering for all types.
        """
        node_types, edge_types = self.schema.node_types, self.schema.edge_types
        first = dict(zip(node_types, np.cumsum([0, *(totals[t] for t in node_types)]), strict=False))
        split = np.split(ends, np.cumsum([totals[e] for e in edge_types]))
        return {e: own - [first[e[0]], first[e[2]]] for e, own in zip(edge_types, split, strict=False)}

    def _features_of(
        self, t: GraphType, features: Mapping[str, Any], total: int, specs: Mapping[str, Any]
    ) -> dict[str, Array]:
        """Return the features of a type, which has `total` nodes (edges), from the features in DGL's files."""
        from dgl_tuplepack.graphs.values import as_array

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
