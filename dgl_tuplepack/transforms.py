"""Transforms of single graphs, for `dgl.transforms.Compose`, and of whole padded batches.

::

    PadToLimits(limits)                     a DGLGraph in, a padded DGLGraph out
    AddNoise, FlipSigns, MaskNodes          a PaddedBatch in, the same batch out: batch_transform=
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgl_tuplepack._core.optional import lazy_class
from dgl_tuplepack.batches.transforms.batches import AddNoise, FlipSigns, MaskNodes

if TYPE_CHECKING:
    from dgl_tuplepack.batches.transforms.pad_to_limits import PadToLimits as PadToLimits

__all__ = ["AddNoise", "FlipSigns", "MaskNodes", "PadToLimits"]


# PadToLimits subclasses a DGL class; the other transforms do not need DGL.
__getattr__ = lazy_class(globals(), "PadToLimits", "dgl_tuplepack.batches.transforms.pad_to_limits")


def __dir__() -> list[str]:
    return __all__
