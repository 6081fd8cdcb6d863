"""Choose which graphs share a batch: from a plan to batches of ids, for epochs, ranks and streams.

In: a plan, a batch size, or a stream of graphs. Out: lists of ids (`PackBatchSampler`, `StaticBatchSampler`), or packs
of the stream (`StreamPacker`). Start with `pack_sampler.py`.
It may use `_core`, `planning` and `graphs`.
"""
