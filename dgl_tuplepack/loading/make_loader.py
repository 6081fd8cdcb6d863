"""`packed_loader`: choose a shape, and the samplers of its batches, and make one loader, or one per split.

How data flows: `opened` (`opened.py`) turns a source into `Graphs`, which can be read by position; lists are copied to
a temporary store. With `batch_size`, `static_samplers` (`static_loader.py`) makes the sampler of each split; for packs,
`choose` (`chosen_packs.py`) takes the histograms of the splits, and returns limits, packs per batch and plans. A split
also gets a view that maps the ids of a batch to the batch: a store copies rows in one compiled pass, any other dataset
is read item by item and goes through `PaddedCollate`, or through DGL's or PyG's collate without padding.
`PackedLoader` (`packed_loader.py`) is torch's DataLoader over this view, with epochs and states.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
import torch

from dgl_tuplepack._core.checks import shown, true_or_false
from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.collate import CollatedView
from dgl_tuplepack.batches.shape import PadSettings
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.relations import Indices, Ties
from dgl_tuplepack.loading.chosen_packs import Request, choose
from dgl_tuplepack.loading.mixture import joined, mark_sources, mixes, shares_of
from dgl_tuplepack.loading.opened import (
    Graphs,
    collated_within,
    opened,
    padded_view,
    plain_view,
    plans_of,
    plans_of_stores,
    shuffled_of,
    sources_of,
    splits_of,
)
from dgl_tuplepack.loading.packed_loader import PackedLoader, max_nodes_of, refuse_collate
from dgl_tuplepack.loading.static_loader import padding_limits, refuse_settings_of_packs, static_samplers
from dgl_tuplepack.planning.buckets import Shapes
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.search import LimitsSearch
from dgl_tuplepack.planning.search.strategies import TOLERANCE
from dgl_tuplepack.sampling.pack_sampler import PackBatchSampler
from dgl_tuplepack.sampling.static_sampler import StaticBatchSampler
from dgl_tuplepack.sampling.weights import SourceShares, draws_of
from dgl_tuplepack.storage.graph_store import StoredGraphs

# Without splits, all graphs form one split of this name.
_ALL = ""


@overload
def packed_loader(
    source: Any, graphs_per_batch: int | None = ..., *, splits: None = ..., **settings: Unpack[AllSettings]
) -> PackedLoader: ...


@overload
def packed_loader(
    source: Any,
    graphs_per_batch: int | None = ...,
    *,
    splits: Mapping[str, Any] | Literal[True],
    **settings: Unpack[AllSettings],
) -> dict[str, PackedLoader]: ...


def packed_loader(
    source: Any,
    graphs_per_batch: int | None = None,
    *,
    splits: Mapping[str, Any] | Literal[True] | None = None,
    batch_size: int | None = None,
    shuffle: bool | Collection[str] = True,
    padded: bool | None = None,
    limits: Shapes | None = None,
    plan: PackPlan | Mapping[str, PackPlan] | None = None,
    packs_per_batch: int | None = None,
    shapes: int | None = None,
    multiple_of: int = 1,
    seed: int = 0,
    oversize: str = "error",
    with_ids: bool = False,
    in_memory: bool | None = None,
    shares: Mapping[str, float] | None = None,
    temperature: float | None = None,
    share_of: str = "graphs",
    **settings: Unpack[LoaderSettings],
) -> PackedLoader | dict[str, PackedLoader]:
    """Make a loader whose batches all fit one static shape; choose all settings that are not given.

    With `batch_size`, batches are those of an ordinary loader, with exactly that many graphs in each, except that a few
    graphs change places. With `graphs_per_batch` or `limits`, batches are packs, whose numbers of graphs differ.

    Parameters
    ----------
    source
        A list, Series or dataset of graphs, (graph, label) or (graph, label, id), a subset of such a dataset, or
        ``with_ids(dataset)``; a `GraphStore`, `MultiStore` or subset of a store; an `OgbFolder`; a `ChunkedGraph`;
        or the path of a store, of a dataset of shards, of a ``.bin`` file, of an OGB folder, of a folder in DGL's
        chunked graph format or of a part of a `partition`. In a list or dataset, each graph is a DGLGraph, a dict of
        named DGLGraphs, or a PyG Data or HeteroData. With ``splits=True``, `shares` or `temperature`, also a mapping of
        names to sources.
    graphs_per_batch
        Mean number of graphs per batch of packs. Limits and packs per batch are chosen to meet it to within 5 %, if
        whole packs allow that. Plans that `preprocess` stored are used if they meet it, or if it is None. With splits,
        it applies to the shuffled splits, or to all if none is shuffled; batches of the others hold what fits.
    splits
        None: one loader for all graphs. A mapping of names to ids, to masks (True or False for each graph), or to
        subsets of the source (`torch.utils.data.Subset`): one loader per split. True: the splits of the source itself;
        stores, OGB folders, OGB datasets and mappings of sources have splits.
    batch_size
        Number of graphs in each batch but the last one. All shuffled splits share one shape, and the other splits share
        another. On several ranks, the last two steps may have fewer graphs; see `StaticBatchSampler`.
    shuffle
        Whether batches are shuffled, differently in each epoch. With splits, True shuffles the split "train", which
        must exist; a tuple of names shuffles the named splits. Other splits are read completely: with `batch_size` in
        the order of the source, otherwise in that of their plans. If any split is shuffled, `content` and `drop_last`
        apply only to the shuffled splits.
    padded
        Whether batches are `PaddedBatch`. False: batches without padding, as DGL's or PyG's collate makes them. None:
        True for packs, False with `batch_size`.
    limits
        Limits of a pack; None: search them. A list of two to four limits in ascending order gives shape buckets. With
        `batch_size`, limits of a whole batch of the shuffled splits, or of all splits if none is shuffled.
    plan
        A plan for exactly the graphs of the source; with splits, a mapping of split names to plans.
    packs_per_batch
        Packs per batch, >= 1. None: chosen; with searched limits, 2 if half a batch can hold the largest graph.
    shapes
        2 to 4: search that many shape buckets, for smaller batches than the largest graph allows with one shape.
    multiple_of
        If limits are not given, the node slots and the edge slots are multiples of this number.
    seed
        0..2**64-1: seed of plan and batches.
    oversize
        What to do with graphs that are larger than `limits`: "error", or "drop" (with a warning). With `batch_size`,
        "drop" needs `limits`.
    with_ids
        Whether batches without padding have the ids of their graphs, int64 ``[n]``: as the last element, or as the
        attribute `graph_ids` of PyG batches. Padded batches always have ids. Ids are positions in `source`, also with
        splits, unless items have their own ids.
    in_memory
        Whether graphs are copied to a temporary store first, for far faster batches; later changes of the dataset then
        have no effect. None: copy lists, tuples, OGB datasets, and PyG's in-memory datasets that have no transform of
        their own, unless the argument `transform` or `collate_fn` is given. True: copy any dataset; reading an item
        twice must return the same item. False: read items one by one for each batch.
    shares
        For a mapping of sources: make one loader that mixes them. Maps each name to a number > 0; only ratios count.
        Each epoch has as many graphs as all sources together, and this share of each source. Batches get `source_ids`,
        int64, positions in the mapping: as the last element (before the ids of `with_ids`), or as an attribute.
    temperature
        Instead of `shares`: shares proportional to size ** (1 / temperature), for the size of each source.
    share_of
        Whether `shares` and sizes count "graphs" or "nodes".
    settings
        Settings that are passed on: content, num_replicas, rank, drop_last, weights (with several shuffled splits, a
        mapping of their names to weights) and cost to the sampler; label_fill,
        feature_fill, cover_padding, idtype, coordinates, sort_edges, transform, batch_transform, transform_seed, ties,
        indices, levels, as_stored and separate to `PaddedCollate` or `GraphStore.padded`; num_workers, pin_memory,
        timeout, worker_init_fn, multiprocessing_context, generator, prefetch_factor, persistent_workers,
        pin_memory_device and in_order to torch's DataLoader. Workers make loading from a store or a copied list many
        times slower. Without padding, only `transform`, `transform_seed` and `as_stored` apply to batches, and
        `collate_fn` may replace DGL's collate.

    Returns
    -------
    PackedLoader or dict
        A DataLoader with `set_epoch`, `state_dict`, `load_state_dict` and the attributes shape (slots of a batch),
        limits, plan, sampler, packs_per_batch, graphs_per_batch, view (maps the ids of a batch to the batch), collate
        (None for a store) and search (None if limits were not searched). With splits, a dict of names to loaders.

    Raises
    ------
    SearchError
        The largest graph does not allow so few graphs per batch; the message gives the smallest number that is allowed.
    InputError
        A setting is unknown, settings contradict each other, or `shuffle` or `plan` names an unknown split.
    SizesError, SchemaError, FormatError, LimitsError, PlanError, SamplerError
        As in `sizes_of`, `PaddedCollate`, `PackBatchSampler` and `StaticBatchSampler`. With splits, SizesError also if
        the source has no splits or a split is empty; SchemaError also if padded splits differ in types, features or
        labels.

    Notes
    -----
    Each iteration of a shuffling loader with gradients enabled takes a new epoch. After a call of `set_epoch`, and on
    several ranks, only `set_epoch` changes the epoch. The logger ``logging.getLogger("dgl_tuplepack")`` reports all
    choices at level INFO.

    Examples
    --------
    >>> import dgl
    >>> graphs = [dgl.rand_graph(n, 2 * n) for n in range(3, 43)]
    >>> loader = packed_loader(graphs, batch_size=10)
    >>> [graph.batch_size for graph in loader], loader.shape
    ([10, 10, 10, 10], Limits(nodes=..., edges=..., graphs=11))
    >>> packs = packed_loader(graphs, graphs_per_batch=10)
    >>> len({(batch.graph.num_nodes(), batch.graph.num_edges()) for batch in packs})
    1
    """
    padded = batch_size is None if padded is None else true_or_false("padded", padded, InputError)
    passed_on = Settings.of(settings, padded)
    if true_or_false("with_ids", with_ids, InputError) and passed_on.collate:
        raise InputError(
            "with_ids=True adds ids to batches that DGL's collate makes, but collate_fn is given; leave one of them "
            "out, or give tp.with_ids(dataset), whose items have ids."
        )
    if batch_size is not None:
        others = {"graphs_per_batch": graphs_per_batch, "plan": plan, "packs_per_batch": packs_per_batch}
        others |= {"shapes": shapes, "content": passed_on.sampler.pop("content", None)}
        refuse_settings_of_packs(batch_size, others)
    if in_memory is None and (passed_on.collate or passed_on.batch.get("transform")):
        # A collate function or transform of the user needs the original items.
        in_memory = False
    declared = {name: passed_on.batch.get(name) for name in DECLARED}
    by_name: dict[str, Graphs]
    shuffled: Collection[str]
    mixed = mixes(source, shares, temperature, share_of, splits=splits, weights=passed_on.sampler.get("weights"))
    if mixed:
        sources = sources_of(source, in_memory, not padded, declared)
        passed_on.sampler["weights"] = shares_of(sources, shares, temperature, share_of)
    if splits is None:
        by_name = {_ALL: joined(sources) if mixed else opened(source, in_memory, not padded, declared)}
        shuffled = (_ALL,) if true_or_false("shuffle", shuffle, InputError) else ()
        plans: Any = {} if plan is None else {_ALL: plan}
    else:
        by_name = splits_of(source, splits, in_memory, not padded, declared)
        shuffled, plans = shuffled_of(shuffle, by_name), plans_of(plan, by_name)
    passed_on.check_weights(tuple(shuffled) or tuple(by_name))
    samplers: Mapping[str, PackBatchSampler | StaticBatchSampler]
    if batch_size is None:
        stored = plans_of_stores(by_name)
        request = Request(graphs_per_batch, limits, packs_per_batch, plans, multiple_of, seed, oversize, shapes, stored)
        samplers, search = _pack_samplers(by_name, shuffled, request, passed_on)
    else:
        leading, search = tuple(shuffled) or tuple(by_name), None
        samplers = static_samplers(
            by_name, shuffled, batch_size, lambda name: passed_on.of_sampler(name, name in leading),
            limits=limits, multiple_of=multiple_of, seed=seed, oversize=oversize,
        )  # fmt: skip
    loaders, max_nodes = {}, max_nodes_of([*samplers.values()])
    for name, graphs in by_name.items():
        sampler = samplers[name]
        view = _view(graphs, sampler, passed_on, padded, with_ids)
        loaders[name] = PackedLoader(
            view, sampler=sampler, padded=padded, search=search, multiple_of=multiple_of, max_nodes=max_nodes,
            ids=graphs.ids, **passed_on.loader,
        )  # fmt: skip
    return loaders[_ALL] if splits is None else loaders


def _pack_samplers(
    splits: Mapping[str, Graphs], shuffled: Collection[str], request: Request, passed_on: Settings
) -> tuple[dict[str, PackBatchSampler], LimitsSearch | None]:
    """Return the sampler of each split, all of one shape, and the search for the limits, if there was one."""
    leading = tuple(shuffled) or tuple(splits)
    weights = {name: passed_on.weights_of(name, name in leading) for name in splits}
    histograms = {name: _of_epoch(graphs, weights[name]) for name, graphs in splits.items()}
    chosen = choose(histograms, leading, request)
    samplers = {
        name: PackBatchSampler(
            graphs.histogram, chosen.limits, packs_per_batch=chosen.packs_per_batch,
            # Weights draw other graphs, which need plans of their own.
            plan=None if weights[name] is not None else chosen.plans[name],
            shuffle=name in shuffled, seed=request.seed, oversize=request.oversize,
            **passed_on.of_sampler(name, name in leading),
        )
        for name, graphs in splits.items()
    }  # fmt: skip
    if request.graphs_per_batch is not None:
        # Each shuffled split is trained on; the other splits share one number.
        for names in [[name] for name in shuffled] or [list(leading)]:
            _warn_of_mean(request.graphs_per_batch, {name: samplers[name] for name in names})
    return samplers, chosen.search


def _of_epoch(graphs: Graphs, weights: Any) -> SizeHistogram:
    """Return the histogram of the graphs of an epoch; if weights draw them, with the largest of all graphs."""
    if weights is None:
        return graphs.histogram
    sizes = graphs.sizes
    drawn = draws_of(weights, len(sizes), np.arange(len(sizes)), sizes.array).of(key_of(0, 0, 0))
    return SizeHistogram.from_sizes(sizes.take(np.append(drawn, sizes.array.argmax(axis=0))))


def _view(
    graphs: Graphs, sampler: PackBatchSampler | StaticBatchSampler, passed_on: Settings, padded: bool, with_ids: bool
) -> Any:
    """Return the view that makes the batches of a sampler."""
    limits, packs = sampler.limits, getattr(sampler, "packs_per_batch", 1)
    if padded:
        if isinstance(sampler, StaticBatchSampler):
            limits = padding_limits(limits, bool(passed_on.batch.get("coordinates")))
        view = padded_view(graphs, limits, packs, passed_on.batch)
    else:
        view = plain_view(graphs, passed_on.collate, passed_on.batch, with_ids)
    if isinstance(view, CollatedView) and not isinstance(graphs.items, StoredGraphs):
        # Graphs of a store cannot change.
        view.collated = functools.partial(collated_within, graphs, limits, packs)
    weights = passed_on.sampler.get("weights")
    if isinstance(weights, SourceShares):
        mark_sources(view, sampler, weights, with_ids)
    return view


def _warn_of_mean(wanted: int, samplers: Mapping[str, PackBatchSampler]) -> None:
    """Warn if the mean number of graphs in the batches of the splits misses `wanted`."""
    ranks = next(iter(samplers.values())).num_replicas
    graphs = [sampler.num_graphs / ranks for sampler in samplers.values()]
    batches = sum(map(len, samplers.values()))
    mean = sum(len(sampler) * sampler.graphs_per_batch for sampler in samplers.values()) / batches
    # The mean if all batches could hold exactly `wanted` graphs; a smaller split is one batch.
    target = sum(graphs) / sum(max(1, number / wanted) for number in graphs)
    # The number that is asked for is an integer, so half a graph may be as close as it gets.
    if abs(mean - target) > max(TOLERANCE * target, 0.5):
        # Offer as many batches as there are, or the next number on the other side of the target. On several ranks, such
        # a number may not be met either.
        numbers = (batches, max(1, batches - 1) if mean < target else batches + 1)
        offered = sorted({round(sum(graphs) / number) for number in numbers} - {wanted})
        better = f" whose batches are full: graphs_per_batch={' or '.join(map(str, offered))}" if ranks == 1 else ""
        of_splits = "" if _ALL in samplers else f" of {', '.join(map(repr, samplers))}"
        warnings.warn(
            f"graphs_per_batch is {wanted}, but the batches{of_splits} hold {mean:.1f} graphs on average, since "
            f"{sum(graphs):.0f} graphs do not fill such batches; choose the learning rate for {mean:.0f} graphs, "
            f"or give {'a' if better else 'another'} number{better}.",
            stacklevel=4,
        )


class SamplerSettings(TypedDict, total=False):
    """Settings of `PackBatchSampler`, and without `content` of `StaticBatchSampler`."""

    content: str | None
    num_replicas: int | None
    rank: int | None
    drop_last: bool
    weights: Any
    cost: Any


class BatchSettings(PadSettings, total=False):
    """Settings of `PaddedCollate` and `GraphStore.padded`."""

    as_stored: bool
    separate: bool
    ties: Ties | None
    indices: Indices | None
    levels: Levels | None
    transform: Callable[[Any], Any] | None
    batch_transform: Callable[[PaddedBatch], Any] | None
    transform_seed: int


class DataLoaderSettings(TypedDict, total=False):
    """Settings of torch's DataLoader."""

    num_workers: int
    pin_memory: bool
    timeout: float
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: Any
    generator: torch.Generator | None
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory_device: str
    in_order: bool


