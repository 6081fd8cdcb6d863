"""Our samplers in the loops of other packages, and what ranks are balanced by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SamplerError
from tests.support.messages import refused
from tests.support.samplers import flat, materials

RANKS, EPOCHS = 3, 2
SIZES = materials(700, 0)
LIMITS = tp.Limits(700, 60_000)
MAKERS: dict[str, Callable[..., Any]] = {
    "exact": lambda **settings: tp.StaticBatchSampler(SIZES, 16, **settings),
    "packs": lambda **settings: tp.PackBatchSampler(SIZES, LIMITS, drop_last=True, **settings),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return MAKERS[request.param]


def loader_of(sampler: Any) -> DataLoader[Any]:
    """A loader of ids."""
    return DataLoader(range(len(SIZES)), batch_sampler=sampler, collate_fn=list)  # type: ignore[arg-type]


def expected(make: Callable[..., Any], epoch: int, rank: int) -> list[list[int]]:
    """The batches of an epoch."""
    sampler = make(num_replicas=RANKS, rank=rank)
    sampler.set_epoch(epoch)
    return list(sampler)


# The loop with a state (epoch, start_iteration) -------------------------------------------------------------


def trained(loader: Any, first: int, steps: int) -> Iterator[list[int]]:
    """Train as fairchem does: the number of finished steps is the state."""
    step = first
    for epoch in range(first // len(loader), EPOCHS):
        loader.batch_sampler.set_epoch_and_start_iteration(epoch, step % len(loader))
        for batch in loader:
            if step == steps:
                return
            yield batch
            step += 1


@pytest.mark.parametrize("stop", [-2, 0, 2])
def test_a_loop_that_resumes_by_epoch_and_iteration(make: Callable[..., Any], stop: int) -> None:
    """Two steps before an epoch ends, at its end, and two steps later."""
    whole: list[list[int]] = []
    for rank in range(RANKS):
        right = [batch for epoch in range(EPOCHS) for batch in expected(make, epoch, rank)]
        steps = len(right) // 2 + stop
        loaders = [loader_of(make(num_replicas=RANKS, rank=rank)) for _ in range(2)]
        before = list(trained(loaders[0], 0, steps))
        assert len(before) == steps
        assert before + list(trained(loaders[1], steps, len(right))) == right
        whole += right
    assert max(np.bincount(flat(whole))) == EPOCHS


# The loop with a sampler for each rank ----------------------------------------------------------------------


def test_a_loop_that_sets_the_epoch_of_its_sampler(make: Callable[..., Any]) -> None:
    """As with torch's DistributedSampler; ranks have equally many batches, and no graph twice."""
    samplers = [make(num_replicas=RANKS, rank=rank) for rank in range(RANKS)]
    loaders = [loader_of(sampler) for sampler in samplers]
    assert len({len(loader) for loader in loaders}) == 1
    for epoch in range(EPOCHS):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        epochs = [list(loader) for loader in loaders]
        assert epochs == [expected(make, epoch, rank) for rank in range(RANKS)]
        assert max(np.bincount(flat(flat(epochs)))) == 1


def test_a_loop_that_looks_for_the_sampler_of_the_batch_sampler(make: Callable[..., Any]) -> None:
    loader = loader_of(make(num_replicas=RANKS, rank=1))
    loader.batch_sampler.sampler.set_epoch(1)  # type: ignore[union-attr]
    assert list(loader) == expected(make, 1, 1)


def test_pyg_s_loader(make: Callable[..., Any]) -> None:
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader as PygLoader

    import tests.support.pyg  # noqa: F401

    dataset = [Data(id=i, num_nodes=int(nodes)) for i, nodes in enumerate(SIZES.array[:, 0])]
    sampler = make(num_replicas=RANKS, rank=2)
    batches = list(PygLoader(dataset, batch_sampler=sampler))
    assert [batch.id.tolist() for batch in batches] == expected(make, 0, 2)
    assert all(batch.num_nodes <= sampler.limits.nodes for batch in batches)


