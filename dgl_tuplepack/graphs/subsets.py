"""Subsets of datasets, as torch and DGL make them, and examples that show the schema of a dataset."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.items import Examples, WithIds, begins_with_pyg, parts_of
from dgl_tuplepack.graphs.named import by_name, check_alike, features_of, graph_names, is_pyg, located_types, types_in
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.relations import Indices, Ties
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, as_tensors, found_features, refuse_levels, specs_of
from dgl_tuplepack.planning.sizes import IntArray


class Chosen(NamedTuple):
    """The dataset that a subset chooses from, and the positions of the chosen items, int64 ``[n]``, >= 0."""

    dataset: Any
    positions: IntArray


def ids_in(source: Any, given: Any) -> Any:
    """Return the positions in `source` that a `Subset` of it has; return anything else, such as ids, unchanged."""
    if not (hasattr(given, "indices") and hasattr(given, "dataset")):
        return given
    dataset, chosen = source.dataset if type(source) is WithIds else source, chosen_from(given)
    while chosen is not None and chosen.dataset is not dataset and chosen.dataset is not source:
        inner = chosen_from(chosen.dataset)
        chosen = None if inner is None else Chosen(inner.dataset, inner.positions[chosen.positions])
    if chosen is None:
        raise InputError("a split is a Subset, but not of the source; make it from the source, or give ids.")
    return chosen.positions


def chosen_from(given: Any) -> Chosen | None:
    """Return the dataset and the positions of a `torch.utils.data.Subset` or `dgl.data.utils.Subset`.

    Return None for other objects, for subclasses (which may change items), and for indices that are malformed or not
    in the dataset.
    """
    modules = (sys.modules.get(name) for name in ("torch.utils.data", "dgl.data.utils"))
    if type(given) not in [module.Subset for module in modules if module is not None]:
        return None
    # Other types, such as a pandas Series, may look up indices in another way.
    if type(given.indices) not in (list, tuple, range, np.ndarray, Tensor):
        return None
    try:
        positions, number = np.asarray(given.indices), len(given.dataset)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        # The indices are no numbers, or are on a device; or the dataset has no length.
        return None
    if positions.ndim != 1 or (len(positions) and positions.dtype.kind not in "iu"):
        return None
    if len(positions) and not -number <= int(positions.min()) <= int(positions.max()) < number:
        return None
    positions = positions.astype(np.int64)
    return Chosen(given.dataset, np.where(positions < 0, positions + number, positions))


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
        from dgl_tuplepack.graphs.pyg_join import join_graphs
        from dgl_tuplepack.graphs.pyg_schema import schema_of_joined

        given = [graphs, *(parts_of(other, "an example").graph for other in others)]
        group = join_graphs(given, ["the example"] * len(given), levels or {})
        return schema_of_joined(group, levels or {}, graph_id is not None, indices).with_declared(ties, indices)
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
