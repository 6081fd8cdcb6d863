"""Loaders: one call that chooses everything, and DGL's own loader with whole batches of stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgl_tuplepack._core.optional import lazy_class
from dgl_tuplepack.loading.calls import packed_loader, packed_loaders
from dgl_tuplepack.loading.packed_loader import PackedLoader

if TYPE_CHECKING:
    from dgl_tuplepack.loading.graph_loader import GraphDataLoader as GraphDataLoader

__all__ = ["GraphDataLoader", "PackedLoader", "packed_loader", "packed_loaders"]

# A subclass of one of DGL's classes; the rest does not need DGL.
__getattr__ = lazy_class(globals(), "GraphDataLoader", "dgl_tuplepack.loading.graph_loader")


def __dir__() -> list[str]:
    return __all__
