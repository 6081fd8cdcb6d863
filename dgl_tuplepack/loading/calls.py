"""The two calls: one loader, or one for each part of a split, all of one shape."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dgl_tuplepack._core.checks import as_ids, choice, shown, true_or_false
from dgl_tuplepack.errors import InputError, SizesError
from dgl_tuplepack.graphs.readers.sizes_of import sizes_of
from dgl_tuplepack.loading.choice import Asked, Choice, choose
from dgl_tuplepack.loading.packed_loader import PackedLoader, Settings
from dgl_tuplepack.loading.views import opened, padded_view, part_of, plain_view, schema_of
from dgl_tuplepack.planning.buckets import Shapes
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import GraphSizes
from dgl_tuplepack.sampling.batches import PackBatchSampler
from dgl_tuplepack.storage.selection import check_same_schema

# Graphs of a part, and their sizes.
Part = tuple[Any, GraphSizes]

# The part that is shuffled if the caller does not say which.
_TRAINING = "train"
# Settings of the sampler that are not about batches in random order.
_OF_ALL_PARTS = ("num_replicas", "rank")


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
        Graphs of any kind: a list or dataset of DGLGraph, (DGLGraph, label) or (DGLGraph, label, id), a subset of one,
        `with_ids` of one; a `GraphStore`, a `MultiStore` or a subset; the path of one of these two, of a ``.bin`` file
        or of an OGB folder. An iterator is read into a list; an OGB folder is written to a temporary store, which is
        removed with the loader (`preprocess` writes one that stays).
    graphs_per_batch
        What plain batches have as `batch_size`. Limits and a number of packs are chosen such that batches hold so many
        graphs on average, to within 5 % where whole packs allow it; ``loader.graphs_per_batch`` is the exact mean.
        With fewer graphs than that, there is one batch.
    shuffle
        Whether batches come in random order, with other content each epoch (see `content`).
    num_workers
        Processes that make batches; 0: the main process.
    padded
        Whether batches are `PaddedBatch` of one static shape, with the positions of graphs as ``graph_ids`` (unless
        items have ids of their own). False: batches without padding, as DGL collates them,
        that never exceed the limits.
    limits
        Limits of a pack; None: searched. A list of two to four limits in ascending order gives shape buckets: each
        batch has one of these shapes. With `graphs_per_batch`, the number of packs is chosen to meet it.
    packs_per_batch
        Packs of a batch, >= 1. None: chosen; 2 where limits are searched, if two packs can hold every graph.
    plan
        A plan for exactly these graphs; made if not given.
    multiple_of
        For limits that are searched: the padded shape of a pack is a multiple of this.
    seed
        0..2**64-1: seed of plan and batches.
    oversize
        What to do with graphs that are larger than a pack: "error", or "drop" (with a warning).
    shapes
        2 to 4: search that many shape buckets; each batch has one of them. For batches smaller than the largest
        graph allows in one shape.
    settings
        Others of `PackBatchSampler` (content, num_replicas, rank, drop_last, replan_every), of `PaddedCollate` and
        `GraphStore.padded` (label_fill, coordinates, sort_edges, ...), and of torch's DataLoader (pin_memory,
        persistent_workers, ...). With ``padded=False``, `transform`, `transform_seed` and `as_stored` are possible, and
        `collate_fn` may replace DGL's collate.

    Returns
    -------
    PackedLoader
        A DataLoader with `set_epoch`, and its parts as attributes: limits, plan, sampler, view, collate, search.

    Raises
    ------
    SearchError
        The largest graph rules out so few graphs in a batch; says how many there must be.
    InputError
        Settings are unknown, or contradict each other; a padded loader is given a `collate_fn`.
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
    asked = Asked(graphs_per_batch, limits, packs_per_batch, plans, multiple_of, seed, oversize, shapes)
    _, graphs = opened(source)
    sizes = sizes_of(graphs, levels=sorted_settings.batch.get("levels"))
    return _loaders({"": (graphs, sizes)}, ("",) if shuffle else (), padded, asked, sorted_settings)[""]


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
    """Make a loader for each part of a split; the batches of all of them have one shape.

    Parameters
    ----------
    source
        One source, with splits of its own or `splits`; or a mapping of names of parts to their sources.
    graphs_per_batch
        As in `packed_loader`, for the parts that are shuffled. Batches of the others have the same shape, and hold as
        many graphs as fit.
    splits
        Name of the part -> ids, for one source. None: the splits of the source, as stores, OGB folders and OGB's
        datasets have them.
    shuffle
        Names of the parts in random order; None: "train", which must be there. () for none.
    plans
        Name of the part -> plan, such as those of `preprocess`; made where not given.
    num_workers, padded, limits, packs_per_batch, multiple_of, seed, oversize, shapes, settings
        As in `packed_loader`. `content`, `replan_every` and `drop_last` are for the parts that are shuffled; the others
        come in the order of their plans, and whole.

    Returns
    -------
    dict
        Name of the part -> loader.

    Raises
    ------
    SizesError
        The source has no splits, or a split is empty.
    SchemaError
        Parts differ in the types, features or labels of their graphs.
    InputError
        As in `packed_loader`; or `shuffle` names a part that is not there.

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
        raise InputError(f"plans must be a mapping of names of parts to plans, but are {shown(plans)}.")
    sorted_settings = Settings.of({"num_workers": num_workers, **settings}, true_or_false("padded", padded, InputError))
    asked = Asked(graphs_per_batch, limits, packs_per_batch, plans, multiple_of, seed, oversize, shapes)
    parts = _parts(source, splits, sorted_settings.batch.get("levels"))
    unknown = [name for name in plans if name not in parts]
    if unknown:
        raise InputError(f"plans has {shown(unknown[0])}, but the parts are {', '.join(map(repr, parts))}.")
    return _loaders(parts, _shuffled(shuffle, parts), padded, asked, sorted_settings)


