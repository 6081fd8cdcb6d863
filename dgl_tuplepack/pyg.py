"""A drop-in for PyG's `DataLoader` that reads whole batches from stores."""

from dgl_tuplepack.loading.pyg import DataLoader

__all__ = ["DataLoader"]
