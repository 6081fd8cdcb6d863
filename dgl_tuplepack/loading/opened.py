"""Open a source, and its splits, for a loader; lists may be copied to a store. Then make the views of its batches."""

from __future__ import annotations

import functools
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from dgl_tuplepack._core.checks import as_split, choice, shown
from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.progress import notice
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.collate import CollatedView, PaddedCollate
from dgl_tuplepack.errors import FormatError, GraphTooLargeError, InputError, SchemaError, SizesError
from dgl_tuplepack.graphs.build import chosen_from, ids_in
from dgl_tuplepack.graphs.build import schema_of as schema_of_example
from dgl_tuplepack.graphs.items import (
    Examples,
    Identified,
    WithIds,
    begins_with_pyg,
    parts_of,
    shape_index_of,
    taken_apart,
)
from dgl_tuplepack.graphs.named import counts_of, is_graph, is_pyg
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.readers.datasets import sizes_of_items
from dgl_tuplepack.graphs.readers.kinds import resolve, sizes_of
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.planning.buckets import Shapes, all_of, as_shapes
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.storage.graph_store import GraphStore, StoredGraphs, plan_file, refuse_store_settings
from dgl_tuplepack.storage.reader import temporary_store
from dgl_tuplepack.storage.selection import check_same_schema
from dgl_tuplepack.storage.view import GraphRows, pyg_builder, with_graph_ids

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Graphs:
    """Graphs that can be read by position, and their ids in batches."""

    # A store, or a dataset with a length and items.
    items: Any
    # int64 [N], positions in the user's source. Items that have ids of their own keep their own ids.
    ids: IntArray
    # Whether `items` is a temporary store of graphs that the user passed in another form.
    is_copy: bool = False
    # For PyG graphs: attribute -> level, set by the user.
    levels: Levels | None = None

    @property
    def schema(self) -> Schema:
        """Types, features and labels of the graphs."""
        return self.items.schema if isinstance(self.items, StoredGraphs) else schema_of_example(self.examples)

    @functools.cached_property
    def sizes(self) -> GraphSizes:
        """Sizes of the graphs."""
        return self.items.sizes if isinstance(self.items, StoredGraphs) else sizes_of(self.items, levels=self.levels)

    @functools.cached_property
    def histogram(self) -> SizeHistogram:
        """The histogram of the sizes, with the size class of each graph."""
        with notice(f"counting the sizes of {len(self.sizes):,} graphs", len(self.sizes)):
            return SizeHistogram.from_sizes(self.sizes)

    @property
    def examples(self) -> Examples:
        """The first item, and for each type, the first item that has nodes (edges) of it."""
        # For a type that no graph has, `argmax` returns 0.
        return Examples(self.items[i] for i in sorted({0, *(self.sizes.array > 0).argmax(axis=0).tolist()}))

    def identified(self) -> tuple[Examples, IntArray | str]:
        """Return the `examples` with ids, and the ids of all items: "own" if the items carry ids, else `ids`."""
        examples = self.examples
        if isinstance(examples[0], Identified):
            return examples, "own"
        own = parts_of(examples[0], "item 0").id
        # Examples only define a schema, so any id does.
        made = Examples(Identified(int(self.ids[0]) if own is None else own, item) for item in examples)
        return made, self.ids if own is None else "own"

    def split(self, ids: IntArray) -> Graphs:
        """Return the graphs at the positions `ids`; the graphs keep their ids."""
        is_stored = isinstance(self.items, StoredGraphs)
        items = self.items.split(ids) if is_stored else Subset(self.items, ids.tolist())
        split = Graphs(items, ids, self.is_copy, self.levels)
        split.__dict__["sizes"] = self.sizes.take(ids)
        return split


def opened(
    source: Any,
    in_memory: bool | None = False,
    is_plain: bool = False,
    declared: Mapping[str, Any] | None = None,
    found: Source | None = None,
) -> Graphs:
    """Return the graphs of a source; those that can only be read in blocks are written to a temporary store.

    For lists and datasets see `stored_copy`. `declared` holds ties, indices and levels for the store. With `is_plain`,
    a dataset is copied only if it holds graphs of PyG, or if a store makes the same batches of it as DGL's collate.
    """
    found = found or resolve(source)
    items = found.by_position()
    if isinstance(items, WithIds) and isinstance(items.dataset, StoredGraphs):
        # Batches of a store have ids anyway, so the wrapper is not needed.
        items = items.dataset
    if items is None:
        store: Any = temporary_store(found, **(declared or {}))
    elif isinstance(items, StoredGraphs):
        store = None
    else:
        allows = (lambda item: is_pyg(item) or is_collated_alike(item)) if is_plain else None
        store = stored_copy(items, in_memory, allows, declared or {}, found if items is source else None)
    items = items if store is None else store
    return Graphs(items, np.arange(len(items)), store is not None, (declared or {}).get("levels"))


