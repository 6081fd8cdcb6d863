"""For scripts of PyG: its loader, with whole batches of stores."""

from dgl_tuplepack.loading.pyg import DataLoader

__all__ = ["DataLoader"]
