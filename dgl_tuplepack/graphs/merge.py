"""Many graphs as one, by `dgl.batch`, each held against the schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._optional import load
from dgl_tuplepack.graphs.blocks import EdgeType
from dgl_tuplepack.graphs.schema import Schema


def batch_of(schema: Schema, graphs: Sequence[Any], where: Sequence[str]) -> Any:
    """What `dgl.batch` makes of graphs that all keep to the schema; None for no graphs.

    Raises
    ------
    SchemaError
        Names the graph that differs, as `where` calls it.
    """
    if not graphs:
        return None
    dgl = load("dgl")
    try:
        # DGL takes the types of the first graph for granted and checks that features agree among the graphs;
        # so it is enough to hold the result against the example, and to look for a culprit only on failure.
        for graph, place in zip(graphs, where, strict=True):
            schema.check_types(graph, place)
        batch = dgl.batch(graphs)
        if batch.batch_size == len(graphs) and batch.idtype == schema.idtype and schema.matches_features(batch):
            return batch
    except dgl.DGLError:
        pass
    for graph, place in zip(graphs, where, strict=True):
        schema.check_graph(graph, place)
    # No culprit: where no graph has nodes (edges) of a type, DGL asks for equal features of nothing.
    return dgl.batch([_without_empty_features(graph) for graph in graphs])


def edges_by_id(batch: Any, edge_type: EdgeType) -> tuple[Tensor, Tensor]:
    """Endpoints in the order of edge ids, also of a graph that may keep no format that is in this order."""
    src, dst, ids = batch.edges(form="all", order=None, etype=edge_type)
    return torch.empty_like(src).index_put_((ids,), src), torch.empty_like(dst).index_put_((ids,), dst)


def _without_empty_features(graph: Any) -> Any:
    """A view of the graph that has no features of types of which it has no nodes (edges)."""
    graph = graph.local_var()
    for node_type in graph.ntypes:
        if not graph.num_nodes(node_type):
            graph.nodes[node_type].data.clear()
    for edge_type in graph.canonical_etypes:
        if not graph.num_edges(edge_type):
            graph.edges[edge_type].data.clear()
    return graph
