"""From a plan to batches of graph ids: which packs share a step, what an epoch holds, ranks, and resuming."""

from dgl_tuplepack.sampling.batches import PackBatchSampler
from dgl_tuplepack.sampling.dealing import Balance

__all__ = ["Balance", "PackBatchSampler"]
