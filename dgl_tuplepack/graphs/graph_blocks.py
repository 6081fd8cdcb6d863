"""Convert items of a dataset to blocks of flat arrays, and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.graphs.blocks import Array, EdgeType, GraphBlock
from dgl_tuplepack.graphs.build import build_item
from dgl_tuplepack.graphs.examples import schema_of
from dgl_tuplepack.graphs.items import begins_with_pyg, parts_in_blocks
from dgl_tuplepack.graphs.joined import JoinedGraphs
from dgl_tuplepack.graphs.merge import joined
from dgl_tuplepack.graphs.named import is_pyg
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.relations import Column, Indices, Ties
from dgl_tuplepack.graphs.schema import Schema, as_label, found_features
from dgl_tuplepack.graphs.values import as_array, as_tensor


def graph_blocks(
    items: Iterable[Any],
    ties: Ties | None = None,
    indices: Indices | None = None,
    levels: Levels | None = None,
    number: int | None = None,
) -> tuple[Schema, Iterator[GraphBlock]]:
    """Return the schema of the items (see `items.parts_of`), and blocks of all items.

    For DGLGraphs, the first item determines the schema, apart from the features of types without nodes (edges): they
    are those of the first graph that has any. If it comes late, its block has the `schema` from there on. For PyG
    graphs, the first block determines the schema; but if the `number` of items is known, all items are read to find it.

    Raise SizesError if `items` is empty. Raise SchemaError, also while the blocks are iterated, if an item has another
    form or schema.
    """
    iterator = iter(items)
    try:
        first = next(iterator)
    except StopIteration:
        raise SizesError("the source has no graphs; at least one is needed.") from None
    if begins_with_pyg(first):
        from dgl_tuplepack.graphs.pyg.items import read

        return read(itertools.chain([first], iterator), levels or {}, ties, indices, number)
    schema = schema_of(first, levels=levels)
    blocks = _blocks(schema, (ties, indices), itertools.chain([first], iterator))
    block = next(blocks)
    return block.schema, itertools.chain([block], blocks)


def _blocks(schema: Schema, declared: tuple[Any, Any], items: Iterable[Any]) -> Iterator[GraphBlock]:
    """Yield blocks of the items; `declared` has the ties and indices."""
    for parts, where in parts_in_blocks(items):
        for part in parts:
            if schema.empty and not is_pyg(part.graph):
                schema = schema.settled(found_features(part.graph, schema.empty))
        of_block = schema.with_declared(*declared)
        yield _block(of_block, joined(of_block, parts, where))


def _block(schema: Schema, graphs: JoinedGraphs) -> GraphBlock:
    lengths = {t: as_array(each) for t, each in graphs.lengths.items()}

    def from_zero(end: Tensor, e: EdgeType, t: str) -> Array:
        """Return endpoints counted from 0 in each graph; in `end`, they are counted across all graphs."""
        # For each edge, the number of nodes of type t in all earlier graphs.
        first: Array = np.repeat(np.cumsum(lengths[t]) - lengths[t], lengths[e])
        return as_array(end).astype(np.int64) - first

    return GraphBlock(
        {t: lengths[t] for t in schema.node_types},
        {e: lengths[e] for e in schema.edge_types},
        {e: (from_zero(src, e, e[0]), from_zero(dst, e, e[2])) for e, (src, dst) in graphs.ends.items()},
        # Node features, edge features and labels.
        *schema.arranged(lambda column: as_array(graphs.columns[column])),
        schema,
    )


def items_of(schema: Schema, blocks: Iterable[GraphBlock]) -> Iterator[Any]:
    """Yield (graph, label) for each graph of the blocks. Named graphs are a dict; a missing label is None."""
    for block in blocks:
        yield from _items(schema, block)


def _items(schema: Schema, block: GraphBlock) -> Iterator[Any]:
    # numbers[t][i]: number of nodes (edges) of type t in graph i.
    numbers = {t: counts.tolist() for t, counts in (*block.num_nodes.items(), *block.num_edges.items())}

    def column(key: Column) -> Sequence[Tensor]:
        """Return a feature or label as one tensor for each graph; key[1] is its type, None for a label."""
        values = as_tensor(block.column(key), schema.spec_of(key).dtype)
        return values.unbind() if key[1] is None else torch.split(values, numbers[key[1]])

    def endpoints(ends: Array, e: EdgeType) -> Sequence[Tensor]:
        """Return the source (destination) nodes of edges as one tensor for each graph."""
        return torch.split(as_tensor(ends.astype(np.int64, copy=False), schema.idtype), numbers[e])

    nodes, edges, labels = schema.arranged(column)
    both = {e: (endpoints(src, e), endpoints(dst, e)) for e, (src, dst) in block.endpoints.items()}
    for i in range(len(block)):
        graph = build_item(
            schema.graph_names,
            {e: (src[i], dst[i]) for e, (src, dst) in both.items()},
            {t: numbers[t][i] for t in schema.node_types},
            {t: {name: per_graph[i] for name, per_graph in own.items()} for t, own in nodes.items()},
            {e: {name: per_graph[i] for name, per_graph in own.items()} for e, own in edges.items()},
        )
        yield graph, as_label({name: values[i] for name, values in labels.items()})
