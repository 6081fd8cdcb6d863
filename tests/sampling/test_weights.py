"""Epochs whose graphs are drawn by weights: how often each comes, and that batches keep their numbers and limits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.errors import InputError, SamplerError
from dgl_tuplepack.sampling.weights import WeightedDraws
from tests.support.messages import refused
from tests.support.samplers import flat, materials
from tests.support.stores import molecules

SIZES = np.random.default_rng(0).integers(1, 40, (200, 2))
WEIGHTS = np.random.default_rng(1).lognormal(0, 1.5, 200)
LIMITS = tp.Limits(nodes=100, edges=100)


def sampler_of(kind: str, weights: Any = WEIGHTS, sizes: Any = SIZES, **settings: Any) -> Any:
    sizes = tp.GraphSizes(sizes)
    if kind == "static":
        return tp.StaticBatchSampler(sizes, 8, weights=weights, **settings)
    return tp.PackBatchSampler(sizes, LIMITS, packs_per_batch=2, weights=weights, **settings)


@given(
    weights=st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e6)), min_size=1, max_size=60).filter(any),
    seed=st.integers(0, 2**64 - 1),
)
def test_each_graph_is_drawn_as_often_as_expected(weights: list[float], seed: int) -> None:
    given, number = np.array(weights), len(weights)
    sizes = np.random.default_rng(number).integers(0, 9, (number, 2))
    expected = number * given / math.fsum(weights)
    counts = np.bincount(WeightedDraws(given, sizes).of(key_of(seed, 0, 0)), minlength=number)
    assert counts.sum() == number
    assert (counts >= np.floor(expected - 1e-6)).all()
    assert (counts <= np.ceil(expected + 1e-6)).all()
    assert not counts[given == 0].any()


def test_draws_are_unbiased_and_differ() -> None:
    draws = WeightedDraws(WEIGHTS, SIZES)
    counts = np.array([np.bincount(draws.of(key_of(0, i, 0)), minlength=200) for i in range(4000)])
    expected = 200 * WEIGHTS / WEIGHTS.sum()
    # Five standard deviations of a mean of 4,000 numbers that differ by at most 1.
    assert np.abs(counts.mean(axis=0) - expected).max() < 5 * 0.5 / math.sqrt(4000)
    # The total size hardly differs.
    totals = counts @ SIZES.sum(axis=1)
    assert totals.std() < 0.02 * totals.mean()
    # Any two graphs may come together, also neighbours by size.
    rare = np.flatnonzero((expected > 0.2) & (expected < 0.9))
    together = (counts[:, rare].T @ counts[:, rare])[~np.eye(len(rare), dtype=bool)]
    assert together.min() > 0


@pytest.mark.parametrize("kind", ["static", "packs"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_batches_keep_their_numbers_and_limits(kind: str, ranks: int) -> None:
    samplers = [sampler_of(kind, num_replicas=ranks, rank=rank, seed=4) for rank in range(ranks)]
    expected, seen = 200 * WEIGHTS / WEIGHTS.sum(), set()
    for epoch in range(4):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        by_rank = [list(sampler) for sampler in samplers]
        assert {len(batches) for batches in by_rank} == {len(samplers[0])}
        ids = flat([batch for batches in by_rank for batch in batches])
        counts = np.bincount(ids, minlength=200)
        assert counts.sum() == 200
        assert (np.floor(expected) <= counts).all()
        assert (counts <= np.ceil(expected)).all()
        seen.add(tuple(ids))
        for batch in (batch for batches in by_rank for batch in batches):
            most = samplers[0].limits.array * (2 if kind == "packs" else 1)
            assert (SIZES[batch].sum(axis=0) <= most).all()
            assert len(batch) <= (8 if kind == "static" else 2 * samplers[0].limits.graphs)
        if kind == "static":
            assert all(len(batch) == 8 for batches in by_rank for batch in batches[:-2])
    assert len(seen) == 4
    again = sampler_of(kind, num_replicas=ranks, rank=0, seed=4)
    again.set_epoch(3)
    assert list(again) == by_rank[0]


@pytest.mark.parametrize("kind", ["static", "packs"])
def test_no_graph_is_twice_in_a_batch_where_that_is_possible(kind: str) -> None:
    # One graph comes 7 or 8 times in an epoch of 11 or more batches; sizes are equal, so that all exchanges fit.
    weights = np.ones(200)
    weights[7] = 8
    sampler = sampler_of(kind, weights, np.full((200, 2), 10))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert all(len(set(batch)) == len(batch) for batch in sampler)
    # A graph that comes more often than there are batches must be twice in some.
    weights[7] = 1e6
    crowded = sampler_of(kind, weights, np.full((200, 2), 10))
    assert flat(crowded).count(7) >= 199


def test_graphs_are_separated_although_batches_are_nearly_full() -> None:
    # 21 graphs, one of them huge, come 7 or 8 times in 10 batches, which are 97 to 100 % full.
    nodes = np.array([4 + i % 8 for i in range(20)] + [300] + [10 + i % 30 for i in range(179)])
    weights = np.where(np.arange(200) < 21, 0.8 / 21, 0.2 / 179)
    sampler = tp.StaticBatchSampler(np.stack([nodes, 2 * nodes], axis=1), 20, weights=weights)
    for epoch in range(20):
        batches = epochs_of(sampler, epoch)
        assert all(len(set(batch)) == len(batch) for batch in batches)
        assert all(nodes[batch].sum() <= sampler.limits.nodes for batch in batches)


def test_the_shape_of_balanced_classes_is_that_of_a_mean_batch() -> None:
    sizes = materials(3000, 2)
    # The larger graphs belong to the rare class.
    labels = sizes.array[:, 0] > np.quantile(sizes.array[:, 0], 0.95)
    weights = tp.class_weights(labels)
    sampler = tp.StaticBatchSampler(sizes, 32, weights=weights)
    assert labels[flat(sampler)].mean() == pytest.approx(0.5, abs=0.02)
    mean = 32 * (weights[:, None] * sizes.array).sum(axis=0) / weights.sum()
    assert (sampler.limits.array / mean < 1.03).all()
    contents = [sizes.array[batch].sum(axis=0) for epoch in (1, 2, 3) for batch in epochs_of(sampler, epoch)]
    assert (np.array(contents) <= sampler.limits.array).all()


def epochs_of(sampler: Any, epoch: int) -> list[list[int]]:
    sampler.set_epoch(epoch)
    return list(sampler)


def test_class_weights_give_each_class_the_same_share() -> None:
    labels = np.array(["a"] * 7 + ["b"] * 2 + ["c"])
    weights = tp.class_weights(labels)
    assert weights.mean() == pytest.approx(1)
    assert [weights[labels == each].sum() for each in "abc"] == pytest.approx([10 / 3] * 3)
    missing = tp.class_weights([[0.0], [0.0], [1.0], [float("nan")]])
    assert missing.tolist() == [0.75, 0.75, 1.5, 1.0]
    for wrong in ([], [[0, 1], [1, 0]], [object()], None):
        with refused(SamplerError, "labels"):
            tp.class_weights(wrong)


@pytest.mark.parametrize("kind", ["static", "packs"])
def test_wrong_weights_are_refused(kind: str) -> None:
    for weights, parts in (
        (np.full(200, np.nan), ("graph 0", "nan")),
        (np.where(np.arange(200) == 3, -1.0, 1), ("graph 3", "-1.0", ">= 0")),
        (np.zeros(200), ("all weights are 0",)),
        (np.ones(199), ("200 graphs", "has 199", "weights[ids]", "class_weights")),
        ({0: 1.0, 1: 9.0}, ("200 graphs", "0: 1.0")),
        ("text", ("200 graphs",)),
    ):
        with refused(SamplerError, *parts):
            sampler_of(kind, weights)
    with refused(SamplerError, "shuffle=False"):
        sampler_of(kind, shuffle=False)
    with refused(SamplerError, "leave out", "plan, content"):
        tp.PackBatchSampler(tp.GraphSizes(SIZES), LIMITS, weights=WEIGHTS, content="resample")


def test_settings_tell_weights_apart() -> None:
    one, other = (sampler_of("static", weights).settings() for weights in (WEIGHTS, WEIGHTS[::-1]))
    assert one["weights"] != other["weights"]
    assert "weights" not in sampler_of("static", None).settings()


@pytest.mark.dgl
@pytest.mark.parametrize("kind", [{"batch_size": 8}, {"graphs_per_batch": 8}])
def test_a_mapping_of_weights_must_name_shuffled_splits(kind: dict[str, int]) -> None:
    graphs, splits, weights = molecules(60), {"train": range(45), "valid": range(45, 60)}, np.ones(45)
    # Weights of classes, for example, are no weights of graphs.
    for wrong in ({0: 1.0, 1: 9.0}, {"train": np.ones(60)}):
        with refused(InputError, "without splits=", "each graph"):
            tp.packed_loader(graphs, weights=wrong, **kind)
    for wrong in ({"Train": weights}, {"train": weights, "valid": np.ones(15)}, {}):
        with refused(InputError, "shuffled splits", "'train'"):
            tp.packed_loader(graphs, splits=splits, weights=wrong, **kind)


@pytest.mark.dgl
def test_a_state_with_other_weights_names_them() -> None:
    graphs = molecules(60)

    def loader(weights: Any) -> Any:
        return tp.packed_loader(graphs, batch_size=8, weights=weights)

    state, plain = (loader(each).state_dict() for each in (np.arange(60), None))
    for saved, weights in ((state, np.arange(60)[::-1]), (state, None), (plain, np.arange(60))):
        with refused(SamplerError, "other weights"):
            loader(weights).load_state_dict(saved)


@pytest.mark.dgl
def test_loaders_pass_weights_to_the_splits_that_they_shuffle() -> None:
    graphs, splits = molecules(60), {"train": range(45), "valid": range(45, 60)}
    weights = np.where(np.arange(45) < 5, 9.0, 1.0)
    for kind in ({"batch_size": 8}, {"graphs_per_batch": 8}):
        for own in (weights, {"train": weights}):
            loaders = tp.packed_loader(graphs, splits=splits, weights=own, **kind)
            train = flat(loaders["train"].sampler)
            assert len(train) == 45
            assert 20 <= sum(i < 5 for i in train) <= 30
            assert sorted(flat(loaders["valid"].sampler)) == list(range(15))
            loaders["train"].set_epoch(1)
            assert len(list(loaders["train"])) == len(loaders["train"])
