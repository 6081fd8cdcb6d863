"""Make views of graphs. A view maps a list of ids to a batch, with or without padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dgl_tuplepack.batches.collate import PaddedCollate
from dgl_tuplepack.batches.view import CollatedView
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.items import Examples, Identified
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.loading.opened import Graphs
from dgl_tuplepack.loading.plain_collate import PlainCollate, TransformingCollate, transformed
from dgl_tuplepack.storage.graph_store import StoredGraphs, refuse_store_settings


def padded_view(given: Graphs, limits: Any, packs_per_batch: int, settings: Mapping[str, Any]) -> Any:
    """Return a view whose items are padded batches."""
    graphs = given.items
    if isinstance(graphs, StoredGraphs):
        others = dict(settings)
        # If the store is a temporary copy of the user's PyG graphs, it was already written with these levels.
        if others.pop("levels", None) is not None and not given.is_copy:
            raise SchemaError(
                "levels are declared when a store is written, but a store is given; leave them out, or write the store "
                "again with levels=..."
            )
        for name in ("ties", "indices"):
            declared, asked = getattr(graphs.schema, name), others.pop(name, None)
            if asked is not None and asked != declared:
                raise SchemaError(
                    f"the store was written with {name}={dict(declared)!s:.200}, but {asked!s:.200} are given; leave "
                    f"them out, or write the store again with {name}=..."
                )
        return graphs.padded(limits, packs_per_batch, **others)
    refuse_store_settings(settings)
    examples, ids = given.identified()
    return CollatedView(graphs, PaddedCollate(limits, examples, packs_per_batch, **settings), ids)


def plain_view(given: Graphs, collate: Callable[[Any], Any] | None, settings: Mapping[str, Any], with_ids: bool) -> Any:
    """Return a view whose items are batches without padding, made by `collate`; None: as DGL or PyG makes them."""
    graphs, is_stored = given.items, isinstance(given.items, StoredGraphs)
    transform, others = settings.get("transform"), {n: v for n, v in settings.items() if not n.startswith("transform")}
    if is_stored and transform is None and collate is None:
        return graphs.batched(framework="dgl" if graphs.schema.pyg is None else "pyg", with_ids=with_ids, **others)
    refuse_store_settings(others)
    if transform is None and collate is not None:
        return CollatedView(graphs, collate)
    if transform is None and not with_ids:
        return CollatedView(graphs, PlainCollate(given.examples))
    examples, ids = given.identified()
    if transform is None:
        return CollatedView(graphs, PlainCollate(examples), ids)
    if collate is None and is_stored and (graphs.schema.indices or graphs.schema.ties):
        raise SchemaError(
            "batches of transformed graphs without padding do not support ties and indices of a store; give the "
            "transform as pre_transform when the store is written, or use padded batches."
        )
    graph_transform = GraphTransform(transform, settings.get("transform_seed", 0))
    keeps_ids = isinstance(graphs[0], Identified) or (with_ids and collate is None)
    if collate is None:
        # A batch without graphs has the types and features of the examples, so they must be transformed, too.
        first = [replace(example, epoch=0) for example in examples]
        collate = PlainCollate(Examples(transformed(first, graph_transform, keeps_ids)))
    return CollatedView(graphs, TransformingCollate(collate, graph_transform, keeps_ids), ids)
