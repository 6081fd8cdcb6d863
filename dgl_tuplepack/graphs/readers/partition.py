"""One part of a partition for `dgl.distributed`, read as the small graphs that it consists of."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._core.files import JsonFormat, cannot, is_there, open_file
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, SizesError
from dgl_tuplepack.graphs.blocks import Array, GraphBlock, components_of
from dgl_tuplepack.graphs.readers.graph_record import GraphRecord, text_of
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray

GRAPH_FILE, RECORD = "graph.dgl", "graphs.json"
PART_FILE = JsonFormat("dgl_tuplepack.part", 1, "record of a part", "write the partition again")
# Graphs in a block.
_GRAPHS = 4096


def checksum_of(file: Path) -> str:
    """Return the SHA-256 of a file; FormatError if it cannot be read."""
    with open_file(file) as opened:
        file_like: Any = opened
        return hashlib.file_digest(file_like, "sha256").hexdigest()


class PartSource(Source):
    """The folder of one part that `partition` wrote."""

    knows_sizes = True

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.files = self._folder = folder
        if not is_there(folder / RECORD):
            raise FormatError(
                f"{folder} is a part of a partition without the file {RECORD}, which names its graphs; write the "
                "partition by dgl_tuplepack.partition, or read its graphs from the data that it was made of."
            )
        with PART_FILE.reading(folder / RECORD) as document:
            self.record = GraphRecord.from_document(document["graphs"])
            self._checksums = {str(file): str(sha256) for file, sha256 in document["files"].items()}
        self.schema = self.record.schema
        self.ties, self.indices = self.schema.ties, self.schema.indices

    @classmethod
    def of_path(cls, path: Path, settings: Mapping[str, Any]) -> Source | None:
        """Recognise a folder by its file ``graph.dgl``."""
        return cls(path) if is_there(path / GRAPH_FILE) else None

    @property
    def original_ids(self) -> IntArray:
        """int64 ``[n]``, the position of each graph in the source of the partition."""
        return self._array("graphs/ids.npy")

    def num_graphs(self) -> int:
        """Return the number of graphs."""
        return self.record.num_graphs

    @functools.cached_property
    def _sizes(self) -> IntArray:
        types = len(self.schema.node_types) + len(self.schema.edge_types)
        return self._array("graphs/sizes.npy").reshape(-1, types)

    def sizes(self) -> GraphSizes:
        """Return the sizes of the graphs."""
        return GraphSizes(self._sizes, components_of(self.schema.node_types, self.schema.edge_types))

    def splits(self) -> Mapping[str, Any]:
        """Return the ids of each split that the part has, counted within the part."""
        return {name: self._array(file) for name, file in self.record.splits.items()}

    def _array(self, file: str) -> Array:
        try:
            open_file(self._folder / file).close()
            array: Array = np.load(self._folder / file, allow_pickle=False)
            return array
        except (OSError, ValueError, EOFError) as error:
            raise FormatError(cannot("read", self._folder / file, error)) from error

    def _loaded(self) -> tuple[Any, dict[str, Any]]:
        """Return the graph of the part, and all features by type and name."""
        dgl, features = load("dgl"), dict[str, Any]()
        try:
            (graph,), _ = dgl.load_graphs(str(self._folder / GRAPH_FILE))
            for file in ("node_feat.dgl", "edge_feat.dgl"):
                features |= load("dgl.data").load_tensors(str(self._folder / file))
        except Exception as error:
            raise FormatError(
                f"{self._folder} cannot be read by DGL ({error!s:.200}); it is damaged, write the partition again."
            ) from error
        return graph, features

    def blocks(self) -> Iterator[GraphBlock] | None:
        """Return all graphs, a few thousand at a time; the bytes of all files are checked first."""
        if not self.record.num_graphs:
            raise SizesError(
                f"{self._folder} is a part without graphs: there were no graphs left for it; leave it out."
            )
        for file, sha256 in self._checksums.items():
            if checksum_of(self._folder / file) != sha256:
                raise FormatError(f"{self._folder / file} has changed since it was written; write the partition again.")
        return self._blocks()

    def _blocks(self) -> Iterator[GraphBlock]:
        schema, (graph, features) = self.schema, self._loaded()
        types = (*schema.node_types, *schema.edge_types)
        counts = dict(zip(types, self._sizes.T, strict=True))
        # First row of each graph, and the first node (edge) of each type.
        first = {t: np.cumsum([0, *counts[t]], dtype=np.int64) for t in types}
        begin: dict[Any, int] = {}
        for of in (schema.node_types, schema.edge_types):
            begin |= dict(zip(of, np.cumsum([0, *(first[t][-1] for t in of)]).tolist(), strict=False))
        ends = [end.numpy().astype(np.int64) for end in graph.edges()]
        labels = {name: self._array(file) for name, file in self.record.labels.items()}
        for start in range(0, len(self._sizes), _GRAPHS):
            graphs = slice(start, min(start + _GRAPHS, len(self._sizes)))
            rows = {t: slice(int(first[t][graphs.start]), int(first[t][graphs.stop])) for t in types}

            def of_edges(e: Any, end: Array, t: str, graphs: slice = graphs, rows: Mapping[Any, slice] = rows) -> Array:
                inside = end[begin[e] + rows[e].start : begin[e] + rows[e].stop] - begin[t]
                return np.asarray(inside - np.repeat(first[t][graphs], counts[e][graphs]))

            nodes, edges, _ = schema.arranged(lambda column, rows=rows: self._feature(features, column, rows))
            yield GraphBlock(
                {t: counts[t][graphs] for t in schema.node_types},
                {e: counts[e][graphs] for e in schema.edge_types},
                {e: (of_edges(e, ends[0], e[0]), of_edges(e, ends[1], e[2])) for e in schema.edge_types},
                nodes,
                edges,
                {name: values[graphs] for name, values in labels.items()},
            )

    def _feature(self, features: Mapping[str, Any], column: Any, rows: Mapping[Any, slice]) -> Any:
        """Return rows of a feature as stored; None for a label."""
        from dgl_tuplepack.graphs.values import as_array

        content, t, name = column
        if content == "label":
            return None
        spec, key = self.schema.spec_of(column), f"{t if isinstance(t, str) else text_of(t)}/{name}"
        if key in features:
            return as_array(features[key][rows[t]].to(spec.dtype))
        # Empty features of some dtypes are not in the file.
        return as_array(spec.filled(rows[t].stop - rows[t].start, 0))
