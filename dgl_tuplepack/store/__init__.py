"""Datasets on the disk: flat, memory-mapped arrays, from which padded batches are assembled fast."""

from dgl_tuplepack.store.graph_store import GraphStore
from dgl_tuplepack.store.multi_store import MultiStore
from dgl_tuplepack.store.padded import PaddedStore

__all__ = ["GraphStore", "MultiStore", "PaddedStore"]
