"""One call from graphs and a number of graphs a batch to a loader, with everything between them chosen."""

from dgl_tuplepack.loader.calls import packed_loader, packed_loaders
from dgl_tuplepack.loader.packed import PackedLoader

__all__ = ["PackedLoader", "packed_loader", "packed_loaders"]
