"""Make a DGLGraph from tensors that are already checked."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.graphs.blocks import EdgeType
from dgl_tuplepack.graphs.named import of_graph
from dgl_tuplepack.graphs.schema import Schema, as_label


@functools.cache
def dgl_and_formats() -> tuple[Any, Any]:
    """Return DGL and its object for all sparse formats. Getting both takes as long as making a small graph."""
    dgl = load("dgl")
    return dgl, dgl.container.convert_to_object(["coo", "csr", "csc"])


@functools.lru_cache(maxsize=64)
def graph_of_types(node_types: tuple[str, ...], edge_types: tuple[EdgeType, ...]) -> Any:
    """Return DGL's metagraph; None if there is only one node type and one edge type."""
    if len(node_types) == len(edge_types) == 1:
        return None
    ends = [[node_types.index(e[end]) for e in edge_types] for end in (0, 2)]
    return load("dgl").graph_index.from_coo(len(node_types), *ends, True)


def build_graph(
    endpoints: Mapping[EdgeType, tuple[Tensor, Tensor]],
    num_nodes: Mapping[str, int],
    node_features: Mapping[str, Mapping[str, Tensor]],
    edge_features: Mapping[EdgeType, Mapping[str, Tensor]],
    row_pointers: Mapping[EdgeType, Tensor] | None = None,
) -> Any:
    """Return a DGLGraph with the given types, in the given order. The graph shares the memory of the features.

    `row_pointers` may be given if the edges of each type are sorted by destination. For each edge type, it is int64
    ``[V + 1]``: the index of the first edge into each of the V destination nodes, then the number of edges. DGL then
    sums over incoming edges without a conversion to another sparse format.

    The caller must check endpoints and lengths. `dgl.graph` and `dgl.heterograph` are not used, since they sort the
    types, and check the endpoints again, which waits for the device.
    """
    dgl, _ = dgl_and_formats()
    types = graph_of_types(tuple(num_nodes), tuple(endpoints))
    relations = [
        relation(ends, edge_type, num_nodes, None if row_pointers is None else row_pointers[edge_type])
        for edge_type, ends in endpoints.items()
    ]
    frame = dgl.frame.Frame
    nodes = [frame(node_features[t], num_rows=number) for t, number in num_nodes.items()]
    edges = [frame(edge_features[e], num_rows=len(src)) for e, (src, _) in endpoints.items()]
    return dgl.DGLGraph(
        joined_relations(relations, types, num_nodes), list(num_nodes), [e[1] for e in endpoints], nodes, edges
    )


def relation(
    ends: tuple[Tensor, Tensor], edge_type: EdgeType, num_nodes: Mapping[str, int], pointers: Tensor | None = None
) -> Any:
    """Return DGL's index of the edges of one type; for `pointers` see `row_pointers` of `build_graph`."""
    dgl, formats = dgl_and_formats()
    (src, dst), (source, _, destination) = ends, edge_type
    # DGL's arguments: the numbers of node types, source nodes and destination nodes.
    sizes = 1 if source == destination else 2, num_nodes[source], num_nodes[destination]
    if pointers is None:
        return dgl.heterograph_index.create_unitgraph_from_coo(*sizes, src, dst, formats)
    # Edge ids are optional in DGL 1.1, but sums with edge features fail without them.
    ids = torch.arange(len(src), dtype=src.dtype, device=src.device)
    # The argument True means that the pointers belong to destination nodes (CSC).
    return dgl.heterograph_index.create_unitgraph_from_csr(*sizes, pointers.to(src.dtype), src, ids, formats, True)


def joined_relations(relations: list[Any], types: Any, num_nodes: Mapping[str, int]) -> Any:
    """Return DGL's index of the edges of all types; `types` is the result of `graph_of_types`."""
    if types is None:
        return relations[0]
    dgl, _ = dgl_and_formats()
    numbers = dgl.utils.toindex(list(num_nodes.values()), "int64")
    return dgl.heterograph_index.create_heterograph_from_relations(types, relations, numbers)