def stored_copy(
    dataset: Any,
    in_memory: bool | None,
    allows: Callable[[Any], bool] | None = None,
    declared: Mapping[str, Any] = MappingProxyType({}),
    found: Source | None = None,
) -> GraphStore | None:
    """Copy a dataset to a temporary store; return None if it is not copied. `found` is the resolved dataset, if known.

    With `in_memory` None, copy a dataset that is known to repeat its items, if a store can hold them; True: any, or
    raise an error. A dataset cannot be copied if `allows` returns False for an item.
    """
    if in_memory is False or not (in_memory or (repeats_items(dataset) and len(dataset))):
        return None
    try:
        wrong = next((i for i in range(len(dataset)) if not allows(dataset[i])), None) if allows else None
        if wrong is not None:
            raise InputError(
                "a copy in memory needs items on the CPU, each a DGLGraph, a pair of a DGLGraph and an integer, a "
                f"tensor or a dict of them, or a PyG graph of tensors and numbers, but item {wrong} is "
                f"{shown(dataset[wrong])}; leave in_memory=True out."
            )
        store = temporary_store(found or resolve(dataset), **declared)
        _log.info("copied %d graphs to %s; in_memory=False reads them from the dataset", len(store), store.path)
        return store
    except InputError as error:
        # Some datasets cannot be copied: items may have ids that are not positions, or features that no store holds.
        if in_memory:
            raise
        if isinstance(error, FormatError):
            # The graphs could be copied, but the system failed.
            warnings.warn(
                f"the graphs could not be copied to a temporary store, so they are read one by one, which is far "
                f"slower: {error} To read them one by one without this warning, pass in_memory=False.",
                stacklevel=2,
            )
        _log.info("items are read one by one: %s", error)
        return None


def repeats_items(dataset: Any) -> bool:
    """Return whether a dataset is known to return the same item each time.

    Such datasets are lists, tuples, OGB's DGL datasets, PyG's in-memory datasets without a transform, and subsets.
    """
    while type(dataset) is WithIds or chosen_from(dataset) is not None:
        dataset = dataset.dataset
    ogb = sys.modules.get("ogb.graphproppred")
    if type(dataset) in (list, tuple, getattr(ogb, "DglGraphPropPredDataset", None)):
        return True
    if "torch_geometric.data" not in sys.modules:
        return False
    from dgl_tuplepack.graphs.readers.pyg_dataset import PygDataset

    return PygDataset.of_object(dataset) is not None


def is_collated_alike(item: Any) -> bool:
    """Return whether DGL's collate and a store make equal batches of items like `item`."""
    graph, label = item if isinstance(item, tuple | list) and len(item) == 2 else (item, 0)
    if not is_graph(graph) or graph.is_block or graph.batch_size != 1 or graph.device.type != "cpu":
        return False
    labels = label.values() if type(label) is dict and label else (label,)
    return all(isinstance(x, int) or (isinstance(x, Tensor) and x.device.type == "cpu") for x in labels)


def is_collated_alike_by_pyg(item: Any) -> bool:
    """Return whether PyG's collate and a store make equal batches of items like `item`."""
    if not is_pyg(item):
        return False
    values = [value for storage in item.stores for value in storage.values()]
    return all(type(value) in (Tensor, bool, int, float, type(None)) for value in values)


# The split that ``shuffle=True`` shuffles.
_TRAINING = "train"


def plans_of(plan: object, splits: Mapping[str, Graphs]) -> Mapping[str, PackPlan]:
    """Return `plan`, the user's plans by split name; an empty dict if it is None."""
    if plan is None:
        return {}
    if not isinstance(plan, Mapping):
        raise InputError(f"with splits, plan must be a mapping from split names to plans, but is {shown(plan)}.")
    for name in plan:
        choice("split in plan", name, splits)
    return plan


