"""From any source to what has a whole batch for a list of ids."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import InputError, SchemaError, SizesError
from dgl_tuplepack.graphs.items import BatchItems, Identified, WithIds, check_number, epoch_of, parts_of, shape_of
from dgl_tuplepack.graphs.named import is_pyg
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.padding import PaddedCollate
from dgl_tuplepack.sources import Source, resolve
from dgl_tuplepack.store import GraphStore
from dgl_tuplepack.store.graph_store import StoredGraphs
from dgl_tuplepack.store.transformed import TransformedStore

# What has a schema, subsets and padded views of its own.
_Stored = (StoredGraphs, TransformedStore)


class CollatedView:
    """View of a dataset whose item for a list of ids is one whole batch, made by `collate` of the items.

    The epoch that ids tell goes with the items to transforms.

    Attributes
    ----------
    dataset
        Where items come from, one after the other (or by its own ``__getitems__``, as torch asks for them).
    collate
        Function from a list of items to a batch.
    ids
        The ids that `collate` gets items with: "positions", "own" ids of items, or None, for items as they are.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], ids: str | None = None) -> None:
        self.dataset, self.collate, self.ids = dataset, collate, ids

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, ids: Sequence[int]) -> Any:
        several, epoch = getattr(self.dataset, "__getitems__", None), epoch_of(ids)
        items = several(ids) if several is not None and len(ids) else [self.dataset[i] for i in ids]
        check_number(items, ids)
        given, shape = [self._identified(i, item, epoch) for i, item in zip(ids, items, strict=True)], shape_of(ids)
        return self.collate(given if shape is None else BatchItems(given, shape))

    def _identified(self, position: int, item: Any, epoch: int | None) -> Any:
        """Return an item with its id and the epoch, as far as `collate` gets them."""
        if self.ids == "positions":
            return Identified(position, item, epoch)
        if isinstance(item, Identified):
            # A subset of `with_ids` does not hand the epoch on.
            return replace(item, epoch=epoch)
        own = parts_of(item, f"item {position}").id if self.ids == "own" else None
        return item if own is None else Identified(own, item, epoch)


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
    where = [f"graph {item.id}" if isinstance(item, Identified) else f"item {n}" for n, item in enumerate(items)]
    parts = [parts_of(item, name) for item, name in zip(items, where, strict=True)]
    epoch = items[0].epoch if items and isinstance(items[0], Identified) else None
    found = transform(parts, where, epoch)
    made = []
    for item, part in zip(items, found, strict=True):
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
    dgl = load("dgl")
    if not isinstance(batch, dgl.DGLGraph):
        return batch
    none = torch.zeros(0, dtype=batch.idtype)
    empty = dgl.heterograph(
        {edge_type: (none, none) for edge_type in batch.canonical_etypes}, dict.fromkeys(batch.ntypes, 0)
    )
    for types, found, made in (
        (batch.ntypes, batch.nodes, empty.nodes), (batch.canonical_etypes, batch.edges, empty.edges),
    ):  # fmt: skip
        for each in types:
            for name, values in found[each].data.items():
                made[each].data[name] = values[:0]
    no_graphs = torch.zeros(0, dtype=torch.int64)
    empty.set_batch_num_nodes(dict.fromkeys(batch.ntypes, no_graphs))
    empty.set_batch_num_edges(dict.fromkeys(batch.canonical_etypes, no_graphs))
    return empty


def opened(source: Any) -> tuple[Source, Any]:
    """Return what a source is, and its graphs by position: a store, or a dataset with a length and items.

    Graphs that are read in blocks alone, as those of an OGB folder, are written to a store that lives as long as the
    result does.
    """
    found = resolve(source)
    graphs = found.by_position()
    if isinstance(graphs, WithIds) and isinstance(graphs.dataset, StoredGraphs):
        # Stores fill ids anyway.
        graphs = graphs.dataset
    return found, _stored_for_now(found) if graphs is None else graphs


