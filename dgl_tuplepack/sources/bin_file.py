"""Files of `dgl.save_graphs` as sources: sizes are read without DGL; items are those that DGL would read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import FormatError, SizesError
from dgl_tuplepack.graphs.blocks import Array, components_of
from dgl_tuplepack.graphs.named import check_types
from dgl_tuplepack.sizes import GraphSizes
from dgl_tuplepack.sources.kind import Source
from dgl_tuplepack.sources.saved_graphs import BFloat16, SavedGraph, read_saved_graphs


class BinFile(Source):
    """A ``.bin`` file, which is read completely."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.files = self._path = path

    @classmethod
    def of_path(cls, path: Path, settings: Mapping[str, Any]) -> Source | None:
        """Recognise the suffix, whether the file exists or not."""
        return cls(path) if path.suffix == ".bin" else None

    def sizes(self, cache: Path | None = None) -> GraphSizes:
        """Return the sizes of the saved graphs."""
        graphs, _ = _read(self._path)
        if not graphs:
            raise SizesError(f"{self.title} has no graphs; at least one is needed.")
        node_types, edge_types = graphs[0].ntypes, graphs[0].canonical_etypes
        for number, graph in enumerate(graphs):
            found = graph.ntypes, graph.canonical_etypes
            check_types(found, (node_types, edge_types), f"item {number} of {self.title}", "item 0")
        rows = [[*graph.num_nodes, *(len(src) for src, _ in graph.endpoints)] for graph in graphs]
        return GraphSizes(np.array(rows, np.int64), components_of(node_types, edge_types))

    def by_position(self) -> Any:
        """Return all items, since the file is read as a whole."""
        return list(self.items())

    def items(self) -> Iterable[Any]:
        """Return graphs, or pairs of a graph and its label."""
        load("dgl")
        saved, arrays = _read(self._path)
        labels = {name: _as_tensor(values) for name, values in arrays.items()}
        graphs = [_as_graph(graph) for graph in saved]
        if not labels:
            return graphs
        if len(labels) == 1:
            return list(zip(graphs, next(iter(labels.values())), strict=True))
        return [(graph, {name: values[i] for name, values in labels.items()}) for i, graph in enumerate(graphs)]


def _read(path: Path) -> tuple[list[SavedGraph], dict[str, Array]]:
    """Return graphs and labels; of each label there are as many as graphs."""
    saved, labels = read_saved_graphs(path)
    wrong = [name for name, values in labels.items() if values.shape[:1] != (len(saved),)]
    if wrong:
        number = int(np.prod(labels[wrong[0]].shape[:1]))
        raise FormatError(f"{path} has {len(saved)} graphs, but {number} labels {wrong[0]!r:.200}; write it again.")
    return saved, labels


def _as_tensor(array: Array) -> Any:
    torch = load("torch")
    if isinstance(array, BFloat16):
        return torch.from_numpy(np.asarray(array)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _as_graph(saved: SavedGraph) -> Any:
    """Return the DGLGraph, with types in the order in which they were saved."""
    from dgl_tuplepack.graphs.build import build_graph

    def tensors(named: Mapping[str, Array]) -> dict[str, Any]:
        return {name: _as_tensor(array) for name, array in named.items()}

    node_types, edge_types = saved.ntypes, saved.canonical_etypes
    return build_graph(
        {e: (_as_tensor(src), _as_tensor(dst)) for e, (src, dst) in zip(edge_types, saved.endpoints, strict=True)},
        dict(zip(node_types, saved.num_nodes, strict=True)),
        dict(zip(node_types, map(tensors, saved.node_features), strict=True)),
        dict(zip(edge_types, map(tensors, saved.edge_features), strict=True)),
    )
