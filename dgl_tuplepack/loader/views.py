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
from dgl_tuplepack.errors import SchemaError, SizesError
from dgl_tuplepack.graphs.items import BatchItems, Identified, WithIds, epoch_of, shape_of
from dgl_tuplepack.graphs.schema import Schema
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
    with_ids
        Whether `collate` gets items with their positions as ids.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], with_ids: bool = False) -> None:
        self.dataset, self.collate, self.with_ids = dataset, collate, with_ids

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, ids: Sequence[int]) -> Any:
        several, epoch = getattr(self.dataset, "__getitems__", None), epoch_of(ids)
        items = several(ids) if several is not None and len(ids) else [self.dataset[i] for i in ids]
        if self.with_ids:
            items = [Identified(i, item, epoch) for i, item in zip(ids, items, strict=True)]
        else:
            # A subset of `with_ids` does not hand the epoch on.
            items = [replace(item, epoch=epoch) if isinstance(item, Identified) else item for item in items]
        shape = shape_of(ids)
        return self.collate(items if shape is None else BatchItems(items, shape))


class PlainCollate:
    """Collate items as DGL does, without padding; no items give a batch of no graphs, with the types of `example`."""

    def __init__(self, example: Any) -> None:
        self._collate = load("dgl.dataloading").GraphCollator().collate
        self.example = example

    def __call__(self, items: Iterable[Any]) -> Any:
        """Return the batched graph, and whatever else items have, stacked."""
        items = list(map(_unwrapped, items))
        return self._collate(items) if items else _emptied(self._collate([_unwrapped(self.example)]))


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
    if isinstance(graphs, TransformedStore):
        return graphs.padded(limits, packs_per_batch, **settings)
    if isinstance(graphs, StoredGraphs):
        others = dict(settings)
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
        view = given.padded(limits, packs_per_batch, **others)
        return view if of_batches is None else view.with_transform(of_batches, seed)
    # Batches have ids as those of a store have; ids of the dataset's own stay.
    example, with_ids = graphs[0], not schema_of(graphs).has_ids
    collate = PaddedCollate(limits, Identified(0, example) if with_ids else example, packs_per_batch, **settings)
    return CollatedView(graphs, collate, with_ids)


def plain_view(graphs: Any, collate: Callable[[Any], Any] | None) -> Any:
    """Return the view whose items are batches without padding, by a collate of the caller's or by DGL's."""
    if collate is None and isinstance(graphs, StoredGraphs):
        batched: Any = getattr(graphs, "batched")  # noqa: B009
        return batched()
    return CollatedView(graphs, PlainCollate(graphs[0]) if collate is None else collate)


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
