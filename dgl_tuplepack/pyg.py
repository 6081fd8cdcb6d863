"""A drop-in for PyG's `DataLoader` that reads whole batches from stores."""

from dgl_tuplepack.loading.pyg_loader import DataLoader

__all__ = ["DataLoader"]
