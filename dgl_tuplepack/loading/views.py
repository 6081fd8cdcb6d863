"""From any source to a view, which maps a list of ids to a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.batches.collate import PaddedCollate
from dgl_tuplepack.batches.view import CollatedView
from dgl_tuplepack.errors import InputError, SchemaError
from dgl_tuplepack.graphs.build import build_batch
from dgl_tuplepack.graphs.examples import schema_of as schema_of_example
from dgl_tuplepack.graphs.items import Identified, WithIds, parts_of, taken_apart
from dgl_tuplepack.graphs.named import features_of, is_graph, is_pyg, located_types
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.storage.graph_store import StoredGraphs, refuse_store_settings
from dgl_tuplepack.storage.temporary import temporary_store


class PlainCollate:
    """Collate items as DGL does, without padding; no items give a batch of no graphs, with the types of `example`."""

    def __init__(self, example: Any) -> None:
        inner = example.item if isinstance(example, Identified) else example
        if is_pyg(inner):
            raise InputError(
                "graphs of PyG have no batches without padding here; give them and a PackBatchSampler to "
                'torch_geometric.loader.DataLoader, or write a store, whose batched(framework="pyg") has such batches.'
            )
        self._collate = load("dgl.dataloading").GraphCollator().collate
        self.example = example

    def __call__(self, items: Iterable[Any]) -> Any:
        """Return the batched graph, and whatever else items have, stacked."""
        items = list(map(_unwrapped, items))
        return self._collate(items) if items else _emptied(self._collate([_unwrapped(self.example)]))


class TransformingCollate:
    """Transform the graphs of items, which have ids, before another function collates them; see `_transformed`."""

    def __init__(self, collate: Callable[[Any], Any], transform: GraphTransform, keeps_ids: bool) -> None:
        self.collate, self.transform, self.keeps_ids = collate, transform, keeps_ids

    def __call__(self, items: Sequence[Any]) -> Any:
        """Return what the other function makes of the transformed items."""
        return self.collate(_transformed(items, self.transform, self.keeps_ids))


def _transformed(items: Sequence[Any], transform: GraphTransform, keeps_ids: bool) -> list[Any]:
    """Transform graphs of items; without `keeps_ids`, the items have lost what `CollatedView` added to them."""
    made = []
    for item, part in zip(items, transform(*taken_apart(items)), strict=True):
        inner = item.item if isinstance(item, Identified) else item
        changed = (part.graph, *inner[1:]) if isinstance(inner, tuple | list) else part.graph
        made.append(replace(item, item=changed) if keeps_ids and isinstance(item, Identified) else changed)
    return made


def _unwrapped(item: Any) -> Any:
    """Return an item by `with_ids` as a tuple that ends in its id."""
    if not isinstance(item, Identified):
        return item
    inner = item.item if isinstance(item.item, tuple | list) else (item.item,)
    return (*inner[:2], item.id)


def _emptied(batch: Any) -> Any:
    """Return a batch of no graphs, of the types of another."""
    if isinstance(batch, Tensor):
        return batch[:0]
    if isinstance(batch, Mapping):
        return {name: _emptied(value) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [_emptied(value) for value in batch]
    if not is_graph(batch):
        return batch
    none, no_graphs = torch.zeros(0, dtype=batch.idtype), torch.zeros(0, dtype=torch.int64)
    features = {t: {n: v[:0] for n, v in features_of(graph, own).items()} for t, graph, own in located_types(batch)}
    node_types, edge_types = batch.ntypes, batch.canonical_etypes
    return build_batch(
        {e: (none, none) for e in edge_types},
        {t: features[t] for t in node_types},
        {e: features[e] for e in edge_types},
        dict.fromkeys(node_types, no_graphs),
        dict.fromkeys(edge_types, no_graphs),
        dict.fromkeys(node_types, 0),
    )


def opened(source: Any) -> tuple[Source, Any]:
    """Return what a source is, and its graphs by position: a store, or a dataset with a length and items.

    Graphs that can only be read in blocks, such as those of an OGB folder, are written to a store, which lives as long
    as the result.
    """
    found = resolve(source)
    graphs = found.by_position()
    if isinstance(graphs, WithIds) and isinstance(graphs.dataset, StoredGraphs):
        # Stores fill ids anyway.
        graphs = graphs.dataset
    return found, temporary_store(found) if graphs is None else graphs


def schema_of(graphs: Any) -> Schema:
    """Return types, features and labels of graphs by position."""
    return graphs.schema if isinstance(graphs, StoredGraphs) else schema_of_example(graphs[0])


def subset_of(graphs: Any, ids: Any) -> Any:
    """Return the graphs at some positions, in their order."""
    return graphs.subset(ids) if isinstance(graphs, StoredGraphs) else torch.utils.data.Subset(graphs, ids.tolist())


def padded_view(graphs: Any, limits: Any, packs_per_batch: int, settings: Mapping[str, Any]) -> Any:
    """Return the view whose items are padded batches."""
    if isinstance(graphs, StoredGraphs):
        others = dict(settings)
        if others.pop("levels", None) is not None:
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
    # Batches have the positions of graphs as ids, as from a store, unless items have their own ids.
    example, ids = _example(graphs)
    return CollatedView(graphs, PaddedCollate(limits, example, packs_per_batch, **settings), ids)


def plain_view(graphs: Any, collate: Callable[[Any], Any] | None, settings: Mapping[str, Any]) -> Any:
    """Return the view whose items are batches without padding, by a collate of the caller's or by DGL's."""
    transform, others = settings.get("transform"), {n: v for n, v in settings.items() if not n.startswith("transform")}
    if transform is not None or not isinstance(graphs, StoredGraphs) or collate is not None:
        refuse_store_settings(others)
    if transform is None and collate is None and isinstance(graphs, StoredGraphs):
        return graphs.batched(framework="dgl" if graphs.schema.pyg is None else "pyg", **others)
    if collate is None and isinstance(graphs, StoredGraphs) and (graphs.schema.indices or graphs.schema.ties):
        raise SchemaError(
            "ties and indices of a store are not heeded in batches of transformed graphs without padding; give the "
            "transform as pre_transform when the store is written, or take padded batches."
        )
    if transform is None:
        return CollatedView(graphs, PlainCollate(graphs[0]) if collate is None else collate)
    applied = GraphTransform(transform, settings.get("transform_seed", 0))
    example, ids = _example(graphs)
    keeps_ids = isinstance(graphs[0], Identified)
    if collate is None:
        collate = PlainCollate(_transformed([replace(example, epoch=0)], applied, keeps_ids)[0])
    return CollatedView(graphs, TransformingCollate(collate, applied, keeps_ids), ids)


def _example(graphs: Any) -> tuple[Identified, str]:
    """Return the first item with its id, and which ids items have: their own, or else positions."""
    first = graphs[0]
    own = parts_of(first, "item 0").id
    if isinstance(first, Identified):
        return first, "own"
    return Identified(0 if own is None else own, first), "positions" if own is None else "own"
