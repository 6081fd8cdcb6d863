"""What a store can be written from, as blocks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import FormatError, SchemaError, SizesError
from dgl_tuplepack.padding.schema import ArraySpec, Schema
from dgl_tuplepack.sizes import IntArray
from dgl_tuplepack.sources import is_iterable
from dgl_tuplepack.sources.blocks import EDGE_TYPE, NODE_TYPE, Array, GraphBlock
from dgl_tuplepack.sources.ogb_folder import OgbFolder
from dgl_tuplepack.store.arrays import StoreArrays
from dgl_tuplepack.store.format import METADATA
from dgl_tuplepack.store.graph_blocks import graph_blocks
from dgl_tuplepack.store.stored_blocks import stored_blocks

_DGL_PLACE = re.compile(r"^\[[\d:]+\] \S+ ")


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
        if (path / METADATA).is_file():
            return _stored(StoreArrays.open(path))
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


def _stored(arrays: StoreArrays) -> Source:
    return Source(arrays.schema, stored_blocks(arrays), arrays.num_graphs, arrays.splits)


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
    """Items of a file that `dgl.save_graphs` wrote; DGL loads it as a whole."""
    dgl = load("dgl")
    if not path.is_file():
        raise FormatError(f"{path} is no file; give a .bin file of dgl.save_graphs.")
    try:
        graphs, labels = dgl.load_graphs(str(path))
    except (dgl.DGLError, RuntimeError, OSError, ValueError) as error:
        # DGL says when and where in its own code it failed, too.
        cause = _DGL_PLACE.sub("", " ".join(str(error).partition("Stack trace")[0].split()))
        raise FormatError(
            f"{path} cannot be read as a file of dgl.save_graphs ({cause:.200}); it is damaged or of another kind, "
            "write it again."
        ) from error
    wrong = [name for name, values in labels.items() if len(values) != len(graphs)]
    if wrong:
        raise FormatError(
            f"{path} has {len(graphs)} graphs, but {len(labels[wrong[0]])} labels {wrong[0]!r}; write it again."
        )
    if not labels:
        return list(graphs)
    if len(labels) == 1:
        return list(zip(graphs, next(iter(labels.values())), strict=True))
    return [(graph, {name: values[i] for name, values in labels.items()}) for i, graph in enumerate(graphs)]