class LoaderSettings(SamplerSettings, BatchSettings, DataLoaderSettings, total=False):
    """All settings that `packed_loader` passes on."""

    collate_fn: Callable[[Any], Any] | None


class AllSettings(LoaderSettings, total=False):
    """All arguments of `packed_loader` that do not decide what it returns."""

    batch_size: int | None
    shuffle: bool | Collection[str]
    padded: bool | None
    limits: Shapes | None
    plan: PackPlan | Mapping[str, PackPlan] | None
    packs_per_batch: int | None
    shapes: int | None
    multiple_of: int
    seed: int
    oversize: str
    with_ids: bool
    in_memory: bool | None
    shares: Mapping[str, float] | None
    temperature: float | None
    share_of: str


# Settings that state facts about the graphs. A store gets these settings when it is written.
DECLARED = ("ties", "indices", "levels")
# Settings of the sampler that apply to all splits. The others apply only to leading splits: the shuffled splits, or all
# splits if none is shuffled.
_OF_ALL_SPLITS = ("num_replicas", "rank")
# Settings of batches that also apply without padding.
_WITHOUT_PADDING = ("transform", "transform_seed", "as_stored")
# Arguments that users may expect, but that `packed_loader` does not accept -> advice in the error.
_CHOSEN = {
    "budget": "search first, search = tp.search_limits(source, budget=...), and give limits=search.best.limits",
    "sampler": "the loader makes its own sampler from limits and seed",
    "batch_sampler": "the loader makes its own sampler from limits and seed",
    "shape": "limits= is the shape of batches of batch_size graphs",
    "slack": "it is for tp.StaticBatchSampler; limits= is the shape of batches of batch_size graphs",
}


