"""Batches of one static shape: graphs in, padded tensors and a DGLGraph out, and back."""

from dgl_tuplepack.padding.batch import PaddedBatch
from dgl_tuplepack.padding.collate import PaddedCollate
from dgl_tuplepack.padding.tensors import BatchTensors
from dgl_tuplepack.padding.unpad import unpad

__all__ = ["BatchTensors", "PaddedBatch", "PaddedCollate", "unpad"]
