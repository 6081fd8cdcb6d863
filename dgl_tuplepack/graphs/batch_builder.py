"""Make the DGLGraph of a batch of one schema, without padding, from tensors in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack.graphs.blocks import EdgeType
from dgl_tuplepack.graphs.build import dgl_and_formats, graph_of_types, joined_relations, relation, set_batch
from dgl_tuplepack.graphs.joining import build_batches
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, as_label


class BatchBuilder:
    """Builds batches of one schema, without padding: what depends on the schema alone is made once.

    A batch of few graphs takes little more time to fill than `build_batch` needs to sort tensors by type and name.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._empty, self._types = graph_of_types(schema.node_types, schema.edge_types)
        self._node_columns = [_columns(schema.node_features[t]) for t in schema.node_types]
        self._edge_columns = [_columns(schema.edge_features[e]) for e in schema.edge_types]
        self._frame = dgl_and_formats()[0].frame.Frame(num_rows=0)

    def batch(self, totals: list[int], tensors: Sequence[Tensor]) -> Any:
        """Make ``(DGLGraph, labels)``; without labels, the DGLGraph alone. Named graphs are a dict of DGLGraphs.

        `totals` are the nodes of each type, edges of each type, and graphs of the batch. `tensors` come in this order:
        nodes of each graph, for each node type; edges of each graph, for each edge type; sources and destinations of
        each edge type; features of nodes, of edges, and labels, in the order of ``schema.columns()``.
        """
        schema, types = self._schema, len(totals) - 1
        num_nodes = dict(zip(schema.node_types, totals, strict=False))
        nodes_per_graph = dict(zip(schema.node_types, tensors, strict=False))
        edges_per_graph = dict(zip(schema.edge_types, tensors[len(num_nodes) : types], strict=True))
        left = iter(tensors[types:])
        endpoints = {e: (next(left), next(left)) for e in schema.edge_types}
        if schema.graph_names:
            graph = self._named(num_nodes, nodes_per_graph, edges_per_graph, endpoints, left)
        else:
            graph = self._graph(totals, num_nodes, endpoints, left)
            set_batch(graph, nodes_per_graph, edges_per_graph, schema.idtype)
        labels = dict(zip(schema.labels, left, strict=True))
        return (graph, as_label(labels)) if labels else graph

    def _graph(
        self,
        totals: list[int],
        num_nodes: dict[str, int],
        endpoints: dict[EdgeType, tuple[Tensor, Tensor]],
        left: Iterator[Tensor],
    ) -> Any:
        relations = [relation(ends, e, num_nodes) for e, ends in endpoints.items()]
        frames = [
            self._filled(columns, left, number)
            for columns, number in zip(self._node_columns + self._edge_columns, totals, strict=False)
        ]
        inside = {
            "_graph": joined_relations(relations, self._types, num_nodes),
            "_node_frames": frames[: len(num_nodes)],
            "_edge_frames": frames[len(num_nodes) :],
        }
        return _copy(self._empty, inside)

    def _filled(self, columns: Mapping[str, Any], features: Iterator[Tensor], num_rows: int) -> Any:
        """Frame of the next features, of as many rows."""
        filled = {name: _copy(column, {"storage": next(features)}) for name, column in columns.items()}
        return _copy(self._frame, {"_columns": filled, "_num_rows": num_rows, "_initializers": {}})

    def _named(
        self,
        num_nodes: dict[str, int],
        nodes_per_graph: dict[str, Tensor],
        edges_per_graph: dict[EdgeType, Tensor],
        endpoints: dict[EdgeType, tuple[Tensor, Tensor]],
        left: Iterator[Tensor],
    ) -> Any:
        schema = self._schema
        nodes = {t: {name: next(left) for name in names} for t, names in schema.node_features.items()}
        edges = {e: {name: next(left) for name in names} for e, names in schema.edge_features.items()}
        return build_batches(schema.graph_names, endpoints, nodes, edges, nodes_per_graph, edges_per_graph, num_nodes)


def _columns(specs: Mapping[str, ArraySpec]) -> dict[str, Any]:
    """Columns of features of no rows."""
    dgl, _ = dgl_and_formats()
    empty = {name: torch.empty((0, *spec.shape), dtype=spec.dtype, device="cpu") for name, spec in specs.items()}
    return {name: dgl.frame.Column(tensor) for name, tensor in empty.items()}


def _copy(template: Any, changed: dict[str, Any]) -> Any:
    """Shallow copy with other attributes, as ``DGLGraph.__copy__`` makes it; calling the class takes twice as long."""
    new = object.__new__(type(template))
    new.__dict__ = template.__dict__ | changed
    return new
