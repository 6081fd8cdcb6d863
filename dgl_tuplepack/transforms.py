"""Transforms of single graphs, for `dgl.transforms.Compose`, and of whole padded batches.

::

    PadToLimits(limits)                     a DGLGraph in, a padded DGLGraph out
    AddNoise, FlipSigns, MaskNodes          change a PaddedBatch and return it; pass as batch_transform=
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.batches.transforms.random_changes import AddNoise, FlipSigns, MaskNodes

if TYPE_CHECKING:
    from dgl_tuplepack.batches.transforms.pad_to_limits import PadToLimits as PadToLimits

__all__ = ["AddNoise", "FlipSigns", "MaskNodes", "PadToLimits"]


def __getattr__(name: str) -> Any:
    if name != "PadToLimits":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # PadToLimits subclasses a DGL class.
    load("dgl")
    from dgl_tuplepack.batches.transforms.pad_to_limits import PadToLimits

    return PadToLimits


def __dir__() -> list[str]:
    return __all__
