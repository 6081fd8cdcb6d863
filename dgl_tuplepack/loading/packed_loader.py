"""The loader that `packed_loader` returns."""

from __future__ import annotations

import functools
import logging
import os
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, SequentialSampler

from dgl_tuplepack._core.checks import UINT64_MAX, shown, whole_number
from dgl_tuplepack.batches.collate import CollatedView
from dgl_tuplepack.batches.shape import PaddedShape
from dgl_tuplepack.errors import InputError, SamplerError
from dgl_tuplepack.graphs.items import Identified
from dgl_tuplepack.graphs.readers.ogb_folder import OgbFolder
from dgl_tuplepack.loading.opened import opened
from dgl_tuplepack.loading.static_loader import bytes_of, levels_of, mark, static_shape
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.search import LimitsSearch
from dgl_tuplepack.planning.sizes import IntArray, components_of_kind
from dgl_tuplepack.sampling.description import Description, described
from dgl_tuplepack.sampling.pack_sampler import PackBatchSampler
from dgl_tuplepack.sampling.static_sampler import StaticBatchSampler
from dgl_tuplepack.storage.device import DeviceStore
from dgl_tuplepack.storage.graph_store import StoredGraphs
from dgl_tuplepack.storage.reader import Stored
from dgl_tuplepack.storage.view import BatchView, is_one_id, with_graph_ids

# Version of the state that `PackedLoader.state_dict` returns.
_VERSION = 1

_Sampler = PackBatchSampler | StaticBatchSampler

# What to do if a framework replaces the sampler of a loader; ranks get their graphs from our sampler anyway.
_REMEDIES = (
    "keep frameworks from replacing it: give use_distributed_sampler=False to Lightning; instead of "
    "accelerator.prepare(loader), prepare only the model and the optimiser, and move batches to accelerator.device."
)


def _as_it_is(batch: Any) -> Any:
    """Return a whole batch unchanged; torch's default would turn a tuple into a list."""
    return batch


class WholeBatches(Dataset[Any]):
    """A view as the dataset of a loader: for the ids of a batch it returns one batch, not a list of items.

    The attributes of the user's `dataset` can be read from this object too. In a `PackedLoader`, the ids come from
    `sampler`, and the length is the number of graphs in an epoch, without graphs that `oversize` drops.
    """

    def __init__(self, dataset: Any, view: Any, sampler: _Sampler | None = None) -> None:
        self.dataset, self.view, self.sampler = dataset, view, sampler
        self.is_packed = sampler is not None
        self._length = len(view) if sampler is None else sampler.num_graphs

    def __getstate__(self) -> dict[str, Any]:
        # Workers need no sampler.
        return {**self.__dict__, "sampler": None}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, ids: Any) -> Any:
        if self.is_packed and is_one_id(ids):
            raise InputError(
                f"a packed loader was asked for the single graph {ids}, so it has lost its sampler; {_REMEDIES} Single "
                "graphs are in loader.view."
            )
        return self.view[ids]

    def __getitems__(self, ids: Sequence[int]) -> Any:
        """Return the batch of the graphs `ids`; torch's loaders pass it on to their `collate_fn`."""
        # Another sampler than that of a packed loader asks for single graphs here, which raises.
        return [self[i] for i in ids] if self.is_packed else self.view[ids]

    def __getattr__(self, name: str) -> Any:
        # `copy` and `pickle` look up attributes before `dataset` is set; `getattr` below would then recurse forever.
        if name.startswith("__") or name in ("dataset", "view"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.dataset, name)


def _checked(sampler: Any) -> _Sampler:
    """Return the sampler of a loader; InputError if a framework that rebuilds loaders has put another in its place."""
    if isinstance(sampler, _Sampler):
        return sampler
    # Lightning's `overfit_batches` passes a SequentialSampler of the loader's dataset, to have no shuffling.
    dataset = getattr(sampler, "data_source", None)
    if type(sampler) is SequentialSampler and isinstance(dataset, WholeBatches) and dataset.sampler is not None:
        return dataset.sampler.unshuffled()
    raise InputError(
        f"a packed loader needs its PackBatchSampler or StaticBatchSampler, but the sampler is {shown(sampler)}; "
        f"{_REMEDIES}"
    )


