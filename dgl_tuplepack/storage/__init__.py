"""Graphs on disk: flat, memory-mapped arrays, written once and read as batches.

In: any source. Out: `GraphStore` and `MultiStore`, their items and whole batches. `preprocess` writes a store with its
plans, `preprocess_shards` many stores as one dataset; `write_chunks` and `partition` write DGL's distributed formats.
Start with `graph_store.py`.

It may use `_core`, `planning`, `graphs`, `batches` and `sampling`.
"""
