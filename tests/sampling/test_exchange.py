"""Content by exchange: who meets again, packs that cannot be dealt, and where it is the default."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import numpy as np
import pytest

import dgl_tuplepack as tp
from dgl_tuplepack.sampling.exchanged_packs import ExchangedPacks
from tests.support.samplers import flat, materials, meeting_again

DISTINCT = tp.GraphSizes(np.stack([np.arange(1, 41), np.arange(40, 0, -1)], axis=1))
REPEATED = tp.GraphSizes(np.tile([[3, 4], [2, 2], [1, 0]], (20, 1)))
LIMITS = tp.Limits(nodes=100, edges=100)


def assert_exchanged(sampler: tp.PackBatchSampler, sizes: tp.GraphSizes, epoch: int) -> list[list[int]]:
    """Return the packs of an epoch; they are as many as planned and within the limits, with every graph once."""
    sampler.set_epoch(epoch)
    packs = list(sampler)
    assert len(packs) == sampler.plan.num_packs
    assert sorted(flat(packs)) == list(range(len(sizes)))
    for pack in packs:
        assert (sizes.array[pack].sum(axis=0) <= sampler.limits.array).all()
        assert 1 <= len(pack) <= sampler.limits.graphs
    return packs


def test_materials_meet_again_hardly_more_often_than_by_chance() -> None:
    sizes = materials(2000, 0)
    limits = tp.Limits(nodes=800, edges=int(sizes.array[:, 1].sum() / sizes.array[:, 0].sum() * 800))
    plan = tp.pack(sizes, limits)
    assert plan.num_packs == plan.lower_bound == len(sizes) // 30
    again, chance = meeting_again(tp.PackBatchSampler(sizes, limits, plan=plan), 20)
    assert again < 2 * chance
    # What the default of earlier versions does.
    again, chance = meeting_again(tp.PackBatchSampler(sizes, limits, plan=plan, content="resample"), 3)
    assert again > 20 * chance


def exact_pairs() -> tuple[tp.GraphSizes, tp.Limits]:
    """Graphs of which two fill a pack exactly: no other packs exist."""
    large = np.random.default_rng(3).permutation(np.arange(510, 910))[:100]
    nodes = np.concatenate([large, 1000 - large])
    return tp.GraphSizes(np.stack([nodes, nodes // 2], axis=1)), tp.Limits(1000, 1000)


def unrelated() -> tuple[tp.GraphSizes, tp.Limits]:
    """Graphs with large shares of two limits that are not related, in nearly full packs of four or five graphs."""
    return tp.GraphSizes(np.random.default_rng(0).integers(1, 1001, (500, 2))), tp.Limits(2200, 2200)


@pytest.mark.parametrize("instance", [exact_pairs, unrelated])
def test_packs_that_cannot_be_dealt_exchange_graphs_within_the_limits(
    instance: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, limits = instance()
    exceeding: list[list[int]] = []
    filled = ExchangedPacks._filled

    def counted(self: ExchangedPacks, *args: Any) -> Any:
        packs = filled(self, *args)
        exceeding[-1].append(len(packs.exceeding()))
        return packs

    monkeypatch.setattr(ExchangedPacks, "_filled", counted)
    sampler, epochs = tp.PackBatchSampler(sizes, limits), []
    for epoch in range(6):
        exceeding.append([])
        epochs.append({frozenset(pack) for pack in assert_exchanged(sampler, sizes, epoch)})
    if instance is exact_pairs:
        # Packs of the plan were kept, and the other graphs dealt again.
        assert any(len(counts) > 1 and counts[-1] == 0 for counts in exceeding)
        assert all(packs == epochs[0] for packs in epochs)
    else:
        assert any(all(counts) for counts in exceeding)
        assert all(len(a & b) < 0.5 * len(a) for a, b in itertools.combinations(epochs, 2))


@pytest.mark.parametrize("scale", [1, 2**40, 2**52])
def test_sizes_of_any_scale(scale: int) -> None:
    """Scaled sums near 2**63 would overflow, so there only graphs of equal size change places."""
    sizes = tp.GraphSizes(DISTINCT.array * scale)
    sampler = tp.PackBatchSampler(sizes, tp.Limits(100 * scale, 100 * scale))
    assert sampler.content == "exchange"
    for epoch in range(3):
        assert_exchanged(sampler, sizes, epoch)


def test_graphs_without_nodes_and_packs_of_one_graph() -> None:
    sizes = tp.GraphSizes(np.concatenate([np.zeros((30, 2), int), DISTINCT.array]))
    for most, graphs in ((100, None), (100, 1), (100, 99), (10**6, None)):
        limits = tp.Limits(most, most, graphs)
        for method in ("auto", "none", "next_fit"):
            plan = tp.pack(sizes, limits, method=method)
            sampler = tp.PackBatchSampler(sizes, limits, plan=plan, content="exchange")
            assert_exchanged(sampler, sizes, 1)


def test_lengths_skips_and_states_need_no_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs of an epoch are made with its first batch, since that takes seconds for a million graphs."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("packs were made")

    monkeypatch.setattr(ExchangedPacks, "of", refuse)
    sampler = tp.PackBatchSampler(DISTINCT, LIMITS)
    for epoch in range(3):
        sampler.set_epoch(epoch, skip=len(sampler) - 1)
        assert (len(sampler), sampler.graphs_per_batch) == (sampler.plan.num_packs, 40 / sampler.plan.num_packs)
    with pytest.raises(AssertionError, match="packs were made"):
        next(iter(sampler))


# The default --------------------------------------------------------------------------------------------------


def default_of(sizes: tp.GraphSizes, limits: Any = LIMITS, **settings: Any) -> str:
    return tp.PackBatchSampler(sizes, limits, **settings).content


def test_the_default_is_exchange_where_more_than_half_of_the_graphs_have_their_own_size() -> None:
    assert default_of(DISTINCT) == "exchange"
    molhiv = tp.load_example("ogbg-molhiv")
    assert 2 * np.count_nonzero(molhiv.counts == 1) < molhiv.num_graphs
    assert default_of(REPEATED) == "resample"
    # Of 40 graphs, 20 and then 21 have a size of their own.
    halves = np.concatenate([DISTINCT.array[:20], np.tile([[50, 50]], (20, 1))])
    assert default_of(tp.GraphSizes(halves)) == "resample"
    halves[-1] = [51, 50]
    assert default_of(tp.GraphSizes(halves)) == "exchange"
    assert default_of(DISTINCT, shuffle=False) == "fixed"
    assert default_of(DISTINCT, [tp.Limits(50, 50), LIMITS]) == "resample"


@pytest.mark.filterwarnings("ignore:.* graphs exceed")
def test_graphs_that_are_dropped_do_not_count() -> None:
    rows = np.concatenate([REPEATED.array, 200 + np.arange(200).reshape(100, 2)])
    assert default_of(tp.GraphSizes(rows), oversize="drop") == "resample"
    assert default_of(tp.GraphSizes(rows), tp.Limits(400, 400)) == "exchange"


def test_the_log_says_once_that_exchange_was_chosen(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "dgl_tuplepack"):
        for settings in ({"content": "exchange"}, {"content": "resample"}, {"shuffle": False}):
            tp.PackBatchSampler(DISTINCT, LIMITS, **settings)
        tp.PackBatchSampler(REPEATED, LIMITS)
        assert not caplog.messages
        sampler = tp.PackBatchSampler(DISTINCT, LIMITS)
        list(sampler)
    (message,) = caplog.messages
    assert "content='exchange': 40 of 40 graphs have a size that no other graph has" in message