class _Iteration(Iterator[Any]):
    """One iteration of a `PackedLoader`; `number` counts the iterations of the loader."""

    position: _Position
    batches: Iterator[Any]
    number, trains, is_exhausted = 0, False, False

    def __init__(self, loader: PackedLoader) -> None:
        self._loader = loader

    def __next__(self) -> Any:
        if not self.number:
            # Start when the first batch is requested, not in iter(): Lightning sets the epoch after iter().
            self._loader._start(self)
        if self._loader.persistent_workers and self.number != self._loader._number and not self.is_exhausted:
            raise SamplerError(
                f"this iteration of epoch {self.position.epoch} has yielded {self.position.batches} batches, but then "
                "another one began, and persistent workers serve only the latest iteration of a loader; use "
                "persistent_workers=False, or a second loader for the evaluation."
            )
        counts = self in self._loader._alive()
        if counts:
            self._loader._position = self.position
        try:
            batch = next(self.batches)
        except StopIteration:
            self.is_exhausted = True
            raise
        # Count batches when the loop receives them, since workers make batches ahead.
        self.position.batches += 1
        if self.trains and counts:
            # An epoch is used once a training has received a batch of it.
            self._loader._next_epoch = max(self._loader._next_epoch, min(self.position.epoch + 1, UINT64_MAX))
        if not self._loader.padded:
            mark(batch, self._loader.shape, self._loader._levels)
        return batch


