"""The two calls: make one loader, or a loader for each split, all of one shape."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dgl_tuplepack._core.checks import as_ids, choice, shown, true_or_false
from dgl_tuplepack.errors import InputError, SizesError
from dgl_tuplepack.graphs.readers.sizes_of import sizes_of
from dgl_tuplepack.loading.choice import Choice, Request, choose
from dgl_tuplepack.loading.packed_loader import PackedLoader, Settings
from dgl_tuplepack.loading.views import opened, padded_view, part_of, plain_view, schema_of
from dgl_tuplepack.planning.buckets import Shapes
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import GraphSizes
from dgl_tuplepack.sampling.batches import PackBatchSampler
from dgl_tuplepack.storage.selection import check_same_schema

# Graphs of a split, and their sizes.
Split = tuple[Any, GraphSizes]

# The split that is shuffled by default.
_TRAINING = "train"
# Settings of the sampler that also apply to splits in fixed order.
_OF_ALL_SPLITS = ("num_replicas", "rank")


def packed_loader(
    source: Any,
    graphs_per_batch: int | None = None,
    *,
    shuffle: bool = True,
    num_workers: int = 0,
    padded: bool = True,
    limits: Shapes | None = None,
    packs_per_batch: int | None = None,
    plan: PackPlan | None = None,
    multiple_of: int = 1,
    seed: int = 0,
    oversize: str = "error",
    shapes: int | None = None,
    **settings: Any,
) -> PackedLoader:
    """Make a loader of batches that hold `graphs_per_batch` graphs on average, and choose everything else.

    Parameters
    ----------
    source
        A list or dataset of DGLGraph, (DGLGraph, label) or (DGLGraph, label, id), a subset of one, or
        ``with_ids(dataset)``; a `GraphStore`, a `MultiStore` or a subset; or the path of a store, of a dataset of
        shards, of a ``.bin`` file or of an OGB folder. An iterator is read into a list. An OGB folder is written to a
        temporary store, which is removed with the loader (`preprocess` writes a permanent one).
    graphs_per_batch
        Mean number of graphs per batch, which corresponds to `batch_size`. Limits and the number of packs are chosen to
        meet it to within 5 %, if whole packs allow it; ``loader.graphs_per_batch`` is the exact mean. With fewer graphs
        than that, there is one batch.
    shuffle
        Whether batches come in random order, with different content in each epoch (see `content`).
    num_workers
        Processes that make batches; 0: the main process.
    padded
        Whether batches are `PaddedBatch` of one static shape, with the positions of graphs as ``graph_ids`` (unless
        items have their own ids). False: batches without padding, as from DGL's collate, that never exceed the limits.
    limits
        Limits of a pack; None: search them. A list of two to four limits in ascending order gives shape buckets: each
        batch has one of these shapes. With `graphs_per_batch`, the number of packs is chosen to meet it.
    packs_per_batch
        Packs per batch, >= 1. None: chosen; with searched limits it is 2, if two packs can hold every graph.
    plan
        A plan for exactly these graphs; None: make one.
    multiple_of
        With searched limits, the padded shape of a pack is a multiple of this number.
    seed
        0..2**64-1: seed of plan and batches.
    oversize
        What to do with graphs that are larger than a pack: "error", or "drop" (with a warning).
    shapes
        2 to 4: search that many shape buckets; each batch has one of these shapes. Use it for smaller batches than the
        largest graph allows with one shape.
    settings
        Other settings of `PackBatchSampler` (content, num_replicas, rank, drop_last, replan_every), of `PaddedCollate`
        and `GraphStore.padded` (label_fill, coordinates, sort_edges, ...), and of torch's DataLoader (pin_memory,
        persistent_workers, ...). With ``padded=False``, `transform`, `transform_seed` and `as_stored` are allowed, and
        `collate_fn` may replace DGL's collate.

    Returns
    -------
    PackedLoader
        A DataLoader with `set_epoch` and the attributes limits, plan, sampler, view, collate and search.

    Raises
    ------
    SearchError
        The largest graph does not allow so few graphs per batch; the message gives the smallest number.
    InputError
        A setting is unknown, settings contradict each other, or a padded loader gets a `collate_fn`.
    SizesError, SchemaError, FormatError, LimitsError, PlanError, SamplerError
        As in `sizes_of`, `PaddedCollate` and `PackBatchSampler`.

    Examples
    --------
    >>> import dgl
    >>> loader = packed_loader([dgl.rand_graph(n, 2 * n) for n in range(3, 43)], graphs_per_batch=10)
    >>> for epoch in range(2):
    ...     loader.set_epoch(epoch)
    ...     shapes = {(batch.graph.num_nodes(), batch.graph.num_edges()) for batch in loader}
    >>> len(loader), loader.graphs_per_batch, len(shapes)
    (4, 10.0, 1)
    """
    shuffle = true_or_false("shuffle", shuffle, InputError)
    plans = {} if plan is None else {"": plan}
    sorted_settings = Settings.of({"num_workers": num_workers, **settings}, true_or_false("padded", padded, InputError))
    request = Request(graphs_per_batch, limits, packs_per_batch, plans, multiple_of, seed, oversize, shapes)
    _, graphs = opened(source)
    sizes = sizes_of(graphs, levels=sorted_settings.batch.get("levels"))
    return _loaders({"": (graphs, sizes)}, ("",) if shuffle else (), padded, request, sorted_settings)[""]


def packed_loaders(
    source: Any,
    graphs_per_batch: int | None = None,
    *,
    splits: Mapping[str, Any] | None = None,
    shuffle: Collection[str] | None = None,
    num_workers: int = 0,
    padded: bool = True,
    limits: Shapes | None = None,
    packs_per_batch: int | None = None,
    plans: Mapping[str, PackPlan] | None = None,
    multiple_of: int = 1,
    seed: int = 0,
    oversize: str = "error",
    shapes: int | None = None,
    **settings: Any,
) -> dict[str, PackedLoader]:
    """Make a loader for each split; the batches of all loaders have one shape.

    Parameters
    ----------
    source
        One source, which has splits or gets them from `splits`; or a mapping of split names to sources.
    graphs_per_batch
        As in `packed_loader`, for the shuffled splits. Batches of the other splits have the same shape, and hold as
        many graphs as fit.
    splits
        Split name -> ids, for one source. None: the splits of the source; stores, OGB folders and OGB datasets have
        splits.
    shuffle
        Names of the splits to shuffle; None: "train", which must exist. () for none.
    plans
        Split name -> plan, such as the plans of `preprocess`; missing plans are made.
    num_workers, padded, limits, packs_per_batch, multiple_of, seed, oversize, shapes, settings
        As in `packed_loader`. `content`, `replan_every` and `drop_last` apply to the shuffled splits. The other splits
        are read completely, in the order of their plans.

    Returns
    -------
    dict
        Split name -> loader.

    Raises
    ------
    SizesError
        The source has no splits, or a split is empty.
    SchemaError
        Splits differ in the types, features or labels of their graphs.
    InputError
        As in `packed_loader`; or `shuffle` names a split that does not exist.

    Examples
    --------
    >>> import dgl
    >>> graphs = [dgl.rand_graph(n, 2 * n) for n in range(3, 43)]
    >>> loaders = packed_loaders({"train": graphs[::2], "valid": graphs[1::2]}, graphs_per_batch=10)
    >>> loaders["train"].limits == loaders["valid"].limits
    True
    """
    plans = {} if plans is None else plans
    if not isinstance(plans, Mapping):
        raise InputError(f"plans must be a mapping of names of splits to plans, but are {shown(plans)}.")
    sorted_settings = Settings.of({"num_workers": num_workers, **settings}, true_or_false("padded", padded, InputError))
    request = Request(graphs_per_batch, limits, packs_per_batch, plans, multiple_of, seed, oversize, shapes)
    by_name = _splits_of(source, splits, sorted_settings.batch.get("levels"))
    unknown = [name for name in plans if name not in by_name]
    if unknown:
        raise InputError(f"plans has {shown(unknown[0])}, but the splits are {', '.join(map(repr, by_name))}.")
    return _loaders(by_name, _shuffled(shuffle, by_name), padded, request, sorted_settings)


def _splits_of(source: Any, splits: Mapping[str, Any] | None, levels: Any) -> dict[str, Split]:
    """Return the graphs and sizes of each split; for PyG graphs, `levels` gives what attributes belong to."""
    if isinstance(source, Mapping):
        if splits is not None:
            raise InputError("splits are for one source, but a mapping of sources was given; leave one of them out.")
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
    chosen = found.splits() if splits is None else splits
    if not isinstance(chosen, Mapping) or not chosen:
        raise SizesError(
            f"{found.title} has no splits; give splits={{'train': ids, ...}}, a mapping of names to sources, or use "
            "packed_loader for all graphs."
        )
    sizes = sizes_of(graphs, levels=levels)
    ids_by_name = {name: as_ids(ids, len(sizes)) for name, ids in chosen.items()}
    empty = [name for name, ids in ids_by_name.items() if not len(ids)]
    if empty:
        raise SizesError(f"the split {shown(empty[0])} has no graphs; give splits= without it.")
    return {name: (part_of(graphs, ids), sizes.take(ids)) for name, ids in ids_by_name.items()}


def _check_same(splits: Mapping[str, Split]) -> None:
    """Raise SchemaError if the first graphs of the splits differ in types, features or labels."""
    schemas = {name: schema_of(graphs) for name, (graphs, _) in splits.items()}
    (first, expected), *others = schemas.items()
    compared = ("graph_names", "node_types", "edge_types", "node_features", "edge_features", "labels")
    reason = "all splits must have the same, since their batches have one shape"
    for name, found in others:
        check_same_schema(expected, found, repr(first), repr(name), compared, reason)


def _shuffled(shuffle: Collection[str] | None, splits: Mapping[str, Split]) -> tuple[str, ...]:
    """Return the names of the splits to shuffle."""
    if shuffle is None:
        if _TRAINING not in splits:
            raise InputError(
                f"no split is called {_TRAINING!r}, so it is unclear which splits to shuffle; the splits are "
                f"{', '.join(map(repr, splits))}: give shuffle=(name,), or () for none."
            )
        return (_TRAINING,)
    if not isinstance(shuffle, tuple | list | set | frozenset):
        raise InputError(f"shuffle must be names of splits, such as ('train',), but is {shown(shuffle)}.")
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
