"""What a store can be written from, as blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch

from dgl_tuplepack.errors import SchemaError, SizesError
from dgl_tuplepack.graphs.blocks import Array, GraphBlock
from dgl_tuplepack.graphs.graph_blocks import graph_blocks
from dgl_tuplepack.graphs.schema import ArraySpec, Schema
from dgl_tuplepack.sources import Source, resolve


@dataclass(frozen=True)
class OpenedSource:
    """Graphs as a stream of blocks; their number, where it is known; the splits, where there are any."""

    schema: Schema
    blocks: Iterator[GraphBlock]
    num_graphs: int | None
    splits: Mapping[str, Any]


def open_source(given: Any) -> OpenedSource:
    """Begin to read any source of graphs.

    Raises
    ------
    SizesError, SchemaError, FormatError
        It has no graphs, they differ, or files are damaged (at once, or while reading).
    """
    source = resolve(given)
    schema, blocks = _blocks(source)
    return OpenedSource(schema, blocks, source.num_graphs(), source.splits())


def _blocks(source: Source) -> tuple[Schema, Iterator[GraphBlock]]:
    blocks = source.blocks()
    if blocks is None:
        return graph_blocks(source.items())
    if source.schema is not None:
        return source.schema, blocks
    first = next(blocks, None)
    if first is None:
        raise SizesError(f"{source.title} has no graphs; at least one is needed.")
    return _schema_of(first), chain([first], blocks)


def _schema_of(block: GraphBlock) -> Schema:
    """Schema of graphs whose types, features and labels are those of the arrays of a block."""
    return Schema(
        node_types=tuple(block.num_nodes),
        edge_types=tuple(block.num_edges),
        node_features={t: _specs(arrays) for t, arrays in block.node_features.items()},
        edge_features={t: _specs(arrays) for t, arrays in block.edge_features.items()},
        labels=_specs(block.labels),
        idtype=torch.int64,
        has_ids=True,
    )


def _specs(arrays: Mapping[str, Array]) -> dict[str, ArraySpec]:
    try:
        return {
            name: ArraySpec(tuple(array.shape[1:]), torch.from_numpy(np.empty(0, array.dtype)).dtype)
            for name, array in arrays.items()
        }
    except TypeError as error:
        raise SchemaError(f"a feature or label is of a type that torch does not know ({error!s:.200}).") from error
