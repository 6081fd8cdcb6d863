"""From a plan to batches of graph ids: which packs share a step, what an epoch holds, ranks, and resuming."""

from dgl_tuplepack.sampler.batches import PackBatchSampler
from dgl_tuplepack.sampler.dealing import Balance

__all__ = ["Balance", "PackBatchSampler"]
