"""Batch graphs by `dgl.batch`, and compare each with the schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.items import Parts
from dgl_tuplepack.graphs.joining import joined
from dgl_tuplepack.graphs.named import is_pyg, names_of
from dgl_tuplepack.graphs.plain_graph import PlainGraph
from dgl_tuplepack.graphs.schema import Schema, as_tensors, stack_labels


def batch_of(schema: Schema, graphs: Sequence[Any], where: Sequence[str]) -> Any:
    """Return what `dgl.batch` makes of graphs, None for no graphs; SchemaError names, by `where`, one that differs.

    Batches of named graphs are joined to one graph. Graphs of PyG become a `PlainGraph`.
    """
    if schema.pyg is not None or any(map(is_pyg, graphs)):
        from dgl_tuplepack.graphs.pyg_items import joined_data

        return joined_data(schema, graphs, where) if graphs else None
    return _batched(schema, graphs, where)[1] if graphs else None


def batches_of(schema: Schema, graphs: Sequence[Any], where: Sequence[str]) -> Any:
    """Return the batch of at least one graph, as `batch_of`, but a dict of batches of named graphs."""
    return _batched(schema, graphs, where)[0]


def _batched(schema: Schema, graphs: Sequence[Any], where: Sequence[str]) -> tuple[Any, Any]:
    """Return batches by name, and joined to one graph; both are the batch of graphs without a name."""
    dgl = load("dgl")
    try:
        # DGL assumes the types of the first graph and checks that features agree among the graphs. So it is enough to
        # compare the result with the example, and to search for the graph that differs only on failure.
        for graph, place in zip(graphs, where, strict=True):
            schema.check_types(graph, place)
        batches = _by_dgl(dgl, graphs)
        batch = joined(batches, "the batch")
        if batch.batch_size == len(graphs) and batch.idtype == schema.idtype and schema.matches_features(batch):
            return batches, batch
    except (dgl.DGLError, SchemaError):
        # What is wrong is told below, with the item that has it.
        pass
    for graph, place in zip(graphs, where, strict=True):
        schema.check_graph(graph, place)
    # No graph differs: if none has nodes (edges) of a type, DGL still asks for equal features of that type.
    batches = _by_dgl(dgl, [_without_empty_features(graph) for graph in graphs])
    return batches, joined(batches, "the batch")


def labels_of(batch: Any, schema: Schema, parts: Sequence[Parts], where: Sequence[str]) -> dict[str, Tensor]:
    """Return the labels of the graphs that `batch_of` joined, ``[number, ...]`` each; none for no graphs."""
    if isinstance(batch, PlainGraph):
        return batch.labels
    return stack_labels([as_tensors(part.label) for part in parts], schema, where) if parts else {}


def _by_dgl(dgl: Any, graphs: Sequence[Any]) -> Any:
    names = names_of(graphs[0])
    return {name: dgl.batch([graph[name] for graph in graphs]) for name in names} if names else dgl.batch(graphs)


def _without_empty_features(graph: Any) -> Any:
    """Return a view of the graph, or of each named graph, without the features of types that have no nodes (edges)."""
    if isinstance(graph, dict):
        return {name: _without_empty_features(each) for name, each in graph.items()}
    graph = graph.local_var()
    for node_type in graph.ntypes:
        if not graph.num_nodes(node_type):
            graph.nodes[node_type].data.clear()
    for edge_type in graph.canonical_etypes:
        if not graph.num_edges(edge_type):
            graph.edges[edge_type].data.clear()
    return graph
