"""torchdata resumes with exactly the batches not yet delivered."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from torchdata.nodes import IterableWrapper, Loader, Prefetcher
from torchdata.stateful_dataloader import StatefulDataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.loading.packed_loader import PackedLoader
from tests.support.messages import refused
from tests.support.samplers import Ids

pytestmark = [
    # torchdata 0.11 calls what torch 2.13 deprecates.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.processes,
]

ROWS = np.random.default_rng(0).integers(1, 9, (70, 2))


def sampler_of(content: str = "resample", seed: int = 4) -> tp.PackBatchSampler:
    return tp.PackBatchSampler(tp.GraphSizes(ROWS), tp.Limits(20, 22), content=content, seed=seed)


def loader_of(workers: int, content: str = "resample", **settings: Any) -> Any:
    dataset: Any = range(len(ROWS))
    sampler = sampler_of(content)
    return StatefulDataLoader(dataset, batch_sampler=sampler, collate_fn=list, num_workers=workers, **settings)


def expected(epoch: int, content: str = "resample") -> list[list[int]]:
    sampler = sampler_of(content)
    sampler.set_epoch(epoch)
    return list(sampler)


def stopped(loader: Any, epoch: int, batches: int) -> dict[str, Any]:
    """State after some batches of an epoch."""
    loader.batch_sampler.set_epoch(epoch)
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
    state: dict[str, Any] = copy.deepcopy(loader.state_dict())
    return state


@pytest.mark.parametrize(
    ("content", "settings"),
    [
        ("fixed", {"workers": 0}),
        ("exchange", {"workers": 0}),
        ("resample", {"workers": 2}),
        ("resample", {"workers": 2, "snapshot_every_n_steps": 3, "persistent_workers": True}),
    ],
)
def test_the_rest_of_an_epoch_and_the_next(content: str, settings: dict[str, Any]) -> None:
    """The sampler has no state: the loop sets the epoch, and the loader leaves out the batches that it delivered."""
    whole, following = expected(1, content), expected(2, content)
    for batches in (0, 5, len(whole)):
        state = stopped(loader_of(content=content, **settings), 1, batches)
        loader = loader_of(content=content, **settings)
        loader.load_state_dict(state)
        loader.batch_sampler.set_epoch(1)
        assert list(loader) == whole[batches:]
        loader.batch_sampler.set_epoch(2)
        assert list(loader) == following


@pytest.mark.parametrize("workers", [0, 2])
def test_nodes_save_and_restore_a_packed_loader(workers: int) -> None:
    """Also behind a node that takes batches early."""

    def nodes(seed: int = 4) -> Any:
        loader = PackedLoader(Ids(), sampler_of(seed=seed), num_workers=workers)
        return Loader(Prefetcher(IterableWrapper(loader), 3))

    whole, first = expected(0), nodes()
    iterator = iter(first)
    assert [next(iterator) for _ in range(4)] == whole[:4]
    state = copy.deepcopy(first.state_dict())
    second = nodes()
    second.load_state_dict(state)
    assert list(second) == whole[4:]
    other = nodes(seed=5)
    other.load_state_dict(state)
    with refused(SamplerError, "seed 4", "has 5"):
        list(other)
