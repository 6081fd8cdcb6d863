"""Datasets on the disk: flat, memory-mapped arrays, from which padded batches are assembled fast."""

from dgl_tuplepack.storage.graph_store import GraphStore
from dgl_tuplepack.storage.multi_store import MultiStore
from dgl_tuplepack.storage.padded import PaddedStore

__all__ = ["GraphStore", "MultiStore", "PaddedStore"]
