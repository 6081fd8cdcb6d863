"""Open a source, and its splits, for a loader, which reads graphs by position. Lists may be copied to a store."""

from __future__ import annotations

import functools
import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from torch import Tensor
from torch.utils.data import Subset

from dgl_tuplepack._core.checks import as_split, choice, shown
from dgl_tuplepack._core.progress import notice
from dgl_tuplepack.errors import FormatError, InputError, SizesError
from dgl_tuplepack.graphs.items import Examples, Identified, WithIds, parts_of
from dgl_tuplepack.graphs.named import is_graph, is_pyg
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.readers.kinds import resolve, sizes_of
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.graphs.subsets import chosen_from, ids_in
from dgl_tuplepack.graphs.subsets import schema_of as schema_of_example
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.storage.graph_store import GraphStore, StoredGraphs, plan_file
from dgl_tuplepack.storage.reader import temporary_store
from dgl_tuplepack.storage.selection import check_same_schema

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
                "in_memory=True needs items on the CPU, each a DGLGraph, a pair (DGLGraph, integer or tensor), or a "
                f"PyG graph of tensors and numbers, but item {wrong} is {shown(dataset[wrong])}; leave in_memory out."
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
    return isinstance(label, int) or (isinstance(label, Tensor) and label.device.type == "cpu")


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
        if not source:
            raise SizesError("the mapping of sources is empty; give at least one source.")
        wrong = [name for name in source if not isinstance(name, str)]
        if wrong:
            raise InputError(f"names of splits must be strings, but one is {shown(wrong[0])}.")
        by_name = {name: opened(each, in_memory, is_plain, declared) for name, each in source.items()}
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
