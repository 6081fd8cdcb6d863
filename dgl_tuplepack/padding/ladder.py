"""Which shape of a ladder a batch is padded to."""

from __future__ import annotations

from collections.abc import Sequence

from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.padding.shape import PaddedShape


def number_of_shape(shapes: Sequence[PaddedShape], told: int | None, content: Sequence[int]) -> int:
    """Return the number of the shape that a batch is padded to.

    It is the one that the sampler told, so that all ranks have the same one in a step; where nothing told it, the
    smallest that holds the content, or the largest, which then refuses it. SamplerError if there are fewer shapes.
    """
    if len(shapes) == 1:
        return 0
    if told is not None:
        if told >= len(shapes):
            raise SamplerError(
                f"the batch is for shape {told} of a ladder, but batches are padded to {len(shapes)} shapes; pad to "
                "sampler.limits."
            )
        return told
    return next((number for number, shape in enumerate(shapes[:-1]) if shape.holds(content)), len(shapes) - 1)