def plans_of_stores(splits: Mapping[str, Graphs]) -> dict[str, PackPlan]:
    """Return the plans that `preprocess` wrote into the stores of the splits; {} if one lacks a plan for its graphs."""
    plans = {}
    for name, graphs in splits.items():
        # A `GraphStore` has one segment, whose attribute `data` is the folder of arrays and plans.
        file = plan_file(graphs.items.segments[0].data, name) if isinstance(graphs.items, GraphStore) else None
        if file is None or not file.exists():
            return {}
        plan = PackPlan.load(file)
        # The user's split may share its name with a split of the store, but have other graphs.
        if plan.histogram != graphs.histogram.without_ids():
            return {}
        plans[name] = plan
    return plans


def splits_of(
    source: Any,
    splits: Mapping[str, Any] | Literal[True],
    in_memory: bool | None,
    is_plain: bool,
    declared: Mapping[str, Any],
) -> dict[str, Graphs]:
    """Return the graphs of each split, by name; for `in_memory`, `is_plain` and `declared` see `opened`.

    `splits` maps names to ids; True: the splits that the source defines, or the sources of a mapping.
    """
    if isinstance(source, Mapping):
        if splits is not True:
            raise InputError(
                "source is a mapping of sources, one for each split, but splits= defines splits too; give splits=True."
            )
        by_name = sources_of(source, in_memory, is_plain, declared)
        # Batches without padding have no shape that splits could share, and DGL may collate labels that no schema has.
        if not is_plain:
            _check_same(by_name)
        return by_name
    found = resolve(source)
    graphs = opened(source, in_memory, is_plain, declared, found)
    chosen = found.splits() if splits is True else splits
    if not isinstance(chosen, Mapping):
        raise InputError(f"splits must be a mapping of names to ids, True or None, but is {shown(splits)}.")
    if not chosen:
        raise SizesError(
            f"no splits are defined for {found.title}; give splits={{'train': ids, ...}}, or None for all graphs."
        )
    ids_by_name = {name: as_split(ids_in(source, ids), len(graphs.sizes)) for name, ids in chosen.items()}
    empty = [name for name, ids in ids_by_name.items() if not len(ids)]
    if empty:
        raise SizesError(f"the split {shown(empty[0])} has no graphs; give splits= without it.")
    return {name: graphs.split(ids) for name, ids in ids_by_name.items()}


def sources_of(
    source: Mapping[Any, Any], in_memory: bool | None, is_plain: bool, declared: Mapping[str, Any]
) -> dict[str, Graphs]:
    """Return the graphs of each source of a mapping, by name; for the arguments see `opened`."""
    if not source:
        raise SizesError("the mapping of sources is empty; give at least one source.")
    wrong = [name for name in source if not isinstance(name, str)]
    if wrong:
        raise InputError(f"the names in a mapping of sources must be strings, but one is {shown(wrong[0])}.")
    found = {name: opened(each, in_memory, is_plain, declared) for name, each in source.items()}
    for name, graphs in found.items():
        if not len(graphs.ids):
            raise SizesError(f"the source {name!r} of the mapping has no graphs; leave it out.")
    return found


def _check_same(splits: Mapping[str, Graphs]) -> None:
    """Raise SchemaError if splits differ in types, features or labels; outside a store, check only first graphs."""
    schemas = {name: graphs.schema for name, graphs in splits.items()}
    (first, expected), *others = schemas.items()
    compared = ("graph_names", "node_types", "edge_types", "node_features", "edge_features", "labels")
    reason = "all splits need the same schema, since their batches have one shape"
    for name, found in others:
        check_same_schema(expected, found, repr(first), repr(name), compared, reason)


