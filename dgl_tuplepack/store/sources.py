"""What a store can be written from, as blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

from dgl_tuplepack._files import is_file
from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import FormatError, SchemaError, SizesError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, Array, GraphBlock
from dgl_tuplepack.graphs.graph_blocks import graph_blocks
from dgl_tuplepack.graphs.items import is_iterable
from dgl_tuplepack.graphs.schema import ArraySpec, Schema
from dgl_tuplepack.sizes import IntArray
from dgl_tuplepack.sources.ogb_folder import OgbFolder
from dgl_tuplepack.sources.saved_graphs import BFloat16, SavedGraph, read_saved_graphs
from dgl_tuplepack.store.format import METADATA
from dgl_tuplepack.store.part import Part


@dataclass(frozen=True)
class Source:
    """Graphs as a stream of blocks; their number, where it is known; the splits, where there are any."""

    schema: Schema
    blocks: Iterator[GraphBlock]
    num_graphs: int | None
    splits: Mapping[str, IntArray]


def open_source(source: Any) -> Source:
    """Begin to read any source that `GraphStore.write` takes.

    Raises
    ------
    SizesError, SchemaError, FormatError
        It has no graphs, they differ, or files are damaged (at once, or while reading).
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if is_file(path / METADATA):
            return _stored(Part.open(path))
        source = bin_file_items(path) if path.suffix == ".bin" else OgbFolder(path)
    if isinstance(source, OgbFolder):
        return _ogb_folder(source)
    try:
        number = len(source)
    except TypeError:
        number = None
    if isinstance(source, Mapping) or not is_iterable(source):
        raise SizesError(
            f"graphs cannot be read from {type(source).__name__}; give a list, dataset or iterator of DGLGraph or "
            "(DGLGraph, label), or the path of an OGB folder, of a store, or of a .bin file of dgl.save_graphs."
        )
    # Datasets have a length and items; their own iterators, if any, need not end.
    indexed = number is not None and hasattr(source, "__getitem__") and not isinstance(source, IterableDataset)
    items = (source[i] for i in range(number or 0)) if indexed else source
    schema, blocks = graph_blocks(items)
    return Source(schema, blocks, number, _splits(source))


def _ogb_folder(folder: OgbFolder) -> Source:
    sizes = folder.sizes
    blocks = folder.blocks()
    first = next(blocks, None)
    if first is None:
        raise SizesError(f"{folder.path} has no graphs; at least one is needed.")
    return Source(
        Schema(
            node_types=(NODE_TYPE,),
            edge_types=(EDGE_TYPE,),
            node_features={NODE_TYPE: _specs(first.node_features[NODE_TYPE])},
            edge_features={EDGE_TYPE: _specs(first.edge_features[EDGE_TYPE])},
            labels=_specs(first.labels),
            idtype=torch.int64,
            has_ids=True,
        ),
        chain([first], blocks),
        len(sizes),
        folder.splits,
    )


def _stored(part: Part) -> Source:
    return Source(part.schema, part.blocks(), part.num_graphs, part.splits)


def _specs(arrays: Mapping[str, Array]) -> dict[str, ArraySpec]:
    try:
        return {
            name: ArraySpec(tuple(array.shape[1:]), torch.from_numpy(np.empty(0, array.dtype)).dtype)
            for name, array in arrays.items()
        }
    except TypeError as error:
        raise SchemaError(f"a feature or label is of a type that torch does not know ({error!s:.200}).") from error


def _splits(dataset: Any) -> Mapping[str, Any]:
    """Splits of an OGB dataset object, or of a store."""
    if not hasattr(dataset, "get_idx_split"):
        splits = getattr(dataset, "splits", None)
        return splits if isinstance(splits, Mapping) else {}
    return {part: np.asarray(ids, dtype=np.int64) for part, ids in dataset.get_idx_split().items()}


def bin_file_items(path: Path) -> list[Any]:
    """Items of a file that `dgl.save_graphs` wrote, which is read as a whole.

    Raises
    ------
    FormatError
        There is no such file, or it is damaged.
    """
    load("dgl")
    saved, arrays = read_saved_graphs(path)
    labels = {name: _as_tensor(values) for name, values in arrays.items()}
    wrong = [name for name, values in labels.items() if values.shape[:1] != (len(saved),)]
    if wrong:
        number = labels[wrong[0]].shape[:1].numel()
        raise FormatError(f"{path} has {len(saved)} graphs, but {number} labels {wrong[0]!r:.200}; write it again.")
    graphs = [_as_graph(graph) for graph in saved]
    if not labels:
        return graphs
    if len(labels) == 1:
        return list(zip(graphs, next(iter(labels.values())), strict=True))
    return [(graph, {name: values[i] for name, values in labels.items()}) for i, graph in enumerate(graphs)]


def _as_tensor(array: Array) -> torch.Tensor:
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
                torch.from_numpy(src),
                torch.from_numpy(dst),
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
