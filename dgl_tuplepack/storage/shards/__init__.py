"""Datasets of many shards: read, planned and written shard by shard, in one or more processes, or on a cluster."""
