"""The dataset of a loader over a store, whose batches are fetched whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset, Subset

from dgl_tuplepack.storage.device import DeviceStore
from dgl_tuplepack.storage.graph_store import StoredGraphs
from dgl_tuplepack.storage.view import BatchView


class WholeBatches(Dataset[Any]):
    """A store as the dataset of a loader, which gets one batch, not a list of items, for the ids of a batch.

    Attributes
    ----------
    dataset
        The store. Its attributes are also those of this object.
    view
        Makes the batches.
    """

    def __init__(self, dataset: Any, view: Any) -> None:
        self.dataset, self.view = dataset, view

    def __len__(self) -> int:
        return len(self.view)

    def __getitem__(self, ids: Any) -> Any:
        return self.view[ids]

    def __getitems__(self, ids: Sequence[int]) -> Any:
        """Return the batch of the graphs `ids`; torch's loaders call this before they collate."""
        return self.view[ids]

    def __getattr__(self, name: str) -> Any:
        # Copies and pickles ask before there is a dataset.
        if name.startswith("__") or name in ("dataset", "view"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.dataset, name)


def given_and_view(dataset: Any, framework: str) -> tuple[Any, Any]:
    """Return the dataset that the user gave, and the view that makes whole batches of it; None if it has none."""
    if isinstance(dataset, WholeBatches):
        # Frameworks rebuild loaders from their attributes.
        dataset = dataset.dataset
    if isinstance(dataset, BatchView) and not dataset.shapes:
        return dataset, dataset if dataset.framework == framework else None
    store = dataset
    is_of_store = isinstance(dataset, Subset) and isinstance(dataset.dataset, StoredGraphs)
    if is_of_store and len(dataset):
        store = dataset.dataset.subset(dataset.indices)
    if isinstance(store, StoredGraphs | DeviceStore):
        return dataset, store.batched(framework=framework)
    return dataset, None
