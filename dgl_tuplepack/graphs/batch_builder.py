"""Make the DGLGraph of a batch of one schema, without padding, from tensors in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from dgl_tuplepack.graphs.build import (
    build_batches,
    dgl_and_formats,
    graph_of_types,
    joined_relations,
    relation,
    set_batch,
)
from dgl_tuplepack.graphs.schema import Schema, as_label


class BatchBuilder:
    """Builds batches of one schema, without padding: what depends on the schema alone is made once.

    A batch of few graphs takes little more time to fill than `build_batch` needs to sort tensors by type and name.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._node_types, self._edge_types = [*schema.node_types], [*schema.edge_types]
        self._short_types = [e[1] for e in schema.edge_types]
        self._types = graph_of_types(schema.node_types, schema.edge_types)
        self._features = [[*of] for of in (*schema.node_features.values(), *schema.edge_features.values())]
        dgl, _ = dgl_and_formats()
        self._new_frame, self._new_graph = dgl.frame.Frame, dgl.DGLGraph

    def batch(self, totals: list[int], tensors: Sequence[Tensor]) -> Any:
        """Make ``(DGLGraph, labels)``; without labels, the DGLGraph alone. Named graphs are a dict of DGLGraphs.

        `totals` are the nodes of each type, edges of each type, and graphs of the batch. `tensors` come in this order:
        nodes of each graph, for each node type; edges of each graph, for each edge type; sources and destinations of
        each edge type; features of nodes, of edges, and labels, in the order of ``schema.columns()``.
        """
        schema, left, number = self._schema, iter(tensors), len(self._node_types)
        num_nodes = dict(zip(self._node_types, totals, strict=False))
        # The types come first in zip, which would drop a tensor otherwise.
        nodes_per_graph = dict(zip(self._node_types, left, strict=False))
        edges_per_graph = dict(zip(self._edge_types, left, strict=False))
        if schema.graph_names:
            ends = {e: (next(left), next(left)) for e in self._edge_types}
            nodes = {t: {name: next(left) for name in names} for t, names in schema.node_features.items()}
            edges = {e: {name: next(left) for name in names} for e, names in schema.edge_features.items()}
            per_graph = nodes_per_graph, edges_per_graph
            graph = build_batches(schema.graph_names, ends, nodes, edges, *per_graph, num_nodes)
        else:
            relations = [relation((next(left), next(left)), e, num_nodes) for e in self._edge_types]
            frames = [
                self._new_frame(dict(zip(names, left, strict=False)), rows)
                for names, rows in zip(self._features, totals, strict=False)
            ]
            index = joined_relations(relations, self._types, num_nodes)
            graph = self._new_graph(index, [*self._node_types], [*self._short_types], frames[:number], frames[number:])
            set_batch(graph, nodes_per_graph, edges_per_graph, schema.idtype)
        labels = dict(zip(schema.labels, left, strict=True))
        return (graph, as_label(labels)) if labels else graph