@dataclass(frozen=True)
class Settings:
    """Settings, sorted by the object that receives them."""

    sampler: dict[str, Any] = field(default_factory=dict)
    batch: dict[str, Any] = field(default_factory=dict)
    loader: dict[str, Any] = field(default_factory=dict)
    collate: Callable[[Any], Any] | None = None

    def of_sampler(self, split: str, leads: bool) -> dict[str, Any]:
        """Return the sampler settings of a split: all if it is a leading split, else only those in _OF_ALL_SPLITS."""
        settings = {name: value for name, value in self.sampler.items() if leads or name in _OF_ALL_SPLITS}
        if "weights" in settings:
            settings["weights"] = self.weights_of(split, leads)
        return settings

    def weights_of(self, split: str, leads: bool) -> Any:
        """Return the weights of the graphs of a split; None if it has none."""
        weights = self.sampler.get("weights") if leads else None
        return weights.get(split) if isinstance(weights, Mapping) else weights

    def check_weights(self, leading: Collection[str]) -> None:
        """Raise InputError if weights are a mapping, but not of names of the leading splits."""
        weights = self.sampler.get("weights")
        if not isinstance(weights, Mapping) or (weights and weights.keys() <= {*leading} != {_ALL}):
            return
        if {*leading} == {_ALL}:
            remedy = "is for several splits; without splits=, give a number for each graph"
        else:
            remedy = f"must have names of shuffled splits, which are {', '.join(map(repr, leading))}, and their weights"
        raise InputError(f"weights={shown(weights)} is a mapping, which {remedy}, such as tp.class_weights(labels).")

    @classmethod
    def of(cls, given: Mapping[str, Any], padded: bool) -> Settings:
        """Sort the settings `given`; raise InputError if one is unknown, or does not apply with this `padded`."""
        settings = cls(collate=given.get("collate_fn"))
        if settings.collate is not None and padded:
            refuse_collate(settings.collate, padded)
        if settings.collate is not None and not callable(settings.collate):
            raise InputError(f"collate_fn must be a function of a list of items, but is {shown(settings.collate)}.")
        for name, value in given.items():
            if name in SamplerSettings.__annotations__:
                settings.sampler[name] = value
            elif name in BatchSettings.__annotations__:
                _check_applies(name, padded)
                settings.batch[name] = value
            elif name in DataLoaderSettings.__annotations__:
                settings.loader[name] = value
            elif name in _CHOSEN:
                raise InputError(f"{name} cannot be given to packed_loader: {_CHOSEN[name]}.")
            elif name != "collate_fn":
                known = ", ".join(sorted(LoaderSettings.__annotations__))
                raise InputError(f"packed_loader has no setting {name!r}; choose from {known}.")
        return settings


def _check_applies(name: str, padded: bool) -> None:
    """Raise InputError if batches are not padded, but the setting `name` applies only to padded batches."""
    if padded or name in _WITHOUT_PADDING:
        return
    if name in DECLARED:
        raise InputError(
            f"{name} cannot be given with padded=False, which is the default with batch_size, since such batches are "
            f"those of DGL or PyG; write a store, GraphStore.write(path, graphs, {name}=...), and give the store."
        )
    raise InputError(
        f"{name} applies only to padded batches, but padded=False, which is the default with batch_size; leave {name} "
        "out, or give padded=True."
    )
