"""Count the pairs of graphs that share a batch at least once, over the batches of real epochs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import dgl_tuplepack as tp
from study.runs import Arm


def shares_met(batches_of_epoch: Iterable[Iterable[NDArray[np.int64]]], number: int) -> Iterator[float]:
    """Yield the share of all pairs of `number` graphs that have met, after each epoch; needs `number` squared bytes."""
    met = np.zeros((number, number), dtype=bool)
    for batches in batches_of_epoch:
        for ids in batches:
            met[ids[:, None], ids] = True
        yield (np.count_nonzero(met) - np.count_nonzero(met.diagonal())) / (number * (number - 1))


def batches_of(sizes: tp.GraphSizes, limits: tp.Limits, arm: Arm, epochs: int) -> Iterator[Iterator[NDArray[np.int64]]]:
    """Yield, for each epoch, the graph ids of each batch."""
    content = arm.content or "resample"
    sampler: Any = tp.PackBatchSampler(sizes, limits, packs_per_batch=arm.packs, content=content)
    size = round(len(sizes) / len(sampler))
    if arm.batches == "exact":
        sampler = tp.StaticBatchSampler(sizes, size)
    generator = torch.Generator().manual_seed(0)
    for epoch in range(epochs):
        if arm.batches == "plain":
            yield (ids.numpy() for ids in torch.randperm(len(sizes), generator=generator).split(size))
        else:
            sampler.set_epoch(epoch)
            yield (np.asarray(ids) for ids in sampler)


def expected_share(number: int, size: float, epochs: int) -> float:
    """Return the expected share of pairs that have met after `epochs` epochs of shuffled batches of `size` graphs.

    In one epoch, a graph shares its batch with ``size - 1`` of the ``number - 1`` others.
    """
    return float(1 - (1 - (size - 1) / (number - 1)) ** epochs)
