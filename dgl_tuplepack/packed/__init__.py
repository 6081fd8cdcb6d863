"""The dataset transform: a DGLDataset whose items are padded packs, for DGL's own loader and collate.

::

    PackedDataset(source, limits)           item i is pack i of the epoch, (DGLGraph, PackLabels)
    flatten_packs(graph, labels)            masks and labels of a batch of packs, for losses and norms
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgl_tuplepack._optional import lazy_class
from dgl_tuplepack.packed.labels import FlatPacks, PackLabels, flatten_packs

if TYPE_CHECKING:
    from dgl_tuplepack.packed.dataset import PackedDataset as PackedDataset

__all__ = ["FlatPacks", "PackLabels", "PackedDataset", "flatten_packs"]


# A subclass of one of DGL's classes; the rest does not need DGL.
__getattr__ = lazy_class(globals(), "PackedDataset", "dgl_tuplepack.packed.dataset")


def __dir__() -> list[str]:
    return __all__
