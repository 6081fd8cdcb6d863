"""One padded batch: its shape, its tensors, and its views for frameworks.

In: graphs, or flat arrays of a store. Out: `PaddedBatch`, which `unpad` splits into graphs again. Eager code uses
``batch.graph``, compiled code ``batch.tensors``; ``batch.pyg`` and ``batch.jraph`` are the same batch for PyG and
jraph. Start with `collate.py`, which makes a batch, and `batch.py`.
It may use `_core`, `planning`, `graphs`, `compiling` and `nn`.
"""
