"""Batch graphs by `dgl.batch`, and compare each with the schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._optional import load
from dgl_tuplepack.graphs.blocks import EdgeType, check_types
from dgl_tuplepack.graphs.items import Parts, is_pyg
from dgl_tuplepack.graphs.plain_graph import PlainGraph
from dgl_tuplepack.graphs.schema import Schema, as_tensors, stack_labels


def batch_of(schema: Schema, graphs: Sequence[Any], where: Sequence[str]) -> Any:
    """Return what `dgl.batch` makes of graphs, None for no graphs; SchemaError names, by `where`, one that differs.

    Graphs of PyG become a `PlainGraph`.
    """
    if not graphs:
        return None
    if schema.pyg is not None or any(map(is_pyg, graphs)):
        from dgl_tuplepack.graphs.pyg_items import joined

        return joined(schema, graphs, where)
    dgl = load("dgl")
    try:
        # DGL assumes the types of the first graph and checks that features agree among the graphs. So it is enough to
        # compare the result with the example, and to search for the graph that differs only on failure.
        for graph, place in zip(graphs, where, strict=True):
            check_types(graph, schema.node_types, schema.edge_types, place, "the example")
        batch = dgl.batch(graphs)
        if batch.batch_size == len(graphs) and batch.idtype == schema.idtype and schema.matches_features(batch):
            return batch
    except dgl.DGLError:
        pass
    for graph, place in zip(graphs, where, strict=True):
        schema.check_graph(graph, place)
    # No graph differs: if none has nodes (edges) of a type, DGL still asks for equal features of that type.
    return dgl.batch([_without_empty_features(graph) for graph in graphs])


def labels_of(batch: Any, schema: Schema, parts: Sequence[Parts], where: Sequence[str]) -> dict[str, Tensor]:
    """Return the labels of the graphs that `batch_of` joined, ``[number, ...]`` each."""
    if isinstance(batch, PlainGraph):
        return batch.labels
    return stack_labels([as_tensors(part.label) for part in parts], schema, where)


def edges_by_id(batch: Any, edge_type: EdgeType) -> tuple[Tensor, Tensor]:
    """Return endpoints in the order of edge ids, also for a graph whose formats do not keep that order."""
    src, dst, ids = batch.edges(form="all", order=None, etype=edge_type)
    return torch.empty_like(src).index_put_((ids,), src), torch.empty_like(dst).index_put_((ids,), dst)


def _without_empty_features(graph: Any) -> Any:
    """Return a view of the graph without the features of types that have no nodes (edges)."""
    graph = graph.local_var()
    for node_type in graph.ntypes:
        if not graph.num_nodes(node_type):
            graph.nodes[node_type].data.clear()
    for edge_type in graph.canonical_etypes:
        if not graph.num_edges(edge_type):
            graph.edges[edge_type].data.clear()
    return graph
