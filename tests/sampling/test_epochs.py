"""Order and content of batches: the same for one seed, uniform over seeds, and different in every epoch."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

import dgl_tuplepack as tp
from dgl_tuplepack._core.kernels.random import derive_key, shuffle_segments

GOLDEN_SIZES = tp.GraphSizes([[3, 4], [2, 2], [1, 0], [4, 3], [2, 3]] * 3)
GOLDEN_LIMITS = tp.Limits(nodes=7, edges=8)
GOLDEN = {
    ("fixed", 0): [[5, 8], [7, 11, 4], [0, 3], [2, 6, 14], [10, 13], [12, 1, 9]],
    ("fixed", 1): [[10, 13], [0, 3], [7, 11, 4], [2, 6, 14], [12, 1, 9], [5, 8]],
    ("resample", 0): [[5, 8], [7, 11, 4], [0, 3], [2, 6, 14], [10, 13], [12, 1, 9]],
    ("resample", 1): [[10, 8], [5, 3], [2, 6, 9], [12, 11, 14], [7, 1, 4], [0, 13]],
    ("exchange", 0): [[14, 3], [4, 8], [12, 2, 5], [7, 6, 10], [9, 13], [1, 11, 0]],
    ("exchange", 1): [[9, 8], [5, 13], [2, 12, 0], [1, 11, 14], [4, 3], [7, 6, 10]],
}


@pytest.mark.parametrize(("content", "epoch"), GOLDEN)
def test_batches_of_one_seed_never_change(content: str, epoch: int) -> None:
    """Written down, so that neither our generator nor a library's new version changes an experiment silently."""
    # With a given plan, a new default method does not matter.
    plan = tp.pack(GOLDEN_SIZES, GOLDEN_LIMITS, method="best_fit")
    s = tp.PackBatchSampler(GOLDEN_SIZES, GOLDEN_LIMITS, plan=plan, content=content, seed=20240229)
    s.set_epoch(epoch)
    assert list(s) == GOLDEN[content, epoch]


def chi_square(counts: Counter[Any], outcomes: int) -> float:
    """Pearson's statistic against the uniform distribution; its mean is outcomes - 1."""
    expected = sum(counts.values()) / outcomes
    unseen = outcomes - len(counts)
    return sum((count - expected) ** 2 / expected for count in counts.values()) + unseen * expected


def loose_bound(outcomes: int) -> float:
    """Six standard deviations above the mean: a right kernel passes with any seed that a person would try."""
    freedom = outcomes - 1
    return freedom + 6 * (2 * freedom) ** 0.5


def test_shuffle_kernel_is_uniform() -> None:
    """Keys are those of successive epochs, as a sampler uses them; two segments, each over all its orders."""
    counts: tuple[Counter[tuple[int, ...]], ...] = (Counter(), Counter())
    joint: Counter[tuple[int, int]] = Counter()
    for epoch in range(24_000):
        values = np.array([0, 1, 2, 3, 10, 11, 12, 13, 14])
        shuffle_segments(values, np.array([0, 4, 9]), derive_key(np.uint64(7), np.uint64(epoch), np.uint64(1)))
        counts[0][tuple(values[:4].tolist())] += 1
        counts[1][tuple(values[4:].tolist())] += 1
        joint[int(values[0]), int(values[4])] += 1
    assert chi_square(counts[0], 24) < loose_bound(24)
    assert chi_square(counts[1], 120) < loose_bound(120)
    # The segments do not follow each other.
    assert chi_square(joint, 20) < loose_bound(20)


def test_graphs_of_a_pack_are_uniform() -> None:
    """Which two of six equal graphs join the large one is any of the 15 pairs."""
    sizes = tp.GraphSizes([[6, 0], [4, 0], *[[1, 0]] * 6])
    s = tp.PackBatchSampler(sizes, tp.Limits(8, 1))
    counts: Counter[frozenset[int]] = Counter()
    for epoch in range(6_000):
        s.set_epoch(epoch)
        (pack,) = (pack for pack in s if 0 in pack)
        counts[frozenset(pack)] += 1
    assert chi_square(counts, 15) < loose_bound(15)


@pytest.mark.parametrize("content", ["fixed", "resample", "exchange"])
def test_far_epochs_are_epochs_of_their_own(content: str) -> None:
    """Epochs that agree in their low bits share neither order nor content."""
    sizes = tp.GraphSizes(np.random.default_rng(4).integers(1, 12, (300, 2)))
    s = tp.PackBatchSampler(sizes, tp.Limits(80, 90), content=content)
    found = []
    for epoch in (1, 1 + 2**8, 1 + 2**16, 1 + 2**32, 1 + 2**53, 1 + 2**63, 2**64 - 1):
        s.set_epoch(epoch)
        found.append(list(s))
    assert all(a != b for a, b in itertools.combinations(found, 2))
