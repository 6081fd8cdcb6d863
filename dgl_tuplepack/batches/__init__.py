"""One padded batch: its shape, its tensors, and what frameworks see of it.

In: graphs, or flat arrays of a store. Out: `PaddedBatch`; back: `unpad`. Eager code uses ``batch.graph``, compiled code
``batch.tensors``; ``batch.pyg`` and ``batch.jraph`` are the same batch for PyG and jraph.
It may use all rooms up to `nn`.
"""
