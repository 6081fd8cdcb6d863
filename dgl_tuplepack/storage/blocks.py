"""Read the graphs of any source in blocks, to write a store."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

import numpy as np
import torch

from dgl_tuplepack.errors import SchemaError, SizesError
from dgl_tuplepack.graphs.blocks import Array, GraphBlock
from dgl_tuplepack.graphs.graph_blocks import graph_blocks
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.graphs.relations import Indices, Ties
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, refuse_levels


def blocks_of(
    source: Source, ties: Ties | None = None, indices: Indices | None = None
) -> tuple[Schema, Iterator[GraphBlock]]:
    """Return the schema of a source, and an iterator over blocks with all its graphs.

    `ties` and `indices`, if not None, replace the ties and indices that are declared for the source.
    """
    ties, indices = source.ties if ties is None else ties, source.indices if indices is None else indices
    # Change only a copy: `blocks` may read `indices`, and may set `schema` and `own_indices`.
    source = copy.copy(source)
    source.indices = indices
    blocks = source.blocks()
    # A source without flat arrays is read graph by graph.
    if blocks is None:
        number = None if source.is_stream else source.num_graphs()
        return graph_blocks(source.items(), ties, indices, source.levels, number)
    if source.schema is None or source.schema.pyg is None:
        # The graphs are not from PyG.
        refuse_levels(source.levels, source.title)
    if source.schema is not None:
        return replace(source.schema, ties=ties, indices={**source.own_indices, **indices}), blocks
    first = next(blocks, None)
    if first is None:
        raise SizesError(f"{source.title} has no graphs; at least one is needed.")
    return _schema_of(first).with_declared(ties, indices), chain([first], blocks)


def _schema_of(block: GraphBlock) -> Schema:
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
    """Return, for each array, the shape of a row and the torch dtype; raise SchemaError if torch lacks the dtype."""
    specs = {}
    for name, array in arrays.items():
        try:
            specs[name] = ArraySpec(tuple(array.shape[1:]), torch.from_numpy(np.empty(0, array.dtype)).dtype)
        except TypeError as error:
            raise SchemaError(
                f"the feature or label {name!r:.200} has the dtype {array.dtype}, which torch lacks; convert it to "
                "numbers."
            ) from error
    return specs
