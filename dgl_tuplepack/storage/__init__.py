"""Graphs on disk: flat, memory-mapped arrays, written once and read as batches.

In: any source. Out: `GraphStore` and `MultiStore`, their items and whole batches. `preprocess` writes a store with its
plans; `shards/` writes many stores as one dataset.

It may use all rooms up to `sampling`.
"""
