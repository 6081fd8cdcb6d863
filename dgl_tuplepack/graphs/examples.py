"""Find the schema of a dataset from one example."""

from __future__ import annotations

from typing import Any

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.graphs.items import Examples, begins_with_pyg, parts_of
from dgl_tuplepack.graphs.named import by_name, check_alike, features_of, graph_names, is_pyg, located_types, types_in
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.relations import Indices, Ties
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, as_tensors, found_features, refuse_levels, specs_of


def schema_of(
    example: Any, ties: Ties | None = None, indices: Indices | None = None, levels: Levels | None = None
) -> Schema:
    """Return the schema of one item, see `items.parts_of`, or of `Examples`."""
    example, *others = example if isinstance(example, Examples) else [example]
    if not begins_with_pyg(example):
        # If DGL is missing, raise the error that says so; `parts_of` would only refuse the item.
        load("dgl")
    graphs, label, graph_id = parts_of(example, "the example")
    if is_pyg(graphs):
        from dgl_tuplepack.graphs.pyg.items import example_schema

        given = [graphs, *(parts_of(other, "an example").graph for other in others)]
        return example_schema(given, levels or {}, graph_id is not None, indices).with_declared(ties, indices)
    refuse_levels(levels, "the example")
    check_alike(graphs, "the example")
    located = located_types(graphs)
    features = {t: specs_of(features_of(graph, type_in_graph)) for t, graph, type_in_graph in located}
    node_types, edge_types = types_in(graphs)
    labels = as_tensors(label)
    schema = Schema(
        node_types=node_types,
        edge_types=edge_types,
        node_features={t: features[t] for t in node_types},
        edge_features={e: features[e] for e in edge_types},
        labels={name: ArraySpec(tuple(value.shape), value.dtype) for name, value in labels.items()},
        idtype=next(iter(by_name(graphs).values())).idtype,
        has_ids=graph_id is not None,
        graph_names=graph_names(graphs),
        empty=frozenset(features.keys() - found_features(graphs).keys()),
    )
    for other in others:
        schema = schema.settled(found_features(parts_of(other, "an example").graph, schema.empty))
    return schema.with_declared(ties, indices)
