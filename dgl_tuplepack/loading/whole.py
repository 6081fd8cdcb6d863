"""Whole batches of a store for loaders, which would otherwise collate single items."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

from dgl_tuplepack.graphs.items import Identified
from dgl_tuplepack.graphs.readers.ogb_folder import OgbFolder
from dgl_tuplepack.loading.opened import opened
from dgl_tuplepack.storage.device import DeviceStore
from dgl_tuplepack.storage.graph_store import StoredGraphs
from dgl_tuplepack.storage.reader import Stored
from dgl_tuplepack.storage.view import BatchView, with_graph_ids

_log = logging.getLogger(__name__)


class WholeBatches(Dataset[Any]):
    """A store as the dataset of a loader: for the ids of a batch it returns one batch, not a list of items.

    The attributes of the user's `dataset` can be read from this object too.
    """

    def __init__(self, dataset: Any, view: BatchView) -> None:
        self.dataset, self.view = dataset, view

    def __len__(self) -> int:
        return len(self.view)

    def __getitem__(self, ids: Any) -> Any:
        return self.view[ids]

    def __getitems__(self, ids: Sequence[int]) -> Any:
        """Return the batch of the graphs `ids`; torch's loaders pass it on to their `collate_fn`."""
        return self.view[ids]

    def __getattr__(self, name: str) -> Any:
        # `copy` and `pickle` look up attributes before `dataset` is set; `getattr` below would then recurse forever.
        if name.startswith("__") or name in ("dataset", "view"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.dataset, name)


def whole_batches(dataset: Any, framework: str, with_ids: bool) -> WholeBatches | None:
    """Return `WholeBatches` for a store or OGB folder, its path, a subset of a store, or a view without padding.

    Return None for other datasets, and for a view of another framework.
    """
    if isinstance(dataset, WholeBatches):
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
