"""The settings that `packed_loader` passes on, sorted by the object that receives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

import torch

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.coordinates import Coordinates
from dgl_tuplepack.batches.shape import Fill
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.relations import Indices, Ties
from dgl_tuplepack.loading.packed_loader import refuse_collate


class SamplerSettings(TypedDict, total=False):
    """Settings of `PackBatchSampler`."""

    content: str | None
    num_replicas: int | None
    rank: int | None
    drop_last: bool
    replan_every: None


class BatchSettings(TypedDict, total=False):
    """Settings of `PaddedCollate` and `GraphStore.padded`."""

    label_fill: Fill
    feature_fill: Fill
    cover_padding: bool
    idtype: torch.dtype
    coordinates: Coordinates
    sort_edges: bool
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


# Settings that state facts about the graphs. A store gets these settings when it is written.
DECLARED = ("ties", "indices", "levels")
# Settings of the sampler that apply to all splits. The others apply only to leading splits: the shuffled splits, or all
# splits if none is shuffled.
_OF_ALL_SPLITS = ("num_replicas", "rank")
# Settings of batches that also apply without padding.
_WITHOUT_PADDING = ("transform", "transform_seed", "as_stored")
# Arguments that users may expect, but that `packed_loader` does not accept -> advice in the error.
_CHOSEN = {
    "batch_size": "give graphs_per_batch, the mean number of graphs per batch",
    "budget": "search first, search = tp.search_limits(source, budget=...), and give limits=search.best.limits",
    "sampler": "the loader makes its own sampler from limits and seed",
    "batch_sampler": "the loader makes its own sampler from limits and seed",
}


@dataclass(frozen=True)
class Settings:
    """Settings, sorted by the object that receives them."""

    sampler: dict[str, Any] = field(default_factory=dict)
    batch: dict[str, Any] = field(default_factory=dict)
    loader: dict[str, Any] = field(default_factory=dict)
    collate: Callable[[Any], Any] | None = None

    def of_sampler(self, leads: bool) -> dict[str, Any]:
        """Return the sampler settings of a split: all if it is a leading split, else only those in _OF_ALL_SPLITS."""
        return {name: value for name, value in self.sampler.items() if leads or name in _OF_ALL_SPLITS}

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
            f"{name} cannot be given with padded=False, since DGL's collate ignores them; write a store with "
            f"them, GraphStore.write(path, graphs, {name}=...), and give the store."
        )
    raise InputError(f"{name} applies only to padded batches, but padded=False; leave {name} out.")
