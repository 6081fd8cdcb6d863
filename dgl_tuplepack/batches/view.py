"""Read whole batches of a dataset by lists of ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dgl_tuplepack.graphs.items import BatchItems, Identified, check_number, epoch_of, parts_of, shape_index_of
from dgl_tuplepack.planning.sizes import IntArray


class CollatedView:
    """View of a dataset: ``view[ids]`` is the batch that `collate` makes of the items at the positions `ids`.

    If the `ids` of a sampler carry an epoch, items that get an id also get this epoch, which seeds random transforms.
    If they carry the shape of their batch, `collate` gets the shape, too.

    Attributes
    ----------
    dataset
        The items. If the dataset has ``__getitems__``, one call reads all items of a batch, as in torch.
    collate
        Function from a list of items to a batch.
    ids
        The ids that become the `graph_ids` of a batch: an int64 array ``[N]`` with the id of each position in the
        dataset; or "own", for the ids that the items have; or None, to add no ids.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], ids: IntArray | str | None = None) -> None:
        self.dataset, self.collate, self.ids = dataset, collate, ids
        # Called in place of `collate`, with `collate`, the items and their positions; for loaders that check sizes.
        self.collated: Callable[[Any, Any, Any], Any] | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, ids: Any) -> Any:
        fetch, epoch = getattr(self.dataset, "__getitems__", None), epoch_of(ids)
        items = fetch(ids) if fetch is not None and len(ids) else [self.dataset[i] for i in ids]
        check_number(items, ids)
        given = [self._identified(i, item, epoch) for i, item in zip(ids, items, strict=True)]
        shape_index = shape_index_of(ids)
        items = given if shape_index is None else BatchItems(given, shape_index)
        return self.collate(items) if self.collated is None else self.collated(self.collate, items, ids)

    def _identified(self, position: int, item: Any, epoch: int | None) -> Any:
        """Return an item with its id and the epoch; an item that gets no id is returned unchanged."""
        if isinstance(self.ids, np.ndarray):
            return Identified(int(self.ids[position]), item, epoch)
        if isinstance(item, Identified):
            # The item may lack the epoch: a torch `Subset` of a `with_ids` dataset passes on ids without their epoch.
            return replace(item, epoch=epoch)
        own = parts_of(item, f"item {position}").id if self.ids == "own" else None
        return item if own is None else Identified(own, item, epoch)
