"""Which graphs meet when: from a plan to batches of ids, for epochs, ranks and streams.

In: a plan, or sizes as they come. Out: lists of ids (`PackBatchSampler`), or packs of a stream (`StreamPacker`).
It may use all rooms up to `batches`.
"""
