"""The splits of a source, their plans, and the choice of splits to shuffle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dgl_tuplepack._core.checks import as_split, choice, shown
from dgl_tuplepack.errors import InputError, SizesError
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.graphs.subsets import ids_in
from dgl_tuplepack.loading.opened import Graphs, opened
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.storage.graph_store import GraphStore
from dgl_tuplepack.storage.plans import plan_file
from dgl_tuplepack.storage.selection import check_same_schema

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
    """Return the plans that `preprocess` wrote into the stores of the splits, by split name.

    Return an empty dict if any split has no plan for exactly its graphs.
    """
    plans = {}
    for name, graphs in splits.items():
        # A `GraphStore` has one segment, whose attribute `data` is the folder of arrays and plans.
        file = plan_file(graphs.items.segments[0].data, name) if isinstance(graphs.items, GraphStore) else None
        if file is None or not file.exists():
            return {}
        plan = PackPlan.load(file)
        # The user's split may share its name with a split of the store, but have other graphs.
        if plan.histogram != SizeHistogram.from_sizes(graphs.sizes).without_ids():
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
    """Return the graphs of each split, by name.

    `source` is a mapping from split names to sources, or one source. For one source, `splits` maps names to ids; True:
    the splits that the source defines. For `in_memory`, `is_plain` and `declared` see `opened`.
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
    graphs = opened(found, in_memory, is_plain, declared)
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
    """Raise SchemaError if splits differ in types, features or labels.

    If the graphs of a split are not in a store, only the first of them is checked.
    """
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