# What ranks are balanced by ---------------------------------------------------------------------------------


def shares(by_rank: list[list[list[int]]], values: Any) -> np.ndarray[Any, Any]:
    """Slowest rank over the mean of each step."""
    held = np.array([[np.asarray(values)[batch].sum(axis=0) for batch in batches] for batches in by_rank])
    return np.asarray(held.max(axis=0) / held.mean(axis=0))


@pytest.mark.parametrize("ranks", [2, 8])
def test_ranks_have_equal_nodes_and_edges_in_every_full_step(ranks: int) -> None:
    sizes = materials(9_000, 1)
    samplers = [tp.StaticBatchSampler(sizes, 32, num_replicas=ranks, rank=rank) for rank in range(ranks)]
    slack = (samplers[0].limits.array / (32 * sizes.array.mean(axis=0)) - 1).max()
    for epoch in range(3):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        assert shares(list(map(list, samplers)), sizes.array)[:-1].max() <= (1 + slack) / (1 - slack)


# Unrelated to sizes.
COSTS = np.random.default_rng(3).lognormal(0, 1, len(SIZES))


def epochs_of(make: Callable[..., Any], **settings: Any) -> list[list[list[int]]]:
    """The batches of each rank in epoch 0."""
    return [list(make(num_replicas=RANKS, rank=rank, **settings)) for rank in range(RANKS)]


@pytest.mark.parametrize(
    ("cost", "values"),
    [(COSTS.tolist(), COSTS), (COSTS, COSTS), ({"nodes": 1, "edges": 0.5}, SIZES.array @ [1, 0.5])],
)
def test_cost_is_what_ranks_are_balanced_by(make: Callable[..., Any], cost: Any, values: Any) -> None:
    plain, balanced = epochs_of(make), epochs_of(make, cost=cost)
    assert max(np.bincount(flat(flat(balanced)))) == 1
    assert shares(balanced, values)[:-1].mean() < 1.1
    if not isinstance(cost, dict):
        assert shares(balanced, values)[:-1].mean() < 1 + (shares(plain, values)[:-1].mean() - 1) / 2


def test_cost_leaves_exact_batches_as_they_are() -> None:
    """Only their order changes."""
    plain, balanced = (flat(epochs_of(MAKERS["exact"], **settings)) for settings in ({}, {"cost": COSTS}))
    assert plain != balanced
    assert sorted(plain) == sorted(balanced)


def test_the_report_counts_costs() -> None:
    balance = MAKERS["packs"](num_replicas=RANKS, rank=0, cost=COSTS).balance()
    held = [[COSTS[batch].sum() for batch in batches] for batches in epochs_of(MAKERS["packs"], cost=COSTS)]
    assert np.allclose(balance.work.T, held)
    assert "spread of costs" in repr(balance)


def test_a_state_of_other_costs_does_not_fit(make: Callable[..., Any]) -> None:
    settings = [make(cost=cost).settings() for cost in (COSTS, COSTS[::-1])]
    assert settings[0] != settings[1]
    assert "cost" not in make().settings()


def test_costs_of_nothing_are_no_error(make: Callable[..., Any]) -> None:
    assert epochs_of(make, cost=np.zeros(len(SIZES)))


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ([1.0, 2.0], "a number for each of the 700 graphs"),
        (["a"] * 700, "a number for each of the 700 graphs"),
        ("edges", "a number for each of the 700 graphs"),
        ({"triplets": 1}, "weights of the components ['nodes', 'edges']"),
        ({}, "weights of the components ['nodes', 'edges']"),
        ({"edges": -1}, "cost['edges'] must be a finite number >= 0"),
        ([-1.0] * 700, "finite and >= 0"),
        ([float("nan")] * 700, "finite and >= 0"),
    ],
)
def test_costs_that_are_none_are_refused(make: Callable[..., Any], cost: Any, words: str) -> None:
    with refused(SamplerError, words):
        make(cost=cost)
