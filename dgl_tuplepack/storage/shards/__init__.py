"""Datasets of many shards: read, planned and written shard by shard, in one process, in many, or on a cluster."""
