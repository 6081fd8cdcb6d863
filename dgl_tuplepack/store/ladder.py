"""Padded batches of several shapes, one view of a store for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from dgl_tuplepack.graphs.items import shape_of
from dgl_tuplepack.padding.batch import PaddedBatch
from dgl_tuplepack.padding.batch_transform import Transformable
from dgl_tuplepack.padding.ladder import number_of_shape
from dgl_tuplepack.sizes import IntArray


class LadderPadded(Transformable):
    """View of a store whose item for a list of ids is one `PaddedBatch` of one of several shapes.

    Made by `padded` of a store, for a ladder of limits. The ids of a `PackBatchSampler` tell the shape; other ids get
    the smallest one that holds them.

    Attributes
    ----------
    views
        The view of each shape, the smallest first.
    shapes
        The shape of each view.
    """

    def __init__(self, views: Sequence[Any]) -> None:
        self.views, self.shapes = tuple(views), tuple(view.shape for view in views)
        # What all views share, and the shape that holds every pack.
        self.store, self.shape = self.views[0].store, self.shapes[-1]

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, ids: Sequence[int] | IntArray | Tensor) -> PaddedBatch:
        told = shape_of(ids)
        content = [] if told is not None else self.views[0].content_of(ids)
        batch: PaddedBatch = self.views[number_of_shape(self.shapes, told, content)][ids]
        return batch


def joined_views(views: Sequence[Any]) -> Any:
    """Return the only view as it is, and several as one."""
    return views[0] if len(views) == 1 else LadderPadded(views)
