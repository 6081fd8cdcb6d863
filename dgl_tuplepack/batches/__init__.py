"""Batches of one static shape: graphs in, padded tensors and a DGLGraph out, and back."""

from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.collate import PaddedCollate
from dgl_tuplepack.batches.tensors import BatchTensors
from dgl_tuplepack.batches.unpad import unpad

__all__ = ["BatchTensors", "PaddedBatch", "PaddedCollate", "unpad"]
