"""Named graphs as one graph, and one graph's tensors as named graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType
from dgl_tuplepack.graphs.build import build_batch, build_graph
from dgl_tuplepack.graphs.named import part_of, types_of


def edges_by_id(batch: Any, edge_type: EdgeType) -> tuple[Tensor, Tensor]:
    """Return endpoints in the order of edge ids, also for a graph whose formats do not keep that order."""
    src, dst, ids = batch.edges(form="all", order=None, etype=edge_type)
    return torch.empty_like(src).index_put_((ids,), src), torch.empty_like(dst).index_put_((ids,), dst)


def built(names: Sequence[str], build: Callable[..., Any], *by_type: Mapping[Any, Any]) -> Any:
    """Return ``build(*by_type)``; for named graphs a dict of what it makes of the entries of each."""
    if not names:
        return build(*by_type)
    return {name: build(*(part_of(name, each) for each in by_type)) for name in names}


def build_item(names: Sequence[str], *by_type: Mapping[Any, Any]) -> Any:
    """Return a DGLGraph, or a dict of named ones, of the arguments of `build_graph`."""
    return built(names, build_graph, *by_type)


def build_batches(names: Sequence[str], *by_type: Mapping[Any, Any]) -> Any:
    """Return a batched DGLGraph, or a dict of named ones, of the arguments of `build_batch`."""
    return built(names, build_batch, *by_type)


def joined(graphs: Any, where: str) -> Any:
    """Return named graphs as one graph, batched if they are; a graph without a name is returned as it is.

    SchemaError if they differ in index type, device or number of batched graphs.
    """
    if not isinstance(graphs, dict):
        return graphs
    (first, expected), *others = ((name, _setting(graph)) for name, graph in graphs.items())
    for name, found in others:
        for what, theirs, ours in zip(("index type", "device", "number of graphs"), found, expected, strict=True):
            if theirs != ours:
                raise SchemaError(
                    f"in {where} the graph {name!r} has the {what} {theirs}, but {first!r} has {ours}; named graphs of "
                    "an item must have the same (g.long() and g.int() convert the index type)."
                )
    endpoints, features = {}, ({}, {})  # type: ignore[var-annotated]
    counts, number = ({}, {}), {}  # type: ignore[var-annotated]
    for name, graph in graphs.items():
        node_types, edge_types = types_of(name, graph)
        for own, t in zip(graph.ntypes, node_types, strict=True):
            features[0][t], counts[0][t] = dict(graph.nodes[own].data), graph.batch_num_nodes(own)
            number[t] = graph.num_nodes(own)
        for own, e in zip(graph.canonical_etypes, edge_types, strict=True):
            features[1][e], counts[1][e] = dict(graph.edges[own].data), graph.batch_num_edges(own)
            endpoints[e] = edges_by_id(graph, own)
    return build_batch(endpoints, *features, *counts, number)


def _setting(graph: Any) -> tuple[Any, ...]:
    return graph.idtype, graph.device, graph.batch_size