class PackedLoader(DataLoader[Any]):
    """A loader of whole batches, made by `packed_loader`: a torch DataLoader with automatic batching disabled.

    An iteration and its workers start when the first batch is requested. Each iteration of a shuffling loader that
    delivers a batch with gradients enabled takes the next unused epoch. After a call of `set_epoch`, and on several
    ranks, only `set_epoch` changes the epoch.

    Attributes
    ----------
    sampler
        The `PackBatchSampler`, whose `graphs_per_batch` is the `count` of a loss; or the `StaticBatchSampler`.
    search
        The search that chose the limits; None if limits were not searched.
    padded
        Whether each batch is a `PaddedBatch` of a static shape.
    max_nodes
        Number of nodes of the largest graph, among all splits of the call of `packed_loader`; with several node types,
        a dict by type. It is the `max_nodes` of `tp.nn.attention` and `tp.nn.dense`.
    shape
        Slots of a batch, as `Limits` with the graph slots as `graphs`; a tuple for shape buckets. Slots that are
        reserved for padding count. Batches without padding need padding to get this shape: at least two nodes and two
        edges of each type, and one graph. Their graphs carry it as ``graph.__dict__["static_shape"]``.
    """

    sampler: Any

    def __init__(
        self,
        dataset: Any,
        sampler: _Sampler | None = None,
        *,
        padded: bool = True,
        search: LimitsSearch | None = None,
        multiple_of: int = 1,
        max_nodes: int | dict[str, int] | None = None,
        ids: IntArray | None = None,
        collate_fn: Callable[[Any], Any] = _as_it_is,
        batch_size: None = None,
        **settings: Any,
    ) -> None:
        self.padded, self.search, self.multiple_of = padded, search, multiple_of
        # Positions of the graphs in the source, if the loader is of a split.
        self._ids = ids
        # `_position`: the position of the iteration that ran last, or of a state that was loaded after it. `_trains`:
        # whether gradients were enabled; if so, later evaluations (without gradients) change neither.
        self._position, self._trains = _Position(0), False
        # The epoch after all epochs of which a training has received a batch.
        self._next_epoch = 0
        # `_under_way`: the iterations that count in a state, the oldest first. `_number`: how many were started.
        self._under_way, self._number = list[weakref.ref[_Iteration]](), 0
        sampler = _checked(sampler)
        self.max_nodes = max_nodes_of([sampler]) if max_nodes is None else max_nodes
        if isinstance(dataset, BatchView) and settings.get("num_workers"):
            log_workers()
        view = dataset.view if isinstance(dataset, WholeBatches) else dataset
        self.shape: Limits | tuple[Limits, ...] = static_shape(view, sampler, multiple_of)
        self._levels = levels_of(view)
        whole = WholeBatches(view, view, sampler)
        super().__init__(whole, batch_size=batch_size, sampler=sampler, collate_fn=collate_fn, **settings)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "collate_fn" and value is not _as_it_is:
            refuse_collate(value, self.padded)
        super().__setattr__(name, value)

    @property
    def limits(self) -> Any:
        """Limits of one pack, with a cap on graphs. A tuple for shape buckets. With `batch_size`, limits of a batch."""
        return self.sampler.limits

    @property
    def plan(self) -> PackPlan:
        """The plan of the sampler; AttributeError for batches with exact numbers of graphs, which need no plan."""
        if isinstance(self.sampler, StaticBatchSampler):
            raise AttributeError(
                "a loader with batch_size has no plan, since each epoch makes its batches anew; give graphs_per_batch "
                "for packs of a plan."
            )
        plan: PackPlan = self.sampler.plan
        return plan

    @property
    def packs_per_batch(self) -> int:
        """Packs per batch; 1 with `batch_size`, since the limits then apply to a batch."""
        return 1 if isinstance(self.sampler, StaticBatchSampler) else int(self.sampler.packs_per_batch)

    @property
    def graphs_per_batch(self) -> float:
        """Mean number of graphs per batch in the current epoch, as `PackBatchSampler.graphs_per_batch`."""
        return float(self.sampler.graphs_per_batch)

    @property
    def view(self) -> Any:
        """The object that makes batches: a view of a store, or of a dataset together with a collate function."""
        return self.dataset.view  # type: ignore[attr-defined]

    @property
    def collate(self) -> Any:
        """The function that collates items; None if a store makes whole batches."""
        return self.view.collate if isinstance(self.view, CollatedView) else None

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, 0..2**64-1; from now on, only `set_epoch` changes the epoch."""
        self.sampler.set_epoch(epoch)
        if self._position.epoch != epoch:
            self._position = _Position(epoch)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return _Iteration(self)

    def __getstate__(self) -> dict[str, Any]:
        # Iterations stay in their process.
        return {**self.__dict__, "_under_way": []}

    def _start(self, iteration: _Iteration) -> None:
        """Give an iteration its position and its batches; skip batches that a loaded state counts."""
        trains = torch.is_grad_enabled()
        counts = trains or not self._trains
        # Predictions before the first training do not count any more.
        older = self._alive() if self._trains == trains else []
        if counts:
            self._trains = trains
            position = self._position = self._first_position(trains)
        else:
            # An evaluation has a position of its own, and begins at the first batch.
            position = _Position(self.sampler.epoch)
        self.sampler.go_to(position.epoch, skip=position.batches)
        iteration.position, iteration.batches, iteration.trains = position, super().__iter__(), trains
        self._number = iteration.number = self._number + 1
        if counts:
            self._under_way = [weakref.ref(each) for each in (*older, iteration)]

    def _alive(self) -> list[_Iteration]:
        """Return the iterations that count, that someone still holds and that are not exhausted; the oldest first."""
        found = (reference() for reference in self._under_way)
        return [iteration for iteration in found if iteration is not None and not iteration.is_exhausted]

    def _first_position(self, trains: bool) -> _Position:
        """Return where the next iteration begins: at the position of a loaded state, or at the start of an epoch."""
        epoch, latest = self.sampler.epoch, self._position
        if latest.in_middle and latest.epoch != epoch:
            warnings.warn(
                f"the loader resumes in the middle of epoch {latest.epoch}, but epoch {epoch} was set afterwards, as "
                "Lightning does if max_steps ended the fit before the checkpoint was saved; the remaining batches of "
                f"epoch {latest.epoch} come first. To start epoch {epoch} instead, call set_epoch of the loader.",
                UserWarning,
                stacklevel=4,
            )
            return _Position(latest.epoch, latest.batches)
        if latest.length is not None and latest.epoch == epoch:
            return _Position(epoch, latest.batches)
        return _Position(self._next_epoch if trains and self.sampler.advances else epoch)

    def describe(self) -> Description:
        """Return what the batches of the current epoch are like: shape, bytes, padding and its causes, and balance.

        ``print(loader.describe())`` shows the same as the command ``dgl-tuplepack inspect``.
        """
        sampler, view = self.sampler, self.view
        shapes = self.shape if isinstance(self.shape, tuple) else (self.shape,)
        padded: tuple[PaddedShape, ...] = getattr(getattr(view, "collate", view), "shapes", ())
        size = padded[-1].nbytes if padded else None
        if isinstance(view, BatchView) and not padded:
            size = bytes_of(view.store.schema, shapes[-1])
        aim = {} if self.search is None else self.search.aim
        return described(sampler, shapes, size, self.padded, self.multiple_of, aim, self._ids)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, the position in it and the settings, as plain values that are equal on all ranks.

        The position counts the batches that the loop over this loader received. If several iterations are under way,
        the oldest counts (after `set_epoch`, the oldest of this epoch), so an evaluation in the middle of a training
        epoch changes nothing; an iteration ends when it is exhausted or, after ``break``, discarded. If none is under
        way, the last one that ran counts. Batches that workers made ahead, and evaluations under ``torch.no_grad()``
        after a training, do not count. Lightning saves and restores the state with its checkpoints.
        """
        epoch, advances = self.sampler.epoch, self.sampler.advances
        under_way = (each.position for each in self._alive() if advances or each.position.epoch == epoch)
        latest = next(under_way, self._position)
        position = latest if advances or latest.in_middle or latest.epoch == epoch else _Position(epoch)
        progress = {"version": _VERSION, "epoch": position.epoch, "position": position.batches}
        earlier = self.sampler.segments_of(position.epoch)
        begun = {"earlier_ranks": [list(segment) for segment in earlier]} if earlier else {}
        settings = _settings_of(self.sampler)
        return {**progress, "next_epoch": self._next_epoch, **settings, "trains": self._trains, **begun}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the next iteration, in the epoch of the state, after the batches that the loop had received.

        If another number of ranks saved the state, what is left of its epoch is dealt anew to the ranks of now, so that
        each graph still comes once; later epochs are as usual. If the epoch was complete, the next iteration is empty.
        `set_epoch` with another epoch discards the state.

        Raises
        ------
        SamplerError
            The state comes from a loader with other settings or graphs; or too few graphs are left for a step.
        """
        self._position, self._next_epoch, segments = _progress_of(state, self.sampler)
        self.sampler.begin_with(self._position.epoch, segments)
        self._trains, self._under_way = bool(state.get("trains", True)), []
        self.sampler.go_to(self._position.epoch)
        if segments:
            # What is left may not suffice for a step; better to say so now.
            self._position.length = len(self.sampler.batches_of(self._position.epoch))

    def __repr__(self) -> str:
        padding = "padded" if self.padded else "not padded"
        if isinstance(self.sampler, StaticBatchSampler):
            graphs = self.sampler.batch_size
            return f"PackedLoader({len(self)} batches of {graphs} graphs within {self.limits!r}, {padding})"
        packs = f"{self.packs_per_batch} pack{'s' if self.packs_per_batch > 1 else ''}"
        return (
            f"PackedLoader({len(self)} batches of {self.graphs_per_batch:.1f} graphs on average, each {packs} of "
            f"{self.limits!r}, {padding})"
        )


def max_nodes_of(samplers: Collection[_Sampler]) -> int | dict[str, int]:
    """Return the number of nodes of the largest graph of all samplers; a dict by node type if there are several."""
    maxima = [sampler.maxima for sampler in samplers]
    names = [*maxima[0]]
    most = {names[i]: max(each[names[i]] for each in maxima) for i in components_of_kind(names, "nodes")}
    return most["nodes"] if [*most] == ["nodes"] else {name.partition(":")[2]: each for name, each in most.items()}


@dataclass
class _Position:
    """Number of `batches` of an epoch that the loop received; a loaded state has also the `length` of the epoch."""

    epoch: int
    batches: int = 0
    length: int | None = None

    @property
    def in_middle(self) -> bool:
        """Whether a loaded position is neither at the start nor at the end of the epoch."""
        return self.length is not None and 0 < self.batches < self.length


# Settings that are checksums -> what differs.
_CHECKSUMS = {
    "sizes": "graphs of other sizes, or in another order, than this sampler has",
    "weights": "other weights or shares of the graphs than this sampler has",
}


def _settings_of(sampler: _Sampler) -> dict[str, Any]:
    """Return the settings that a state and a sampler must have in common."""
    of_plan = {"plan": sampler.plan.fingerprint} if isinstance(sampler, PackBatchSampler) else {}
    return {**sampler.settings(), **of_plan}


def _progress_of(state: Any, sampler: _Sampler) -> tuple[_Position, int, list[tuple[int, int]]]:
    """Return the position, the next unused epoch, and the steps of other numbers of ranks before the position.

    SamplerError if the state has other settings or graphs.
    """
    if not isinstance(state, Mapping) or "version" not in state:
        raise SamplerError(f"a state must be what state_dict() returned, but is {shown(state)}; pass that result.")
    if state["version"] != _VERSION:
        raise SamplerError(
            f"the state has version {state['version']!r}, but this release reads version {_VERSION}; "
            "use the release that saved it, or begin the epoch again."
        )
    settings = _settings_of(sampler)
    missing = [name for name in ("epoch", "position", *settings) if name not in state and name != "weights"]
    if missing:
        raise SamplerError(f"the state lacks {', '.join(missing)}; give what state_dict() returned for such a loader.")
    # States of version 0.1.0 may be of epochs with new plans.
    expected = {"weights": None, "replan_every": None, **settings}
    # Limits and a plan follow from the graphs and their weights, which are named first.
    for name in sorted(expected, key=("limits", "plan").__contains__):
        saved, value = state.get(name), expected[name]
        if saved != value and name != "num_replicas":
            # A default may have changed since the state was saved.
            same = f"the same settings and graphs{f' (pass content={saved!r})' if name == 'content' else ''}"
            shows = f"{name} {saved!r}, but this sampler has {value!r}"
            raise SamplerError(
                f"the state was saved with {_CHECKSUMS.get(name, shows)}; resuming would repeat or lose graphs, so use "
                f"{same}, or begin the epoch again."
            )
    epoch = whole_number("epoch of a state", state["epoch"], 0, UINT64_MAX, SamplerError)
    ranks, length = whole_number("num_replicas of a state", state["num_replicas"], 1, 2**31, SamplerError), len(sampler)
    segments = [(int(number), int(steps)) for number, steps in state.get("earlier_ranks", ())]
    if ranks == sampler.num_replicas and not segments:
        batches = whole_number("position of a state", state["position"], 0, length, SamplerError)
    else:
        batches = whole_number("position of a state", state["position"], 0, 2**63, SamplerError)
    if ranks != sampler.num_replicas and batches:
        segments, batches = [*segments, (ranks, batches)], 0
    # Earlier releases did not save the next epoch.
    following = state.get("next_epoch", min(epoch + (batches > 0), UINT64_MAX))
    following = whole_number("next_epoch of a state", following, 0, UINT64_MAX, SamplerError)
    return _Position(epoch, batches, length), following, segments


def refuse_collate(collate: object, padded: bool) -> None:
    """Raise InputError for a collate function that would replace the collate function of a loader."""
    if padded:
        raise InputError(
            f"a loader with padded=True makes batches of static shapes, but collate_fn={shown(collate)} would not; "
            "leave it out, or use it with padded=False."
        )
    raise InputError(
        f"the collate_fn of a loader is chosen when the loader is made, but {shown(collate)} was set later; give it as "
        "packed_loader(..., padded=False, collate_fn=...)."
    )


_log = logging.getLogger(__name__)


def whole_batches(dataset: Any, framework: str, with_ids: bool) -> WholeBatches | None:
    """Return `WholeBatches` for a store, OGB folder, their paths, a subset, or an unpadded view; otherwise None."""
    if isinstance(dataset, WholeBatches) and not dataset.is_packed:
        # Lightning, for instance, rebuilds a loader from the loader's attributes.
        return dataset
    # Only views of padded batches have shapes.
    if isinstance(dataset, BatchView) and not dataset.shapes:
        return WholeBatches(dataset, dataset) if dataset.framework == framework else None
    store = dataset
    if isinstance(dataset, str | os.PathLike | OgbFolder):
        store = dataset = opened(dataset, in_memory=True).items
    stored = Stored.of_object(store)
    if stored is not None:
        store = stored.by_position()
    if isinstance(store, StoredGraphs | DeviceStore):
        return WholeBatches(dataset, store.batched(framework=framework, with_ids=with_ids))
    return None


@functools.cache
def log_workers() -> None:
    """Report, once in a process, that workers slow down loading from a store."""
    _log.info(
        "num_workers > 0: a store makes batches much faster than workers can send them to this process, so loading is "
        "many times slower than with num_workers=0; workers pay only for a slow transform."
    )


class CollateWithIds:
    """Collate the items of a `WithIds`; the ids become the last element of the batch, or for PyG its `graph_ids`."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, items: Sequence[Identified]) -> Any:
        """Return the batch of the items, with their ids."""
        batch = self.collate([item.item for item in items])
        made = with_graph_ids(tuple(batch) if isinstance(batch, list) else batch, torch.tensor([i.id for i in items]))
        return list(made) if isinstance(made, tuple) else made
