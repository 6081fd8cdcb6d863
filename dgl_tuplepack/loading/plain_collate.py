"""Collate items as DGL does, without padding. Unlike in DGL, the list may be empty, and graphs can be transformed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.batches.collate import CollatedView, PaddedCollate
from dgl_tuplepack.errors import InputError, SchemaError
from dgl_tuplepack.graphs.build import build_batch
from dgl_tuplepack.graphs.items import Examples, Identified, begins_with_pyg, taken_apart
from dgl_tuplepack.graphs.named import features_of, is_graph, located_types
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.loading.opened import Graphs
from dgl_tuplepack.storage.graph_store import StoredGraphs, refuse_store_settings


class PlainCollate:
    """Collate items as DGL does, without padding.

    An empty list gives a batch without graphs, which has the types, features and labels of the examples.
    """

    def __init__(self, examples: Examples) -> None:
        if begins_with_pyg(examples[0]):
            raise InputError(
                "PyG graphs that are not in a store cannot be batched without padding here; give them and a "
                "PackBatchSampler to torch_geometric.loader.DataLoader, or write a store and use "
                'store.batched(framework="pyg").'
            )
        self._collate = load("dgl.dataloading").GraphCollator().collate
        self.examples = [_unwrapped(example) for example in examples]

    def __call__(self, items: Iterable[Any]) -> Any:
        """Return the batched graph, and the stacked labels and ids if items have them."""
        items = list(map(_unwrapped, items))
        return self._collate(items) if items else _emptied(self._collate(self.examples))


class TransformingCollate:
    """Transform the graphs of items, then pass the items to `collate`; for `keeps_ids` see `transformed`."""

    def __init__(self, collate: Callable[[Any], Any], transform: GraphTransform, keeps_ids: bool) -> None:
        self.collate, self.transform, self.keeps_ids = collate, transform, keeps_ids

    def __call__(self, items: Sequence[Any]) -> Any:
        """Return the batch of the transformed items."""
        return self.collate(transformed(items, self.transform, self.keeps_ids))


def transformed(items: Sequence[Any], transform: GraphTransform, keeps_ids: bool) -> list[Any]:
    """Return the items with transformed graphs; `Identified` items (with an id) stay wrapped only if `keeps_ids`."""
    made = []
    for item, part in zip(items, transform(*taken_apart(items)), strict=True):
        # A graph, or a tuple or list that begins with a graph.
        inner = item.item if isinstance(item, Identified) else item
        changed = (part.graph, *inner[1:]) if isinstance(inner, tuple | list) else part.graph
        made.append(replace(item, item=changed) if keeps_ids and isinstance(item, Identified) else changed)
    return made


def _unwrapped(item: Any) -> Any:
    """Return an `Identified` (item with id) as (graph, id) or (graph, label, id); return other items unchanged."""
    if not isinstance(item, Identified):
        return item
    inner = item.item if isinstance(item.item, tuple | list) else (item.item,)
    return (*inner[:2], item.id)


def _emptied(batch: Any) -> Any:
    """Return `batch` without graphs: tensors lose all rows, and the batched graph loses all nodes and edges."""
    if isinstance(batch, Tensor):
        return batch[:0]
    if isinstance(batch, Mapping):
        return {name: _emptied(value) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [_emptied(value) for value in batch]
    if not is_graph(batch):
        return batch
    no_ends, no_graphs = torch.zeros(0, dtype=batch.idtype), torch.zeros(0, dtype=torch.int64)
    # Type -> name -> the feature without rows.
    features = {
        t: {name: values[:0] for name, values in features_of(graph, type_in_graph).items()}
        for t, graph, type_in_graph in located_types(batch)
    }
    node_types, edge_types = batch.ntypes, batch.canonical_etypes
    # The arguments, each by type: endpoints of the edges, node features, edge features, nodes of each graph, edges of
    # each graph, number of all nodes.
    return build_batch(
        {e: (no_ends, no_ends) for e in edge_types},
        {t: features[t] for t in node_types},
        {e: features[e] for e in edge_types},
        dict.fromkeys(node_types, no_graphs),
        dict.fromkeys(edge_types, no_graphs),
        dict.fromkeys(node_types, 0),
    )


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
