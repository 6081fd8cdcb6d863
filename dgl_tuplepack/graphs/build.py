"""Make a DGLGraph, or several named ones, of tensors that are known to fit together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType
from dgl_tuplepack.graphs.named import part_of, types_of


@functools.cache
def _dgl() -> tuple[Any, Any]:
    """Return DGL, and all sparse formats as its objects, which are converted once, not at each batch."""
    dgl = load("dgl")
    return dgl, dgl._ffi.object_generic.convert_to_object(["coo", "csr", "csc"])


def build_graph(
    endpoints: Mapping[EdgeType, tuple[Tensor, Tensor]],
    num_nodes: Mapping[str, int],
    node_features: Mapping[str, Mapping[str, Tensor]],
    edge_features: Mapping[EdgeType, Mapping[str, Tensor]],
    row_pointers: Mapping[EdgeType, Tensor] | None = None,
) -> Any:
    """DGLGraph of the given types, in their order, and features, which it shares.

    With `row_pointers`, int64 ``[V + 1]`` of each type, edges are sorted by destination, and sums over the incoming
    edges of nodes need no conversion.

    The caller has checked endpoints and lengths. `dgl.graph` and `dgl.heterograph` would check the endpoints again,
    which takes as long as all the rest and waits for the device, and would sort the types. So the graph is put together
    as they do it.
    """
    dgl, formats = _dgl()
    relations = []
    for e, (src, dst) in endpoints.items():
        sizes = 1 if e[0] == e[2] else 2, num_nodes[e[0]], num_nodes[e[2]]
        if row_pointers is None:
            relation = dgl.heterograph_index.create_unitgraph_from_coo(*sizes, src, dst, formats)
        else:
            # DGL 1.1 fails in sums with edge features without ids of edges, although it says that they are optional.
            ids = torch.arange(len(src), dtype=src.dtype, device=src.device)
            pointers = row_pointers[e].to(src.dtype)
            relation = dgl.heterograph_index.create_unitgraph_from_csr(*sizes, pointers, src, ids, formats, True)
        relations.append(relation)
    index, node_types = relations[0], list(num_nodes)
    if len(relations) > 1 or len(node_types) > 1:
        ends = [[node_types.index(e[end]) for e in endpoints] for end in (0, 2)]
        types = dgl.graph_index.from_coo(len(node_types), *ends, True)
        numbers = dgl.utils.toindex(list(num_nodes.values()), "int64")
        index = dgl.heterograph_index.create_heterograph_from_relations(types, relations, numbers)
    nodes = [dgl.frame.Frame(node_features[t], num_rows=number) for t, number in num_nodes.items()]
    edges = [dgl.frame.Frame(edge_features[e], num_rows=len(src)) for e, (src, _) in endpoints.items()]
    return dgl.DGLGraph(index, node_types, [e[1] for e in endpoints], nodes, edges)


def build_batch(
    endpoints: Mapping[EdgeType, tuple[Tensor, Tensor]],
    features: tuple[Mapping[str, Mapping[str, Tensor]], Mapping[EdgeType, Mapping[str, Tensor]]],
    nodes_per_graph: Mapping[str, Tensor],
    edges_per_graph: Mapping[EdgeType, Tensor],
    num_nodes: Mapping[str, int],
    row_pointers: Mapping[EdgeType, Tensor] | None = None,
) -> Any:
    """DGLGraph of several graphs, as `build_graph`; `features` are those of nodes and those of edges."""
    graph = build_graph(endpoints, num_nodes, *features, row_pointers)
    # DGL 2 needs the counts in the index type of the graph.
    idtype = next(iter(endpoints.values()))[0].dtype if endpoints else torch.int64
    graph.set_batch_num_nodes({t: number.to(idtype) for t, number in nodes_per_graph.items()})
    graph.set_batch_num_edges({t: number.to(idtype) for t, number in edges_per_graph.items()})
    return graph


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


def joined(graphs: Any, where: str) -> Any:
    """Return named graphs as one graph, batched if they are; a graph without a name is returned as it is.

    SchemaError if they differ in index type, device or number of batched graphs.
    """
    if not isinstance(graphs, Mapping):
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
    return build_batch(endpoints, features, *counts, number)


def _setting(graph: Any) -> tuple[Any, ...]:
    return graph.idtype, graph.device, graph.batch_size
