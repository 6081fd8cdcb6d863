"""Datasets of many shards: read, planned and written shard by shard, by one process, by many, or on a cluster."""