def schema_of(graphs: Any) -> Schema:
    """Return types, features and labels of graphs by position."""
    return graphs.schema if isinstance(graphs, _Stored) else Schema.of(graphs[0])


def part_of(graphs: Any, ids: Any) -> Any:
    """Return the graphs at some positions, in their order."""
    return graphs.subset(ids) if isinstance(graphs, _Stored) else torch.utils.data.Subset(graphs, ids.tolist())


def padded_view(graphs: Any, limits: Any, packs_per_batch: int, settings: Mapping[str, Any]) -> Any:
    """Return the view whose items are padded batches."""
    if isinstance(graphs, StoredGraphs):
        others = dict(settings)
        if others.pop("levels", None) is not None:
            raise SchemaError(
                "levels are told when a store is written, but a store is given; leave them out, or write the store "
                "again with levels=..."
            )
        for name in ("ties", "indices"):
            declared, asked = getattr(graphs.schema, name), others.pop(name, None)
            if asked is not None and asked != declared:
                raise SchemaError(
                    f"the store was written with {name}={dict(declared)!s:.200}, but {asked!s:.200} are given; leave "
                    f"them out, or write the store again with {name}=..."
                )
        of_graphs, of_batches = (others.pop(name, None) for name in ("transform", "batch_transform"))
        seed = others.pop("transform_seed", 0)
        given: Any = graphs if of_graphs is None else graphs.with_transform(of_graphs, seed)
        if of_graphs is not None:
            _refuse_those_of_stores(others)
        view = given.padded(limits, packs_per_batch, **others)
        return view if of_batches is None else view.with_transform(of_batches, seed)
    _refuse_those_of_stores(settings)
    if isinstance(graphs, TransformedStore):
        return graphs.padded(limits, packs_per_batch, **settings)
    # Batches have ids as those of a store have; ids of the dataset's own stay.
    example, ids = _example(graphs)
    return CollatedView(graphs, PaddedCollate(limits, example, packs_per_batch, **settings), ids)


def plain_view(graphs: Any, collate: Callable[[Any], Any] | None, settings: Mapping[str, Any]) -> Any:
    """Return the view whose items are batches without padding, by a collate of the caller's or by DGL's."""
    transform, others = settings.get("transform"), {n: v for n, v in settings.items() if not n.startswith("transform")}
    if transform is not None or not isinstance(graphs, StoredGraphs) or collate is not None:
        _refuse_those_of_stores(others)
    if transform is not None and isinstance(graphs, _Stored):
        if isinstance(graphs, TransformedStore):
            raise InputError("the store has a transform already; give it one of both, such as dgl.transforms.Compose.")
        graphs, transform = graphs.with_transform(transform, settings.get("transform_seed", 0)), None
    if collate is None and isinstance(graphs, _Stored):
        framework = "dgl" if graphs.schema.pyg is None or isinstance(graphs, TransformedStore) else "pyg"
        return graphs.batched(framework=framework, **others)
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


def _refuse_those_of_stores(settings: Mapping[str, Any]) -> None:
    """Refuse settings of views that copy whole stretches of a store."""
    for name in ("as_stored", "ring", "separate"):
        if name in settings:
            raise InputError(
                f"{name} is for batches that are copied from a store, not for a dataset, a transform of graphs or a "
                "collate_fn; leave it out, or write a store (GraphStore.write, also with pre_transform=)."
            )


def _stored_for_now(source: Source) -> GraphStore:
    if source.num_graphs() == 0:
        raise SizesError(f"{source.title} has no graphs; at least one is needed.")
    folder = _Folder()
    store = GraphStore.write(f"{folder.path}/store", source)
    # The folder lives as long as the store and its subsets, which share the attribute.
    store.__dict__["_folder"] = folder
    return store


class _Folder:
    """A temporary folder, which is removed when nothing refers to it any more, or when the process ends."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="dgl_tuplepack-")
        weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(path: str, process: int) -> None:
    # A worker that was forked has the object too, but the folder is its parent's.
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)
