"""Datasets of many shards: read, planned and written shard by shard, by one process, by many, or on a cluster."""

from dgl_tuplepack.storage.shards.run import Sharded, preprocess_shards, verify_shards
from dgl_tuplepack.storage.shards.shard import Shard

__all__ = ["Shard", "Sharded", "preprocess_shards", "verify_shards"]
