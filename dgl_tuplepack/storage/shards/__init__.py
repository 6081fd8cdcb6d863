"""Datasets of many shards: read, planned and written shard by shard, in one process, in several processes, or on a cluster."""
