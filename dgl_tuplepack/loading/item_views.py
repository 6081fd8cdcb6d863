"""Views that make the batches of a loader, padded or as DGL collates them, and notice items that have grown."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.collate import CollatedView, PaddedCollate
from dgl_tuplepack.errors import GraphTooLargeError, InputError, SchemaError
from dgl_tuplepack.graphs.items import Examples, Identified, begins_with_pyg, shape_index_of, taken_apart
from dgl_tuplepack.graphs.named import counts_of, is_graph, is_pyg
from dgl_tuplepack.graphs.readers.datasets import sizes_of_items
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.loading.opened import Graphs
from dgl_tuplepack.planning.buckets import Shapes, all_of, as_shapes
from dgl_tuplepack.planning.sizes import IntArray
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
    return CollatedView(graphs, functools.partial(_transform_and_collate, collate, graph_transform, keeps_ids), ids)


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


def _transform_and_collate(
    collate: Callable[[Any], Any], transform: GraphTransform, keeps_ids: bool, items: Sequence[Any]
) -> Any:
    return collate(transformed(items, transform, keeps_ids))


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
    none = torch.zeros(0, dtype=batch.idtype)
    empty = load("dgl").node_subgraph(batch, dict.fromkeys(batch.ntypes, none), store_ids=False)
    empty.set_batch_num_nodes(dict.fromkeys(batch.ntypes, none.long()))
    empty.set_batch_num_edges(dict.fromkeys(batch.canonical_etypes, none.long()))
    return empty


@dataclass(frozen=True)
class CountedSizes:
    """The counted sizes of graphs, and the limits of their batches."""

    graphs: Graphs
    limits: Shapes
    packs_per_batch: int

    def collated(self, collate: Callable[[Any], Any], items: Sequence[Any], positions: Sequence[int]) -> Any:
        """Return the batch; GraphTooLargeError names an item that has grown, if the batch exceeds the limits."""
        try:
            batch = collate(items)
        except GraphTooLargeError:
            self._refuse_growth(items, positions, None)
            raise
        if not items or isinstance(batch, PaddedBatch):
            return batch
        shape, graph = shape_index_of(positions), batch[0] if isinstance(batch, tuple | list) and batch else batch
        limits = all_of(as_shapes(self.limits))[-1 if shape is None else shape]
        most, total = self.packs_per_batch * np.array(limits.values), []
        # Reading the size of each item takes as long as `dgl.batch`, so look at the batch first.
        if is_pyg(graph):
            total = [graph.num_nodes, graph.num_edges]
        elif is_graph(graph):
            total = [*counts_of(graph).values()]
        if len(total) != len(most) or (np.array(total) > most).any():
            self._refuse_growth(items, positions, most)
        return batch

    def _refuse_growth(self, items: Sequence[Any], positions: Sequence[int], most: IntArray | None) -> None:
        """Raise GraphTooLargeError if items have grown, and their total exceeds `most`, if given."""
        sizes = self.graphs.sizes
        now, counted = sizes_of_items(items, self.graphs.levels).array, sizes.array[list(positions)]
        growth = (now - counted).max(axis=1)
        worst = int(growth.argmax())
        if growth[worst] > 0 and (most is None or (now.sum(axis=0) > most).any()):
            before, after = (", ".join(map("{} {}".format, row[worst], sizes.components)) for row in (counted, now))
            raise GraphTooLargeError(
                f"item {self.graphs.ids[positions[worst]]} had {before} when sizes were counted, but {after} when it "
                f"was read again; {(growth > 0).sum()} of the {len(items)} items of this batch have grown, so it "
                "exceeds the limits. Let the dataset return the same sizes each time, and give random crops or edge "
                "dropout as transform=..., or freeze the items by in_memory=True."
            )
