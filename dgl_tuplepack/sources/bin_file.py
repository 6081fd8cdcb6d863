"""Files of `dgl.save_graphs` as a source: sizes without DGL, items as DGL itself would read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import FormatError, SchemaError, SizesError
from dgl_tuplepack.graphs.blocks import Array
from dgl_tuplepack.sizes import HOMOGENEOUS, GraphSizes, edge_component, node_component
from dgl_tuplepack.sources.kind import Source
from dgl_tuplepack.sources.saved_graphs import BFloat16, SavedGraph, read_saved_graphs


class BinFile(Source):
    """A ``.bin`` file, which is read as a whole."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.files = self._path = path

    @classmethod
    def of_path(cls, path: Path, settings: Mapping[str, Any]) -> Source | None:
        """Recognise the ending, whether there is such a file or not."""
        return cls(path) if path.suffix == ".bin" else None

    def sizes(self, cache: Path | None = None) -> GraphSizes:
        """Sizes of the graphs as they were saved."""
        graphs, _ = _read(self._path)
        if not graphs:
            raise SizesError(f"{self.title} has no graphs; at least one is needed.")
        node_types, edge_types = types = _types(graphs[0])
        wrong = next((i for i, graph in enumerate(graphs) if _types(graph) != types), None)
        if wrong is not None:
            found = _types(graphs[wrong])
            raise SchemaError(
                f"item {wrong} of {self.title} has node types {found[0]} and edge types {found[1]}, but item 0 has "
                f"{node_types} and {edge_types}; all graphs must have the same types."
            )
        components: tuple[str, ...] = (*map(node_component, node_types), *map(edge_component, edge_types))
        rows = [[*graph.num_nodes, *(len(sources) for sources, _ in graph.endpoints)] for graph in graphs]
        homogeneous = len(node_types) == len(edge_types) == 1
        return GraphSizes(np.array(rows, np.int64), HOMOGENEOUS if homogeneous else components)

    def items(self) -> Iterable[Any]:
        """Graphs, or pairs of a graph and its label."""
        return bin_file_items(self._path)


def bin_file_items(path: Path) -> list[Any]:
    """Items of a file that `dgl.save_graphs` wrote, which is read as a whole.

    Raises
    ------
    FormatError
        There is no such file, or it is damaged.
    """
    load("dgl")
    saved, arrays = _read(path)
    labels = {name: _as_tensor(values) for name, values in arrays.items()}
    graphs = [_as_graph(graph) for graph in saved]
    if not labels:
        return graphs
    if len(labels) == 1:
        return list(zip(graphs, next(iter(labels.values())), strict=True))
    return [(graph, {name: values[i] for name, values in labels.items()}) for i, graph in enumerate(graphs)]


def _read(path: Path) -> tuple[list[SavedGraph], dict[str, Array]]:
    """Graphs and labels, as many of each label as there are graphs."""
    saved, labels = read_saved_graphs(path)
    wrong = [name for name, values in labels.items() if values.shape[:1] != (len(saved),)]
    if wrong:
        number = int(np.prod(labels[wrong[0]].shape[:1]))
        raise FormatError(f"{path} has {len(saved)} graphs, but {number} labels {wrong[0]!r:.200}; write it again.")
    return saved, labels


def _types(graph: SavedGraph) -> tuple[list[str], list[tuple[str, str, str]]]:
    nodes = graph.node_types
    ends = zip(graph.edge_ends, graph.relations, strict=True)
    return list(nodes), [(nodes[source], relation, nodes[destination]) for (source, destination), relation in ends]


def _as_tensor(array: Array) -> Any:
    torch = load("torch")
    if isinstance(array, BFloat16):
        return torch.from_numpy(np.asarray(array)).view(torch.bfloat16)
    # Copied only where the bytes are those of another machine.
    return torch.from_numpy(array)


def _as_graph(saved: SavedGraph) -> Any:
    """DGLGraph with the types in the order in which they were saved, put together as DGL itself does it."""
    dgl = load("dgl")
    relations = []
    formats = dgl._ffi.object_generic.convert_to_object(["coo", "csr", "csc"])
    for (src, dst), (src_type, dst_type) in zip(saved.endpoints, saved.edge_ends, strict=True):
        relations.append(
            dgl.heterograph_index.create_unitgraph_from_coo(
                1 if src_type == dst_type else 2,
                saved.num_nodes[src_type],
                saved.num_nodes[dst_type],
                _as_tensor(src),
                _as_tensor(dst),
                formats,
            )
        )
    index = relations[0]
    if len(relations) > 1 or len(saved.node_types) > 1:
        sources, destinations = zip(*saved.edge_ends, strict=True)
        types = dgl.graph_index.from_coo(len(saved.node_types), list(sources), list(destinations), True)
        number = dgl.utils.toindex(list(saved.num_nodes), "int64")
        index = dgl.heterograph_index.create_heterograph_from_relations(types, relations, number)

    def frames(features: Sequence[Mapping[str, Array]], rows: Sequence[int]) -> list[Any]:
        return [
            dgl.frame.Frame({name: _as_tensor(array) for name, array in named.items()}, num_rows=number)
            for named, number in zip(features, rows, strict=True)
        ]

    nodes = frames(saved.node_features, saved.num_nodes)
    edges = frames(saved.edge_features, [len(src) for src, _ in saved.endpoints])
    return dgl.DGLGraph(index, list(saved.node_types), list(saved.relations), nodes, edges)
