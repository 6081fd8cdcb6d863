"""Whole batches of the items of a dataset, by lists of ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dgl_tuplepack.graphs.items import BatchItems, Identified, check_number, epoch_of, parts_of, shape_of
from dgl_tuplepack.planning.sizes import IntArray


class CollatedView:
    """View of a dataset whose item for a list of ids is one whole batch, made by `collate` of the items.

    The epoch that ids carry goes with the items to transforms.

    Attributes
    ----------
    dataset
        Where items come from, one after the other (or by its own ``__getitems__``, as torch asks for them).
    collate
        Function from a list of items to a batch.
    ids
        The ids that `collate` gets items with: int64 ``[N]``, "own" ids of items, or None, for items as they are.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], ids: IntArray | str | None = None) -> None:
        self.dataset, self.collate, self.ids = dataset, collate, ids

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, ids: Any) -> Any:
        several, epoch = getattr(self.dataset, "__getitems__", None), epoch_of(ids)
        items = several(ids) if several is not None and len(ids) else [self.dataset[i] for i in ids]
        check_number(items, ids)
        given, shape = [self._identified(i, item, epoch) for i, item in zip(ids, items, strict=True)], shape_of(ids)
        return self.collate(given if shape is None else BatchItems(given, shape))

    def _identified(self, position: int, item: Any, epoch: int | None) -> Any:
        """Return an item with its id and the epoch, as far as `collate` gets them."""
        if isinstance(self.ids, np.ndarray):
            return Identified(int(self.ids[position]), item, epoch)
        if isinstance(item, Identified):
            # A subset of `with_ids` does not hand the epoch on.
            return replace(item, epoch=epoch)
        own = parts_of(item, f"item {position}").id if self.ids == "own" else None
        return item if own is None else Identified(own, item, epoch)
