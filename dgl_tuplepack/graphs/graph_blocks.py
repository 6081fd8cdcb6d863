"""Turn items of a dataset into blocks of flat arrays, and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.graphs.blocks import Array, GraphBlock
from dgl_tuplepack.graphs.items import begins_with_pyg, check_position, parts_of
from dgl_tuplepack.graphs.joining import edges_by_id
from dgl_tuplepack.graphs.merge import batch_of, labels_of
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.relations import Indices, Ties
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, as_label
from dgl_tuplepack.graphs.split import split_graphs
from dgl_tuplepack.graphs.values import as_array, as_tensor

# Enough for `dgl.batch` to work at its usual rate; little memory even for large graphs.
_GRAPHS = 512


def graph_blocks(
    items: Iterable[Any], ties: Ties | None = None, indices: Indices | None = None, levels: Levels | None = None
) -> tuple[Schema, Iterator[GraphBlock]]:
    """Return the schema of the first item, and blocks of all items: DGLGraph, (DGLGraph, label), (DGLGraph, label, id).

    Named graphs may stand for the graph. For graphs of PyG it is the schema of all items, which tell what their
    attributes belong to; `levels` tell it too.
    SizesError if `items` is empty. SchemaError, also while iterating, names an item that is not a graph or differs.
    """
    iterator = iter(items)
    try:
        first = next(iterator)
    except StopIteration:
        raise SizesError("the source has no graphs; at least one is needed.") from None
    if begins_with_pyg(first):
        from dgl_tuplepack.graphs.pyg_items import read

        return read(itertools.chain([first], iterator), levels or {}, ties, indices)
    schema = Schema.of(first, ties, indices, levels)
    return schema, _blocks(itertools.chain([first], iterator), schema)


def _blocks(items: Iterator[Any], schema: Schema) -> Iterator[GraphBlock]:
    for begin in itertools.count(0, _GRAPHS):
        block = list(itertools.islice(items, _GRAPHS))
        if not block:
            return
        yield _block(block, schema, begin)


def _block(items: Sequence[Any], schema: Schema, begin: int) -> GraphBlock:
    where = [f"item {begin + i}" for i in range(len(items))]
    parts = [parts_of(item, place) for item, place in zip(items, where, strict=True)]
    for i, part in enumerate(parts):
        check_position(part.id, begin + i, where[i])
    batch = batch_of(schema, [part.graph for part in parts], where)
    labels = labels_of(batch, schema, parts, where)
    nodes = {t: batch.batch_num_nodes(t).cpu().numpy().astype(np.int64) for t in schema.node_types}
    edges = {t: batch.batch_num_edges(t).cpu().numpy().astype(np.int64) for t in schema.edge_types}
    endpoints = {}
    for t in schema.edge_types:
        ends = []
        for node_type, end in zip((t[0], t[2]), edges_by_id(batch, t), strict=True):
            first_nodes = np.cumsum(nodes[node_type]) - nodes[node_type]
            ends.append(end.cpu().numpy().astype(np.int64) - np.repeat(first_nodes, edges[t]))
        endpoints[t] = (ends[0], ends[1])
    return GraphBlock(
        nodes,
        edges,
        endpoints,
        {t: _features(batch.nodes[t].data, specs) for t, specs in schema.node_features.items()},
        {t: _features(batch.edges[t].data, specs) for t, specs in schema.edge_features.items()},
        {name: as_array(label) for name, label in labels.items()},
    )


def items_of(schema: Schema, blocks: Iterable[GraphBlock]) -> Iterator[Any]:
    """Yield pairs (DGLGraph or named graphs, label) of all graphs in blocks; without labels, the label is None."""
    for block in blocks:
        graphs = split_graphs(
            schema.graph_names,
            {t: counts.tolist() for t, counts in block.num_nodes.items()},
            {e: counts.tolist() for e, counts in block.num_edges.items()},
            {
                e: tuple(as_tensor(ends.astype(np.int64, copy=False), schema.idtype) for ends in both)  # type: ignore[misc]
                for e, both in block.endpoints.items()
            },
            {
                t: {n: as_tensor(block.node_features[t][n], s.dtype) for n, s in specs.items()}
                for t, specs in schema.node_features.items()
            },
            {
                e: {n: as_tensor(block.edge_features[e][n], s.dtype) for n, s in specs.items()}
                for e, specs in schema.edge_features.items()
            },
        )
        labels = {n: as_tensor(block.labels[n], s.dtype).unbind() for n, s in schema.labels.items()}
        for i, graph in enumerate(graphs):
            yield graph, as_label({n: values[i] for n, values in labels.items()})


def _features(data: Any, specs: dict[str, ArraySpec]) -> dict[str, Array]:
    # If the whole block has no node (edge) of the type, it may lack the features, too.
    return {name: as_array(data[name] if name in data else spec.filled(0, 0)) for name, spec in specs.items()}
