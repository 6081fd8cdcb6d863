"""Order and content of batches: the same for one seed, uniform over seeds; and dealing packs to ranks."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack._core.kernels.random import derive_key, shuffle_segments
from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.planning.buckets import num_steps
from dgl_tuplepack.sampling.epoch_batches import NONE
from dgl_tuplepack.sampling.pack_sampler import Balance, deal
from tests.support.messages import refused

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


# --- dealing packs to ranks

KEY = np.uint64(7)


def balance_of(work: list[float], ranks: int, packs_per_batch: int = 1, drop_last: bool = False) -> Balance:
    of = np.array(work)
    dealt = deal(of, ranks, packs_per_batch, drop_last, KEY)
    return Balance(np.where(dealt == NONE, 0, of[dealt]).sum(axis=2))


def test_equal_packs_meet_and_the_emptiest_come_last() -> None:
    work = np.array([10.0, 90, 50, 88, 52, 11, 91, 49, 3])
    dealt = deal(work, 2, 1, drop_last=False, key=KEY)
    steps = [sorted(work[step[step != NONE]].tolist()) for step in dealt.reshape(len(dealt), -1)]
    assert sorted(steps[:-1]) == [[10, 11], [49, 50], [52, 88], [90, 91]]
    assert steps[-1] == [3]


def test_batches_of_several_packs_are_evened_out() -> None:
    assert balance_of([9, 8, 7, 6, 5, 4, 3, 2], ranks=2, packs_per_batch=4).largest_spread == 0
    assert balance_of([9, 1, 8, 2], ranks=2, packs_per_batch=2).largest_spread == 0


def test_what_is_dropped_is_the_end_of_the_order() -> None:
    """Not the emptiest packs: the same graphs would be left out in every epoch."""
    work = np.array([1.0, 90, 50, 88, 52])
    dealt = deal(work, 2, 1, drop_last=True, key=KEY)
    assert sorted(dealt.reshape(-1).tolist()) == [0, 1, 2, 3]


def test_no_rank_always_gets_the_most() -> None:
    work = np.arange(1.0, 41)
    dealt = deal(work, 4, 1, drop_last=False, key=KEY)[:, :, 0]
    most = Counter(work[dealt].argmax(axis=1).tolist())
    assert sorted(most.values()) == [2, 2, 3, 3]


def test_work_of_nothing() -> None:
    """Graphs without nodes and edges weigh nothing."""
    dealt = deal(np.zeros(5), 2, 2, drop_last=False, key=KEY)
    assert sorted(dealt[dealt != NONE].tolist()) == [0, 1, 2, 3, 4]
    assert balance_of([0.0] * 4, ranks=2).idle == 0
    assert balance_of([0.0] * 4, ranks=2).mean_spread == 0
    assert balance_of([1.0], ranks=2, drop_last=True).largest_spread == 0


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=80), st.integers(1, 8), st.integers(1, 4),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_every_pack_once_and_whole_steps(work: list[int], ranks: int, packs: int, drop: bool, balanced: bool) -> None:
    dealt = deal(np.array(work, dtype=np.float64), ranks, packs, drop, KEY if balanced else None)
    assert dealt.shape == (num_steps(len(work), ranks * packs, drop), ranks, packs)
    given_packs = len(work) // (ranks * packs) * ranks * packs if drop else len(work)
    assert sorted(dealt[dealt != NONE].tolist()) == list(range(given_packs))
    numbers = (dealt != NONE).sum(axis=2)
    assert (numbers[:-1] == packs).all()
    assert numbers.size == 0 or numbers[-1].max() - numbers[-1].min() <= 1


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=120), st.integers(2, 8))
def test_a_step_spans_no_more_than_its_neighbours_in_order_of_work(work: list[int], ranks: int) -> None:
    """The spread of full steps is at most that of packs sorted by work, plus what counts as equal, twice."""
    dealt = deal(np.array(work, dtype=np.float64), ranks, 1, drop_last=False, key=KEY)
    full = len(work) // ranks
    spreads = sorted(np.ptp(np.array(work, dtype=np.float64)[dealt[:full, :, 0]], axis=1).tolist())
    falling = np.sort(work)[::-1][: full * ranks].reshape(full, ranks)
    sorted_spreads = sorted(np.ptp(falling, axis=1).tolist())
    for found, least in zip(spreads, sorted_spreads, strict=True):
        assert found <= least + 2 * max(work) / 64


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_work_of_molhiv_is_even(ranks: int) -> None:
    histogram = tp.load_example("ogbg-molhiv")
    sizes = tp.GraphSizes(np.repeat(histogram.sizes, histogram.counts, axis=0))
    plan = tp.pack(histogram, tp.Limits(222, 502, 256))
    sampler = tp.PackBatchSampler(sizes, plan.limits, plan=plan, num_replicas=ranks, rank=0)
    balance = sampler.balance()
    assert balance.work.shape == (len(sampler), ranks)
    assert balance.work.sum() == sizes.array.sum()
    # A random order has a mean spread of 1.8, 3.4 and 4.9 %.
    assert balance.mean_spread < 0.015
    assert balance.idle < 0.006


def test_the_report_is_what_ranks_really_hold() -> None:
    rows = np.random.default_rng(0).integers(1, 20, (150, 2))
    samplers = [
        tp.PackBatchSampler(tp.GraphSizes(rows), tp.Limits(40, 40), num_replicas=3, rank=rank, packs_per_batch=2)
        for rank in range(3)
    ]
    for epoch in (0, 1):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        held = [[rows[batch].sum() for batch in sampler] for sampler in samplers]
        for sampler in samplers:
            assert sampler.balance().work.T.tolist() == held


def test_spreads_are_shares_of_the_mean_work() -> None:
    """Not of the largest batch, nor of the step's own mean."""
    balance = Balance(np.array([[4.0, 0.0], [4.0, 4.0]]))
    assert balance.largest_spread == 4 / 3
    assert balance.mean_spread == 2 / 3
    assert balance.idle == 1 - 12 / 16


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("ranks", [1, 3])
def test_more_packs_a_batch_than_there_are(ranks: int, shuffle: bool, drop_last: bool) -> None:
    """All in one step, at no price; a batch has the packs that any number above theirs would give it."""
    sizes, limits = tp.GraphSizes([[1, 1]] * 10), tp.Limits(2, 2)
    batches = []
    for packs_per_batch in (6, 2**62):
        settings = {"packs_per_batch": packs_per_batch, "num_replicas": ranks, "shuffle": shuffle}
        if drop_last:
            with refused(SamplerError, "drop_last=True would leave nothing"):
                tp.PackBatchSampler(sizes, limits, rank=0, drop_last=True, **settings)
            continue
        samplers = [tp.PackBatchSampler(sizes, limits, rank=rank, **settings) for rank in range(ranks)]
        assert {len(s) for s in samplers} == {1}
        batches.append([list(s) for s in samplers])
        assert sorted(graph for of_rank in batches[-1] for (batch,) in [of_rank] for graph in batch) == list(range(10))
        assert samplers[0].balance().work.shape == (1, ranks)
    assert all(found == batches[0] for found in batches)


RANKS_SIZES = tp.GraphSizes([[3, 4], [2, 2], [1, 0], [4, 3], [2, 3]] * 3)
RANKS_BATCHES = {
    0: [[[5, 8], [12, 1, 9], [10, 13]], [[0, 3], [2, 6, 14], [7, 11, 4]]],
    1: [[[0, 13], [5, 3], [12, 11, 14]], [[2, 6, 9], [10, 8], [7, 1, 4]]],
}


@pytest.mark.parametrize("epoch", [0, 1])
def test_steps_of_one_seed_never_change(epoch: int) -> None:
    """Written down, as the batches of one rank are: which packs share a step, in which order, on which rank."""
    plan = tp.pack(RANKS_SIZES, tp.Limits(7, 8), method="best_fit")
    found = []
    for rank in range(2):
        s = tp.PackBatchSampler(RANKS_SIZES, tp.Limits(7, 8), plan=plan, seed=20240229, num_replicas=2, rank=rank)
        s.set_epoch(epoch)
        found.append(list(s))
    assert found == RANKS_BATCHES[epoch]