def shuffled_of(shuffle: object, splits: Mapping[str, Graphs]) -> tuple[str, ...]:
    """Return the names of the splits to shuffle."""
    if not isinstance(shuffle, tuple | list | set | frozenset):
        if not isinstance(shuffle, bool):
            raise InputError(
                f"shuffle must be True, False, or names of splits such as ('train',), but is {shown(shuffle)}."
            )
        if not shuffle:
            return ()
        if _TRAINING not in splits:
            raise InputError(
                f"no split is called {_TRAINING!r}, so it is unclear which splits to shuffle; the splits are "
                f"{', '.join(map(repr, splits))}: give shuffle=(name,), or False for none."
            )
        return (_TRAINING,)
    for name in shuffle:
        choice("split in shuffle", name, splits)
    return tuple(shuffle)


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
    """Collate items as DGL or PyG does, without padding.

    An empty list gives a batch without graphs, which has the types, features and labels of the examples.
    """

    def __init__(self, examples: Examples) -> None:
        self.is_pyg = begins_with_pyg(examples[0])
        self.examples = examples if self.is_pyg else [_unwrapped(example) for example in examples]
        self._collate = _pyg_batch if self.is_pyg else load("dgl.dataloading").GraphCollator().collate

    def __call__(self, items: Iterable[Any]) -> Any:
        """Return the batched graph, and the stacked labels and ids if items have them; for PyG, the batch alone."""
        items = list(items) if self.is_pyg else list(map(_unwrapped, items))
        if items:
            return self._collate(items)
        return _empty_pyg_batch(self.examples) if self.is_pyg else _emptied(self._collate(self.examples))


def _pyg_batch(items: Sequence[Any]) -> Any:
    """Return the PyG batch of items, with `graph_ids` if the items have ids."""
    graphs = [item.item if isinstance(item, Identified) else item for item in items]
    batch = load("torch_geometric.data").Batch.from_data_list(graphs)
    if isinstance(items[0], Identified):
        return with_graph_ids(batch, torch.tensor([item.id for item in items]))
    return batch


def _empty_pyg_batch(examples: Any) -> Any:
    """Return a PyG batch without graphs, with the attributes of the examples."""
    schema = schema_of_example(Examples(examples))
    types, none = len(schema.types) + 1, torch.zeros(0, dtype=torch.int64)
    ids = none.numpy()
    rows = GraphRows(ids, ids, ids, np.zeros((types, 3, 0), np.int64), np.zeros(types, np.int64))
    ends = [torch.zeros(2, 0, dtype=schema.idtype) for _ in schema.edge_types]
    values = [spec.filled(0, 0) for _, spec in schema.columns()]
    batch = pyg_builder(schema)(rows, [0] * types, [*ends, *values])
    return with_graph_ids(batch, none) if schema.has_ids else batch


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


def collated_within(
    graphs: Graphs, limits: Shapes, packs_per_batch: int,
    collate: Callable[[Any], Any], items: Sequence[Any], positions: Sequence[int],
) -> Any:  # fmt: skip
    """Return the batch; GraphTooLargeError names an item that has grown, if the batch exceeds the limits."""
    try:
        batch = collate(items)
    except GraphTooLargeError:
        _refuse_growth(graphs, items, positions, None)
        raise
    if not items or isinstance(batch, PaddedBatch):
        return batch
    shape, graph = shape_index_of(positions), batch[0] if isinstance(batch, tuple | list) and batch else batch
    limits_of_shape = all_of(as_shapes(limits))[-1 if shape is None else shape]
    most, total = packs_per_batch * np.array(limits_of_shape.values), []
    # Reading the size of each item takes as long as `dgl.batch`, so look at the batch first.
    if is_pyg(graph):
        total = [graph.num_nodes, graph.num_edges]
    elif is_graph(graph):
        total = [*counts_of(graph).values()]
    if len(total) != len(most) or (np.array(total) > most).any():
        _refuse_growth(graphs, items, positions, most)
    return batch


def _refuse_growth(graphs: Graphs, items: Sequence[Any], positions: Sequence[int], most: IntArray | None) -> None:
    """Raise GraphTooLargeError if items have grown, and their total exceeds `most`, if given."""
    now, counted = sizes_of_items(items, graphs.levels).array, graphs.sizes.array[list(positions)]
    growth = (now - counted).max(axis=1)
    worst = int(growth.argmax())
    if growth[worst] > 0 and (most is None or (now.sum(axis=0) > most).any()):
        names = graphs.sizes.components
        before, after = (", ".join(map("{} {}".format, sizes[worst], names)) for sizes in (counted, now))
        raise GraphTooLargeError(
            f"item {graphs.ids[positions[worst]]} had {before} when sizes were counted, but {after} when it was read "
            f"again; {(growth > 0).sum()} of the {len(items)} items of this batch have grown, so it exceeds the "
            "limits. Let the dataset return the same sizes each time, and give random crops or edge dropout as "
            "transform=..., or freeze the items by in_memory=True."
        )
