"""Padded batches of a store that have one of several shapes, or are transformed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from dgl_tuplepack._core.checks import as_integers
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.batch_transform import BatchTransform
from dgl_tuplepack.batches.shape import number_of_shape
from dgl_tuplepack.graphs.items import epoch_of, shape_of
from dgl_tuplepack.planning.sizes import IntArray


class PaddedView:
    """View of a store whose item for a list of ids is one `PaddedBatch`.

    Made by `padded` of a store, for several shape buckets, or for a transform of batches. The ids of a
    `PackBatchSampler` carry the shape; other ids get the smallest one that holds them.

    Attributes
    ----------
    views
        The view of each shape, the smallest first.
    shapes
        The shape of each view.
    """

    def __init__(self, views: Sequence[Any], transform: Callable[[PaddedBatch], Any] | None, seed: int) -> None:
        self.views, self.shapes = tuple(views), tuple(view.shape for view in views)
        # What all views share, and the shape that holds every pack.
        self.store, self.shape = self.views[0].store, self.shapes[-1]
        self._transform = None if transform is None else BatchTransform(transform, seed, self._padded([]))

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, ids: Sequence[int] | IntArray | Tensor) -> PaddedBatch:
        batch = self._padded(ids)
        if self._transform is None:
            return batch
        return self._transform(batch, self.store.ids_in_store(as_integers(ids)).tolist(), epoch_of(ids))

    def _padded(self, ids: Sequence[int] | IntArray | Tensor) -> PaddedBatch:
        told = shape_of(ids)
        content = [] if told is not None or len(self.views) == 1 else self.views[0].content_of(ids)
        batch: PaddedBatch = self.views[number_of_shape(self.shapes, told, content)][ids]
        return batch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that the transform draws from if ids do not carry one, also in worker processes.

        The ids of a `PackBatchSampler` carry it.
        """
        if self._transform is not None:
            self._transform.draws.set_epoch(epoch)


def joined_views(views: Sequence[Any], transform: Callable[[PaddedBatch], Any] | None, seed: int) -> Any:
    """Return the only view as it is, if nothing transforms its batches; otherwise a `PaddedView`."""
    return views[0] if len(views) == 1 and transform is None else PaddedView(views, transform, seed)
