"""Compare items with the schema, join their graphs by `dgl.batch`, and return the tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.items import Parts
from dgl_tuplepack.graphs.named import by_name, check_alike, count, features_of, graph_names, is_pyg, located_types
from dgl_tuplepack.graphs.schema import ArraySpec, JoinedGraphs, Schema, as_tensors, check_specs


def joined(schema: Schema, parts: Sequence[Parts], where: Sequence[str]) -> JoinedGraphs:
    """Join the graphs and labels of items; raise SchemaError if an item has another schema."""
    if not parts:
        return _nothing(schema)
    graphs = [part.graph for part in parts]
    if schema.pyg is not None or any(map(is_pyg, graphs)):
        from dgl_tuplepack.graphs.pyg.items import joined_data

        return joined_data(schema, graphs, where)
    batches = _batched(schema, graphs, where)
    labels = [as_tensors(part.label) for part in parts]
    for label, item_name in zip(labels, where, strict=True):
        found = {name: ArraySpec(tuple(value.shape), value.dtype) for name, value in label.items()}
        check_specs(found, schema.labels, f"{item_name}, labels", "in the dataset")
    return tensors_of(schema, batches, {name: torch.stack([label[name] for label in labels]) for name in schema.labels})


def tensors_of(schema: Schema, batches: Any, labels: Mapping[str, Tensor]) -> JoinedGraphs:
    """Return the tensors of `batches`: a result of `dgl.batch`, or a dict with such a result for each name."""
    made = JoinedGraphs({}, {}, {}, {})
    for t, graph, type_in_graph in located_types(batches):
        is_nodes = isinstance(t, str)
        made.numbers[t] = number = count(graph, type_in_graph)
        numbers = graph.batch_num_nodes if is_nodes else graph.batch_num_edges
        made.lengths[t] = numbers(type_in_graph).long()
        if not is_nodes:
            # In the order of edge ids: with some sparse formats, DGL returns edges in another order.
            src, dst, ids = graph.edges(form="all", order=None, etype=type_in_graph)
            src, dst = (torch.empty_like(end).index_put_((ids,), end) for end in (src, dst))
            made.ends[t] = src, dst
        content, specs = ("node_feature", schema.node_features) if is_nodes else ("edge_feature", schema.edge_features)
        data = features_of(graph, type_in_graph)
        for name, spec in specs[t].items():
            # If no graph has a node (edge) of the type, the feature may be missing.
            made.columns[content, t, name] = data[name] if number else spec.filled(0, 0).to(graph.device)
    made.numbers[None] = next(iter(by_name(batches).values())).batch_size
    made.columns.update({("label", None, name): value.to(made.device) for name, value in labels.items()})
    return made


def _nothing(schema: Schema) -> JoinedGraphs:
    """Return the result of `joined` for no items."""
    none, types = torch.empty(0, dtype=torch.int64, device="cpu"), [*schema.types.values()]
    columns = {column: spec.filled(0, 0) for column, spec in schema.columns()}
    return JoinedGraphs(
        dict.fromkeys([*types, None], 0), dict.fromkeys(types, none), dict.fromkeys(schema.edge_types, (none, none)),
        columns,
    )  # fmt: skip


def _batched(schema: Schema, graphs: Sequence[Any], where: Sequence[str]) -> Any:
    """Return the batch of graphs; for named graphs, a dict with the batch of each name."""
    dgl = load("dgl")
    try:
        # `dgl.batch` compares the features of graphs, but not their types. So check the types of each graph, but the
        # features only once, for the whole batch.
        for graph, item_name in zip(graphs, where, strict=True):
            schema.check_types(graph, item_name)
        batches = _by_dgl(dgl, graphs)
        check_alike(batches, "the batch")
        batch = next(iter(by_name(batches).values()))
        if batch.batch_size == len(graphs) and batch.idtype == schema.idtype and schema.matches_features(batches):
            return batches
    except (dgl.DGLError, SchemaError):
        # The second loop raises an error that names the item.
        pass
    for graph, item_name in zip(graphs, where, strict=True):
        schema.check_graph(graph, item_name)
    # The first try fails if a graph has no nodes (edges) of a type, but other features for that type. Such features are
    # allowed, and left out here.
    return _by_dgl(dgl, [_without_empty_features(graph) for graph in graphs])


def _by_dgl(dgl: Any, graphs: Sequence[Any]) -> Any:
    names = graph_names(graphs[0])
    return {name: dgl.batch([graph[name] for graph in graphs]) for name in names} if names else dgl.batch(graphs)


def _without_empty_features(graphs: Any) -> Any:
    """Return a view of the graph, or of each named graph, without the features of types that have no nodes (edges)."""
    if isinstance(graphs, dict):
        return {name: _without_empty_features(each) for name, each in graphs.items()}
    graph = graphs.local_var()
    for t, _, _ in located_types(graph):
        if not count(graph, t):
            features_of(graph, t).clear()
    return graph
