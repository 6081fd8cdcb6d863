"""Make a DGLGraph of tensors that are known to fit together."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]

from dgl_tuplepack._optional import load
from dgl_tuplepack.graphs.blocks import EdgeType


@functools.cache
def dgl_and_formats() -> tuple[Any, Any]:
    """Return DGL, and all sparse formats as its objects, which are converted once, not at each batch."""
    dgl = load("dgl")
    return dgl, dgl._ffi.object_generic.convert_to_object(["coo", "csr", "csc"])


@functools.lru_cache(maxsize=64)
def graph_of_types(node_types: tuple[str, ...], edge_types: tuple[EdgeType, ...]) -> tuple[Any, Any]:
    """Return an empty graph of these types, and the graph of the types themselves; None for one type of each."""
    dgl, _ = dgl_and_formats()
    none, num_nodes = torch.empty(0, dtype=torch.int64, device="cpu"), dict.fromkeys(node_types, 0)
    relations = [relation((none, none), edge_type, num_nodes) for edge_type in edge_types]
    types = None
    if len(node_types) > 1 or len(edge_types) > 1:
        ends = [[node_types.index(e[end]) for e in edge_types] for end in (0, 2)]
        types = dgl.graph_index.from_coo(len(node_types), *ends, True)
    index = joined_relations(relations, types, num_nodes)
    return dgl.DGLGraph(index, list(node_types), [e[1] for e in edge_types]), types


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
    as they do it; what depends on the types alone is copied from a graph of them, as ``DGLGraph.local_var`` does.
    """
    empty, types = graph_of_types(tuple(num_nodes), tuple(endpoints))
    relations = [
        relation(ends, edge_type, num_nodes, None if row_pointers is None else row_pointers[edge_type])
        for edge_type, ends in endpoints.items()
    ]
    graph = copy.copy(empty)
    graph._graph = joined_relations(relations, types, num_nodes)
    dgl, _ = dgl_and_formats()
    graph._node_frames = [dgl.frame.Frame(node_features[t], num_rows=number) for t, number in num_nodes.items()]
    graph._edge_frames = [dgl.frame.Frame(edge_features[e], num_rows=len(src)) for e, (src, _) in endpoints.items()]
    return graph


def relation(
    ends: tuple[Tensor, Tensor], edge_type: EdgeType, num_nodes: Mapping[str, int], pointers: Tensor | None = None
) -> Any:
    """Index of the edges of one type."""
    dgl, formats = dgl_and_formats()
    (src, dst), (source, _, destination) = ends, edge_type
    sizes = 1 if source == destination else 2, num_nodes[source], num_nodes[destination]
    if pointers is None:
        # What create_unitgraph_from_coo does, without the layers between; they take longer than DGL's own work.
        converted, create = dgl.ndarray.from_dlpack, dgl.heterograph_index._CAPI_DGLHeteroCreateUnitGraphFromCOO
        rows, columns = converted(to_dlpack(src.contiguous())), converted(to_dlpack(dst.contiguous()))
        return create(*sizes, rows, columns, formats, False, False)
    # DGL 1.1 fails in sums with edge features without ids of edges, although it says that they are optional.
    ids = torch.arange(len(src), dtype=src.dtype, device=src.device)
    return dgl.heterograph_index.create_unitgraph_from_csr(*sizes, pointers.to(src.dtype), src, ids, formats, True)


def joined_relations(relations: list[Any], types: Any, num_nodes: Mapping[str, int]) -> Any:
    """Index of the edges of all types; `types` is the graph of types."""
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
    """DGLGraph of several graphs, as `build_graph`."""
    graph = build_graph(endpoints, num_nodes, node_features, edge_features, row_pointers)
    idtype = next(iter(endpoints.values()))[0].dtype if endpoints else torch.int64
    set_batch(graph, dict(nodes_per_graph), dict(edges_per_graph), idtype)
    return graph


def set_batch(graph: Any, nodes: dict[str, Tensor], edges: dict[EdgeType, Tensor], idtype: torch.dtype) -> None:
    """Tell a graph how many nodes and edges of each type its graphs have; it keeps the dicts."""
    # DGL 2 needs the counts in the index type of the graph.
    if idtype != torch.int64:
        nodes = {t: number.to(idtype) for t, number in nodes.items()}
        edges = {e: number.to(idtype) for e, number in edges.items()}
    # What set_batch_num_nodes and set_batch_num_edges do, without looking at the dicts first.
    graph._batch_num_nodes, graph._batch_num_edges = nodes, edges
