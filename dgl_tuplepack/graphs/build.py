"""Make a DGLGraph of tensors that are known to fit together."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._optional import load
from dgl_tuplepack.graphs.blocks import EdgeType
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, as_label


@functools.cache
def _dgl() -> tuple[Any, Any]:
    """Return DGL, and all sparse formats as its objects, which are converted once, not at each batch."""
    dgl = load("dgl")
    return dgl, dgl._ffi.object_generic.convert_to_object(["coo", "csr", "csc"])


@functools.lru_cache(maxsize=64)
def _of_types(node_types: tuple[str, ...], edge_types: tuple[EdgeType, ...]) -> tuple[Any, Any]:
    """Return an empty graph of these types, and the graph of the types themselves; None for one type of each."""
    dgl, _ = _dgl()
    none = torch.empty(0, dtype=torch.int64, device="cpu")
    relations = [_relation((none, none), edge_type, dict.fromkeys(node_types, 0)) for edge_type in edge_types]
    types, index = None, relations[0]
    if len(node_types) > 1 or len(edge_types) > 1:
        ends = [[node_types.index(e[end]) for e in edge_types] for end in (0, 2)]
        types = dgl.graph_index.from_coo(len(node_types), *ends, True)
        index = _joined(relations, types, [0] * len(node_types))
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
    empty, types = _of_types(tuple(num_nodes), tuple(endpoints))
    relations = [
        _relation(ends, edge_type, num_nodes, None if row_pointers is None else row_pointers[edge_type])
        for edge_type, ends in endpoints.items()
    ]
    graph = copy.copy(empty)
    graph._graph = relations[0] if types is None else _joined(relations, types, list(num_nodes.values()))
    dgl, _ = _dgl()
    graph._node_frames = [dgl.frame.Frame(node_features[t], num_rows=number) for t, number in num_nodes.items()]
    graph._edge_frames = [dgl.frame.Frame(edge_features[e], num_rows=len(src)) for e, (src, _) in endpoints.items()]
    return graph


def _relation(
    ends: tuple[Tensor, Tensor], edge_type: EdgeType, num_nodes: Mapping[str, int], pointers: Tensor | None = None
) -> Any:
    """Index of the edges of one type."""
    dgl, formats = _dgl()
    (src, dst), (source, _, destination) = ends, edge_type
    sizes = 1 if source == destination else 2, num_nodes[source], num_nodes[destination]
    if pointers is None:
        return dgl.heterograph_index.create_unitgraph_from_coo(*sizes, src, dst, formats)
    # DGL 1.1 fails in sums with edge features without ids of edges, although it says that they are optional.
    ids = torch.arange(len(src), dtype=src.dtype, device=src.device)
    return dgl.heterograph_index.create_unitgraph_from_csr(*sizes, pointers.to(src.dtype), src, ids, formats, True)


def _joined(relations: list[Any], types: Any, num_nodes: list[int]) -> Any:
    """Index of the edges of all types; `types` is the graph of types."""
    dgl, _ = _dgl()
    numbers = dgl.utils.toindex(num_nodes, "int64")
    return dgl.heterograph_index.create_heterograph_from_relations(types, relations, numbers)


def _frame(schemes: Mapping[str, Any], features: Iterator[Tensor], num_rows: int) -> Any:
    """Frame of the next features, of as many rows."""
    dgl, _ = _dgl()
    frame = dgl.frame.Frame(num_rows=num_rows)
    for name, scheme in schemes.items():
        frame._columns[name] = dgl.frame.Column(next(features), scheme)
    return frame


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
    idtype = next(iter(endpoints.values()))[0].dtype if endpoints else torch.int64
    _set_batch(graph, dict(nodes_per_graph), dict(edges_per_graph), idtype)
    return graph


def _set_batch(graph: Any, nodes: dict[str, Tensor], edges: dict[EdgeType, Tensor], idtype: torch.dtype) -> None:
    """Tell a graph how many nodes and edges of each type its graphs have; it keeps the dicts."""
    # DGL 2 needs the counts in the index type of the graph.
    if idtype != torch.int64:
        nodes = {t: number.to(idtype) for t, number in nodes.items()}
        edges = {e: number.to(idtype) for e, number in edges.items()}
    graph.set_batch_num_nodes(nodes)
    graph.set_batch_num_edges(edges)


class BatchBuilder:
    """Builds batches of one schema, without padding: what depends on the schema alone is made once.

    A batch of few graphs takes little more time to fill than `build_batch` needs to sort tensors by type and name.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._empty, self._types = _of_types(schema.node_types, schema.edge_types)
        self._node_schemes = [_schemes(schema.node_features[t]) for t in schema.node_types]
        self._edge_schemes = [_schemes(schema.edge_features[e]) for e in schema.edge_types]

    def batch(self, totals: list[int], tensors: Iterable[Tensor]) -> Any:
        """Make ``(DGLGraph, labels)``, or the DGLGraph alone if there are no labels.

        `totals` are the nodes of each type, edges of each type, and graphs of the batch. `tensors` come in this order:
        nodes of each graph, for each node type; edges of each graph, for each edge type; sources and destinations of
        each edge type; features of nodes, of edges, and labels, in the order of ``schema.columns()``.
        """
        schema, left = self._schema, iter(tensors)
        num_nodes = dict(zip(schema.node_types, totals, strict=False))
        nodes_per_graph = {t: next(left) for t in schema.node_types}
        edges_per_graph = {e: next(left) for e in schema.edge_types}
        relations = [_relation((next(left), next(left)), e, num_nodes) for e in schema.edge_types]
        graph = copy.copy(self._empty)
        graph._graph = relations[0] if self._types is None else _joined(relations, self._types, [*num_nodes.values()])
        graph._node_frames = [_frame(s, left, n) for s, n in zip(self._node_schemes, totals, strict=False)]
        num_edges = totals[len(num_nodes) : -1]
        graph._edge_frames = [_frame(s, left, n) for s, n in zip(self._edge_schemes, num_edges, strict=True)]
        _set_batch(graph, nodes_per_graph, edges_per_graph, schema.idtype)
        labels = {name: next(left) for name in schema.labels}
        return (graph, as_label(labels)) if labels else graph


def _schemes(specs: Mapping[str, ArraySpec]) -> dict[str, Any]:
    dgl, _ = _dgl()
    return {name: dgl.frame.Scheme(spec.shape, spec.dtype) for name, spec in specs.items()}