def build_batch(
    endpoints: Mapping[EdgeType, tuple[Tensor, Tensor]],
    node_features: Mapping[str, Mapping[str, Tensor]],
    edge_features: Mapping[EdgeType, Mapping[str, Tensor]],
    nodes_per_graph: Mapping[str, Tensor],
    edges_per_graph: Mapping[EdgeType, Tensor],
    num_nodes: Mapping[str, int],
    row_pointers: Mapping[EdgeType, Tensor] | None = None,
) -> Any:
    """Return a batched DGLGraph, see `build_graph`; the numbers per graph are ``[B]`` for each type."""
    graph = build_graph(endpoints, num_nodes, node_features, edge_features, row_pointers)
    idtype = next(iter(endpoints.values()))[0].dtype if endpoints else torch.int64
    set_batch(graph, dict(nodes_per_graph), dict(edges_per_graph), idtype)
    return graph


def set_batch(graph: Any, nodes: dict[str, Tensor], edges: dict[EdgeType, Tensor], idtype: torch.dtype) -> None:
    """Set the number of nodes and edges of each type in each graph of a batch. The batch keeps the two dicts."""
    # DGL 2 needs the counts in the index type of the graph.
    if idtype != torch.int64:
        nodes = {t: number.to(idtype) for t, number in nodes.items()}
        edges = {e: number.to(idtype) for e, number in edges.items()}
    graph.set_batch_num_nodes(nodes)
    graph.set_batch_num_edges(edges)


def build_item(names: Sequence[str], *by_type: Mapping[Any, Any]) -> Any:
    """Return a DGLGraph or, if there are `names`, a dict of named graphs. `by_type` are arguments of `build_graph`."""
    return _built(names, build_graph, *by_type)


def build_batches(names: Sequence[str], *by_type: Mapping[Any, Any]) -> Any:
    """Return a batched DGLGraph or, if there are `names`, a dict of such graphs. `by_type`: see `build_batch`."""
    return _built(names, build_batch, *by_type)


def _built(names: Sequence[str], build: Callable[..., Any], *by_type: Mapping[Any, Any]) -> Any:
    if not names:
        return build(*by_type)
    return {name: build(*(of_graph(name, each) for each in by_type)) for name in names}


class BatchBuilder:
    """Build batches of one schema, without padding.

    In small batches, the dicts of `build_batch` take nearly as long as the tensors, so only named graphs use it.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._short_types = [e[1] for e in schema.edge_types]
        self._types = graph_of_types(schema.node_types, schema.edge_types)
        # Names of the features of each node type, then of each edge type.
        self._features = [[*specs] for specs in (*schema.node_features.values(), *schema.edge_features.values())]
        dgl, _ = dgl_and_formats()
        self._new_frame, self._new_graph = dgl.frame.Frame, dgl.DGLGraph

    def batch(self, totals: list[int], tensors: Sequence[Tensor]) -> Any:
        """Return ``(DGLGraph, labels)`` or, without labels, the DGLGraph (for named graphs, a dict of DGLGraphs).

        `totals` has, in this order: the number of nodes of each type, the number of edges of each type, the number of
        graphs. `tensors` has, in this order: the nodes per graph, for each node type; the edges per graph, for each
        edge type; the sources and destinations of each edge type; all features and labels, as in `Schema.columns`.
        """
        schema, remaining, number = self._schema, iter(tensors), len(self._schema.node_types)
        num_nodes = dict(zip(schema.node_types, totals, strict=False))
        # `remaining` comes last in each zip, which would otherwise read and lose one more tensor after the last type.
        nodes_per_graph = dict(zip(schema.node_types, remaining, strict=False))
        edges_per_graph = dict(zip(schema.edge_types, remaining, strict=False))
        if schema.graph_names:
            ends = {e: (next(remaining), next(remaining)) for e in schema.edge_types}
            nodes = {t: {name: next(remaining) for name in names} for t, names in schema.node_features.items()}
            edges = {e: {name: next(remaining) for name in names} for e, names in schema.edge_features.items()}
            per_graph = nodes_per_graph, edges_per_graph
            graph = build_batches(schema.graph_names, ends, nodes, edges, *per_graph, num_nodes)
        else:
            relations = [relation((next(remaining), next(remaining)), e, num_nodes) for e in schema.edge_types]
            frames = [
                self._new_frame(dict(zip(names, remaining, strict=False)), rows)
                for names, rows in zip(self._features, totals, strict=False)
            ]
            index = joined_relations(relations, self._types, num_nodes)
            graph = self._new_graph(index, [*schema.node_types], [*self._short_types], frames[:number], frames[number:])
            set_batch(graph, nodes_per_graph, edges_per_graph, schema.idtype)
        labels = dict(zip(schema.labels, remaining, strict=True))
        return (graph, as_label(labels)) if labels else graph
