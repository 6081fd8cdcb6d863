"""The call that makes a loader, or one loader per split, all of one shape."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, Unpack, overload

from dgl_tuplepack._core.checks import as_ids, choice, shown, true_or_false
from dgl_tuplepack.errors import InputError, SizesError
from dgl_tuplepack.graphs.readers.sizes_of import sizes_of
from dgl_tuplepack.loading.choice import Choice, Request, choose
from dgl_tuplepack.loading.packed_loader import PackedLoader
from dgl_tuplepack.loading.settings import LoaderSettings, Settings
from dgl_tuplepack.loading.views import opened, padded_view, plain_view, schema_of, subset_of
from dgl_tuplepack.planning.buckets import Shapes
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import GraphSizes
from dgl_tuplepack.sampling.batches import PackBatchSampler
from dgl_tuplepack.storage.selection import check_same_schema

# Graphs of a split, and their sizes.
Split = tuple[Any, GraphSizes]

# The name of the only split if all graphs go to one loader.
_ALL = ""
# The split that is shuffled by default.
_TRAINING = "train"
# Settings of the sampler that also apply to splits in fixed order.
_OF_ALL_SPLITS = ("num_replicas", "rank")


@overload
def packed_loader(
    source: Any,
    graphs_per_batch: int | None = ...,
    *,
    splits: None = ...,
    shuffle: bool = ...,
    padded: bool = ...,
    limits: Shapes | None = ...,
    plan: PackPlan | None = ...,
    packs_per_batch: int | None = ...,
    shapes: int | None = ...,
    multiple_of: int = ...,
    seed: int = ...,
    oversize: str = ...,
    **settings: Unpack[LoaderSettings],
) -> PackedLoader: ...


@overload
def packed_loader(
    source: Any,
    graphs_per_batch: int | None = ...,
    *,
    splits: Mapping[str, Any] | Literal[True],
    shuffle: bool | Collection[str] = ...,
    padded: bool = ...,
    limits: Shapes | None = ...,
    plan: Mapping[str, PackPlan] | None = ...,
    packs_per_batch: int | None = ...,
    shapes: int | None = ...,
    multiple_of: int = ...,
    seed: int = ...,
    oversize: str = ...,
    **settings: Unpack[LoaderSettings],
) -> dict[str, PackedLoader]: ...


def packed_loader(
    source: Any,
    graphs_per_batch: int | None = None,
    *,
    splits: Mapping[str, Any] | Literal[True] | None = None,
    shuffle: bool | Collection[str] = True,
    padded: bool = True,
    limits: Shapes | None = None,
    plan: PackPlan | Mapping[str, PackPlan] | None = None,
    packs_per_batch: int | None = None,
    shapes: int | None = None,
    multiple_of: int = 1,
    seed: int = 0,
    oversize: str = "error",
    **settings: Unpack[LoaderSettings],
) -> PackedLoader | dict[str, PackedLoader]:
    """Make a loader of batches that hold `graphs_per_batch` graphs on average, and choose everything else.

    Parameters
    ----------
    source
        A list or dataset of DGLGraph, (DGLGraph, label) or (DGLGraph, label, id), a subset of one, or
        ``with_ids(dataset)``; a `GraphStore`, a `MultiStore` or a subset; or the path of a store, of a dataset of
        shards, of a ``.bin`` file or of an OGB folder. An iterator is read into a list. An OGB folder is written to a
        temporary store, which is removed with the loader (`preprocess` writes a permanent one). With ``splits=True``
        also a mapping of names of splits to sources.
    graphs_per_batch
        Mean number of graphs per batch, which corresponds to `batch_size`. Limits and the number of packs are chosen to
        meet it to within 5 %, if whole packs allow it; ``loader.graphs_per_batch`` is the exact mean. With fewer graphs
        than that, there is one batch. With splits, it applies to the shuffled splits; batches of the other splits have
        the same shape, and hold as many graphs as fit.
    splits
        None: one loader for all graphs. A mapping of names to ids: one loader per split; all batches have one shape.
        True: the splits of the source, as stores, OGB folders, OGB datasets and mappings of sources have them.
    shuffle
        Whether batches come in random order, with different content in each epoch (see `content`). With splits, True
        shuffles the split "train", which must exist; a tuple of names shuffles those. The other splits are read
        completely, in the order of their plans, and `content`, `replan_every` and `drop_last` do not apply to them.
    padded
        Whether batches are `PaddedBatch` of one static shape, with the positions of graphs as ``graph_ids`` (unless
        items have their own ids). False: batches without padding, as from DGL's collate, that never exceed the limits.
    limits
        Limits of a pack; None: search them. A list of two to four limits in ascending order gives shape buckets: each
        batch has one of these shapes. With `graphs_per_batch`, the number of packs is chosen to meet it.
    plan
        A plan for exactly these graphs; None: make one. With splits, a mapping of their names to plans, such as the
        plans of `preprocess`; missing plans are made.
    packs_per_batch
        Packs per batch, >= 1. None: chosen; with searched limits it is 2, if two packs can hold every graph.
    shapes
        2 to 4: search that many shape buckets; each batch has one of these shapes. Use it for smaller batches than the
        largest graph allows with one shape.
    multiple_of
        With searched limits, the padded shape of a pack is a multiple of this number.
    seed
        0..2**64-1: seed of plan and batches.
    oversize
        What to do with graphs that are larger than a pack: "error", or "drop" (with a warning).
    settings
        Settings that are passed on: content, num_replicas, rank, drop_last and replan_every to `PackBatchSampler`;
        label_fill, feature_fill, cover_padding, idtype, coordinates, sort_edges, transform, batch_transform,
        transform_seed, ties, indices, levels, as_stored and separate to `PaddedCollate` or `GraphStore.padded`;
        num_workers, pin_memory, timeout, worker_init_fn, multiprocessing_context, generator, prefetch_factor,
        persistent_workers, pin_memory_device and in_order to torch's DataLoader. With ``padded=False``, only
        `transform`, `transform_seed` and `as_stored` apply to batches, and `collate_fn` may replace DGL's collate.

    Returns
    -------
    PackedLoader or dict
        A DataLoader with `set_epoch`, `state_dict`, `load_state_dict` and the attributes limits, plan, sampler,
        packs_per_batch, graphs_per_batch, view, collate and search. With splits, a dict of names to loaders.

    Raises
    ------
    SearchError
        The largest graph does not allow so few graphs per batch; the message gives the smallest number.
    InputError
        A setting is unknown, settings contradict each other, a padded loader gets a `collate_fn`, or `shuffle` or
        `plan` names a split that does not exist.
    SizesError, SchemaError, FormatError, LimitsError, PlanError, SamplerError
        As in `sizes_of`, `PaddedCollate` and `PackBatchSampler`. SizesError also if the source has no splits, or a
        split is empty; SchemaError also if splits differ in the types, features or labels of their graphs.

    Examples
    --------
    >>> import dgl
    >>> graphs = [dgl.rand_graph(n, 2 * n) for n in range(3, 43)]
    >>> loader = packed_loader(graphs, graphs_per_batch=10)
    >>> for epoch in range(2):
    ...     loader.set_epoch(epoch)
    ...     shapes = {(batch.graph.num_nodes(), batch.graph.num_edges()) for batch in loader}
    >>> len(loader), loader.graphs_per_batch, len(shapes)
    (4, 10.0, 1)
    >>> loaders = packed_loader(graphs, 10, splits={"train": range(30), "valid": range(30, 40)})
    >>> loaders["train"].limits == loaders["valid"].limits
    True
    """
    padded = true_or_false("padded", padded, InputError)
    passed_on = Settings.of(settings, padded)
    levels = passed_on.batch.get("levels")
    by_name: dict[str, Split]
    shuffled: Collection[str]
    if splits is None:
        _, graphs = opened(source)
        by_name = {_ALL: (graphs, sizes_of(graphs, levels=levels))}
        shuffled = (_ALL,) if true_or_false("shuffle", shuffle, InputError) else ()
        plans: Any = {} if plan is None else {_ALL: plan}
    else:
        by_name = _splits_of(source, splits, levels)
        shuffled, plans = _shuffled(shuffle, by_name), _plans_of(plan, by_name)
    request = Request(graphs_per_batch, limits, packs_per_batch, plans, multiple_of, seed, oversize, shapes)
    loaders = _loaders(by_name, shuffled, padded, request, passed_on)
    return loaders[_ALL] if splits is None else loaders


def _plans_of(plan: object, splits: Mapping[str, Split]) -> Mapping[str, PackPlan]:
    """Return the plans that are given by name of the split."""
    if plan is None:
        return {}
    if not isinstance(plan, Mapping):
        raise InputError(f"with splits, plan must be a mapping of names of splits to plans, but is {shown(plan)}.")
    for name in plan:
        choice("split in plan", name, splits)
    return plan


def _splits_of(source: Any, splits: Mapping[str, Any] | Literal[True], levels: Any) -> dict[str, Split]:
    """Return the graphs and sizes of each split; for PyG graphs, `levels` gives what attributes belong to."""
    if isinstance(source, Mapping):
        if splits is not True:
            raise InputError(
                "source is a mapping of sources, which are the splits already, but splits has others; give splits=True."
            )
        if not source:
            raise SizesError("a mapping of sources needs at least one, but has none.")
        wrong = [name for name in source if not isinstance(name, str)]
        if wrong:
            raise InputError(f"names of splits must be strings, but one is {shown(wrong[0])}.")
        graphs_by_name = {name: opened(each)[1] for name, each in source.items()}
        sized = {name: (graphs, sizes_of(graphs, levels=levels)) for name, graphs in graphs_by_name.items()}
        _check_same(sized)
        return sized
    found, graphs = opened(source)
    chosen = found.splits() if splits is True else splits
    if not isinstance(chosen, Mapping):
        raise InputError(f"splits must be a mapping of names to ids, True or None, but is {shown(splits)}.")
    if not chosen:
        raise SizesError(f"{found.title} has no splits; give splits={{'train': ids, ...}}, or None for all graphs.")
    sizes = sizes_of(graphs, levels=levels)
    ids_by_name = {name: as_ids(ids, len(sizes)) for name, ids in chosen.items()}
    empty = [name for name, ids in ids_by_name.items() if not len(ids)]
    if empty:
        raise SizesError(f"the split {shown(empty[0])} has no graphs; give splits= without it.")
    return {name: (subset_of(graphs, ids), sizes.take(ids)) for name, ids in ids_by_name.items()}


def _check_same(splits: Mapping[str, Split]) -> None:
    """Raise SchemaError if the first graphs of the splits differ in types, features or labels."""
    schemas = {name: schema_of(graphs) for name, (graphs, _) in splits.items()}
    (first, expected), *others = schemas.items()
    compared = ("graph_names", "node_types", "edge_types", "node_features", "edge_features", "labels")
    reason = "all splits must have the same, since their batches have one shape"
    for name, found in others:
        check_same_schema(expected, found, repr(first), repr(name), compared, reason)


def _shuffled(shuffle: object, splits: Mapping[str, Split]) -> tuple[str, ...]:
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


def _loaders(
    splits: Mapping[str, Split], shuffled: Collection[str], padded: bool, request: Request, settings: Settings
) -> dict[str, PackedLoader]:
    """Return the loader of each split, all with one shape."""
    leading = tuple(shuffled) or tuple(splits)
    choice = choose({name: sizes for name, (_, sizes) in splits.items()}, leading, request)
    return {
        name: _loader(split, name, name in shuffled, padded, choice, request, settings, leads=name in leading)
        for name, split in splits.items()
    }


def _loader(
    split: Split, name: str, shuffle: bool, padded: bool, choice: Choice, request: Request, settings: Settings,
    leads: bool,
) -> PackedLoader:  # fmt: skip
    """Return the loader of one split; with `leads`, all settings of the sampler apply to it."""
    graphs, sizes = split
    given = {key: value for key, value in settings.sampler.items() if leads or key in _OF_ALL_SPLITS}
    # A sampler that makes the later plans makes the first one too.
    replans = given.get("content") == "repack" or given.get("replan_every") is not None
    sampler = PackBatchSampler(
        sizes,
        choice.limits,
        plan=None if replans and name not in request.plans else choice.plans[name],
        packs_per_batch=choice.packs_per_batch,
        shuffle=shuffle,
        seed=request.seed,
        oversize=request.oversize,
        **given,
    )
    if padded:
        view = padded_view(graphs, sampler.limits, choice.packs_per_batch, settings.batch)
    else:
        view = plain_view(graphs, settings.collate, settings.batch)
    return PackedLoader(view, sampler, padded=padded, search=choice.search, **settings.loader)
