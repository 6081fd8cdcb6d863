"""Plans of later epochs: how long each is kept, and that nothing else depends on when it is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dgl_tuplepack as tp
from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.errors import SamplerError
from tests.support.messages import refused
from tests.support.samplers import flat

ROWS = np.random.default_rng(4).integers(1, 12, (300, 2))
LIMITS = tp.Limits(nodes=80, edges=90)


def sampler(**settings: Any) -> tp.PackBatchSampler:
    return tp.PackBatchSampler(tp.GraphSizes(ROWS), LIMITS, **{"seed": 3, **settings})


def epoch_of(epoch: int, **settings: Any) -> list[list[int]]:
    s = sampler(**settings)
    s.set_epoch(epoch)
    return list(s)


@pytest.mark.parametrize("content", ["resample", "repack"])
def test_epochs_share_a_plan_for_a_period(content: str) -> None:
    s = sampler(content=content, replan_every=3)
    fingerprints, lengths, epochs = [], [], []
    for epoch in range(9):
        s.set_epoch(epoch)
        fingerprints.append(s.plan.fingerprint)
        lengths.append(len(s))
        epochs.append(list(s))
        assert len(epochs[-1]) == len(s)
        assert sorted(flat(epochs[-1])) == list(range(len(ROWS)))
    periods = [fingerprints[i : i + 3] for i in (0, 3, 6)]
    assert [len(set(period)) for period in periods] == [1, 1, 1]
    assert len({period[0] for period in periods}) == 3
    assert [len(set(lengths[i : i + 3])) for i in (0, 3, 6)] == [1, 1, 1]
    # The content is drawn for each epoch all the same.
    assert len({str(epoch) for epoch in epochs}) == 9


@pytest.mark.parametrize("epoch", [0, 1, 4])
def test_repack_is_resampling_with_a_period_of_one(epoch: int) -> None:
    assert epoch_of(epoch, content="repack") == epoch_of(epoch, content="resample", replan_every=1)
    assert epoch_of(epoch, content="repack", replan_every=2) == epoch_of(epoch, content="resample", replan_every=2)


def test_the_first_plan_stays_that_of_the_first_epochs() -> None:
    """A search as short as those of later epochs would give another one."""
    s = sampler(content="repack")
    first = s.plan.fingerprint
    for epoch in (5, 0, 1, 0):
        s.set_epoch(epoch)
        assert (s.plan.fingerprint == first) == (epoch == 0)
    assert first == tp.pack(tp.GraphSizes(ROWS), LIMITS, seed=3).fingerprint


def test_a_cap_that_later_plans_would_exceed() -> None:
    """The same searches without the cap put more graphs into a pack than batches have room for."""
    s = sampler(content="repack")
    assert s.limits.graphs is not None
    seeds = [int(key_of(s.seed, epoch, 3)) for epoch in range(1, 6)]
    free = [tp.pack(tp.GraphSizes(ROWS), LIMITS, seed=seed).max_graphs for seed in seeds]
    assert max(free) > s.limits.graphs
    for epoch in range(1, 6):
        s.set_epoch(epoch)
        assert max(map(len, s)) <= s.limits.graphs


def test_ranks_share_the_plans_of_a_period() -> None:
    ranks = [sampler(replan_every=2, num_replicas=3, rank=rank) for rank in range(3)]
    for epoch in (1, 2, 5):
        for s in ranks:
            s.set_epoch(epoch)
        batches = [list(s) for s in ranks]
        assert len({len(of_rank) for of_rank in batches}) == 1
        assert sorted(flat(flat(batches))) == list(range(len(ROWS)))


@pytest.mark.parametrize("epoch", [1, 2, 5])
def test_an_epoch_of_a_later_period_begins_in_its_middle(epoch: int) -> None:
    s = sampler(replan_every=2)
    s.set_epoch(epoch, skip=3)
    assert list(s) == epoch_of(epoch, replan_every=2)[3:]


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_a_period_is_a_number_of_epochs(value: Any) -> None:
    with refused(SamplerError, "replan_every must be an integer in 1..", repr(value)):
        sampler(replan_every=value)


def test_what_keeps_its_packs_makes_no_new_plans() -> None:
    with refused(SamplerError, "replan_every=2", "content='fixed'", "content='resample'"):
        sampler(replan_every=2, content="fixed")
    with refused(SamplerError, "replan_every=2", "content='fixed'"):
        sampler(replan_every=2, shuffle=False)
    with refused(SamplerError, "replan_every=2", "a plan was given"):
        sampler(replan_every=2, plan=tp.pack(tp.GraphSizes(ROWS), LIMITS))


def test_the_period_that_a_content_has() -> None:
    periods = {content: sampler(content=content).replan_every for content in ("fixed", "resample", "repack")}
    assert periods == {"fixed": None, "resample": None, "repack": 1}
