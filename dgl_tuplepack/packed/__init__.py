"""The dataset transform: a DGLDataset whose items are padded packs, for DGL's own loader and collate.

::

    PackedDataset(source, limits)           item i is pack i of the epoch, (DGLGraph, PackLabels)
    flatten_packs(graph, labels)            masks and labels of a batch of packs, for losses and norms
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgl_tuplepack.packed.labels import FlatPacks, PackLabels, flatten_packs

if TYPE_CHECKING:
    from dgl_tuplepack.packed.dataset import PackedDataset as PackedDataset

__all__ = ["FlatPacks", "PackLabels", "PackedDataset", "flatten_packs"]


def __getattr__(name: str) -> Any:
    if name != "PackedDataset":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # It is a subclass of one of DGL's classes; the rest does not need DGL.
    from dgl_tuplepack._optional import load

    load("dgl")
    from dgl_tuplepack.packed.dataset import PackedDataset

    globals()[name] = PackedDataset
    return PackedDataset


def __dir__() -> list[str]:
    return __all__
