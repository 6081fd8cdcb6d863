"""Make the DGLGraph of a batch without padding, from tensors in a fixed order."""

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
    """Builder of batches of one schema, without padding; everything that depends only on the schema is made once.

    For a batch of few graphs, sorting tensors by type and name, as `build_batch` needs, takes nearly as long as
    filling the batch.
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
        """Return ``(DGLGraph, labels)``, or only the DGLGraph without labels. Named graphs are a dict of DGLGraphs.

        `totals` has the number of nodes of each type, of edges of each type, and of graphs. `tensors` has, in this
        order: the nodes per graph, for each node type; the edges per graph, for each edge type; the sources and
        destinations of each edge type; node features, edge features and labels, as in ``schema.columns()``.
        """
        schema, remaining, number = self._schema, iter(tensors), len(self._node_types)
        num_nodes = dict(zip(self._node_types, totals, strict=False))
        # zip must read the types first: with `remaining` first, it would read one tensor too many and drop it.
        nodes_per_graph = dict(zip(self._node_types, remaining, strict=False))
        edges_per_graph = dict(zip(self._edge_types, remaining, strict=False))
        if schema.graph_names:
            ends = {e: (next(remaining), next(remaining)) for e in self._edge_types}
            nodes = {t: {name: next(remaining) for name in names} for t, names in schema.node_features.items()}
            edges = {e: {name: next(remaining) for name in names} for e, names in schema.edge_features.items()}
            per_graph = nodes_per_graph, edges_per_graph
            graph = build_batches(schema.graph_names, ends, nodes, edges, *per_graph, num_nodes)
        else:
            relations = [relation((next(remaining), next(remaining)), e, num_nodes) for e in self._edge_types]
            frames = [
                self._new_frame(dict(zip(names, remaining, strict=False)), rows)
                for names, rows in zip(self._features, totals, strict=False)
            ]
            index = joined_relations(relations, self._types, num_nodes)
            graph = self._new_graph(index, [*self._node_types], [*self._short_types], frames[:number], frames[number:])
            set_batch(graph, nodes_per_graph, edges_per_graph, schema.idtype)
        labels = dict(zip(schema.labels, remaining, strict=True))
        return (graph, as_label(labels)) if labels else graph