def _parts(source: Any, splits: Mapping[str, Any] | None, levels: Any) -> dict[str, Part]:
    """Return the graphs and sizes of each part; of graphs of PyG, `levels` say what attributes belong to."""
    if isinstance(source, Mapping):
        if splits is not None:
            raise InputError("splits are for one source, but a mapping of sources was given; leave one of them out.")
        if not source:
            raise SizesError("a mapping of sources needs at least one, but has none.")
        wrong = [name for name in source if not isinstance(name, str)]
        if wrong:
            raise InputError(f"names of parts must be texts, but one is {shown(wrong[0])}.")
        parts = {name: opened(each)[1] for name, each in source.items()}
        sized = {name: (graphs, sizes_of(graphs, levels=levels)) for name, graphs in parts.items()}
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
    rows = {name: as_ids(ids, len(sizes)) for name, ids in chosen.items()}
    empty = [name for name, ids in rows.items() if not len(ids)]
    if empty:
        raise SizesError(f"the split {shown(empty[0])} has no graphs; give splits= without it.")
    return {name: (part_of(graphs, ids), sizes.take(ids)) for name, ids in rows.items()}


def _check_same(parts: Mapping[str, Part]) -> None:
    """Refuse parts whose graphs have other types, features or labels, going by the first graph of each."""
    schemas = {name: schema_of(graphs) for name, (graphs, _) in parts.items()}
    (first, expected), *others = schemas.items()
    compared = ("graph_names", "node_types", "edge_types", "node_features", "edge_features", "labels")
    reason = "parts of one split must have the same, since their batches have one shape"
    for name, found in others:
        check_same_schema(expected, found, repr(first), repr(name), compared, reason)


def _shuffled(shuffle: Collection[str] | None, parts: Mapping[str, Part]) -> tuple[str, ...]:
    """Return the names of the parts in random order."""
    if shuffle is None:
        if _TRAINING not in parts:
            raise InputError(
                f"no part is called {_TRAINING!r}, so it is open which ones to shuffle; the parts are "
                f"{', '.join(map(repr, parts))}: give shuffle=(name,), or () for none."
            )
        return (_TRAINING,)
    if not isinstance(shuffle, tuple | list | set | frozenset):
        raise InputError(f"shuffle must be names of parts, such as ('train',), but is {shown(shuffle)}.")
    for name in shuffle:
        choice("part in shuffle", name, parts)
    return tuple(shuffle)


def _loaders(
    parts: Mapping[str, Part], shuffled: Collection[str], padded: bool, asked: Asked, settings: Settings
) -> dict[str, PackedLoader]:
    """Return the loader of each part, all with one shape."""
    leading = tuple(shuffled) or tuple(parts)
    choice = choose({name: sizes for name, (_, sizes) in parts.items()}, leading, asked)
    return {
        name: _loader(part, name, name in shuffled, padded, choice, asked, settings, leads=name in leading)
        for name, part in parts.items()
    }


def _loader(
    part: Part, name: str, shuffle: bool, padded: bool, choice: Choice, asked: Asked, settings: Settings, leads: bool
) -> PackedLoader:
    """Return the loader of one part; `leads` says whether settings of batches in random order are for it."""
    graphs, sizes = part
    given = {key: value for key, value in settings.sampler.items() if leads or key in _OF_ALL_PARTS}
    # Later plans are the sampler's own, so it makes the first one too.
    replans = given.get("content") == "repack" or given.get("replan_every") is not None
    sampler = PackBatchSampler(
        sizes,
        choice.limits,
        plan=None if replans and name not in asked.plans else choice.plans[name],
        packs_per_batch=choice.packs_per_batch,
        shuffle=shuffle,
        seed=asked.seed,
        oversize=asked.oversize,
        **given,
    )
    if padded:
        view = padded_view(graphs, sampler.limits, choice.packs_per_batch, settings.batch)
    else:
        view = plain_view(graphs, settings.collate, settings.batch)
    return PackedLoader(view, sampler, padded=padded, search=choice.search, **settings.loader)
