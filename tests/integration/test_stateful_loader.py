"""torchdata's StatefulDataLoader resumes with exactly the batches not yet delivered."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SamplerError
from tests.messages import refused

# A machine with one core makes torch remark on two workers.
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    # torchdata 0.11 calls what torch 2.13 deprecates.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]

ROWS = np.random.default_rng(0).integers(1, 9, (70, 2))
CONTENTS = ("fixed", "resample", "repack")


def loader_of(workers: int, content: str = "resample", seed: int = 4, **settings: Any) -> Any:
    sampler = tp.PackBatchSampler(tp.GraphSizes(ROWS), tp.Limits(20, 22), content=content, seed=seed)
    return StatefulDataLoader(
        range(len(ROWS)),  # type: ignore[arg-type]
        batch_sampler=sampler,
        collate_fn=list,
        num_workers=workers,
        **settings,
    )


def expected(epoch: int, content: str = "resample") -> list[list[int]]:
    sampler = loader_of(0, content).batch_sampler
    sampler.set_epoch(epoch)
    return list(sampler)


def stopped(loader: Any, epoch: int, batches: int | None) -> dict[str, Any]:
    """State after some batches of an epoch; None: after its end was noticed."""
    loader.batch_sampler.set_epoch(epoch)
    iterator = iter(loader)
    for _ in range(batches) if batches is not None else iterator:
        if batches is not None:
            next(iterator)
    state: dict[str, Any] = copy.deepcopy(loader.state_dict())
    return state


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("workers", [0, 2])
def test_the_rest_of_an_epoch_and_the_next(workers: int, content: str) -> None:
    whole, following = expected(1, content), expected(2, content)
    for batches in (0, 1, 5, len(whole) - 1, len(whole)):
        state = stopped(loader_of(workers, content), 1, batches)
        loader = loader_of(workers, content)
        loader.load_state_dict(state)
        loader.batch_sampler.set_epoch(1)
        assert list(loader) == whole[batches:]
        loader.batch_sampler.set_epoch(2)
        assert list(loader) == following


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ended", [True, False], ids=["end noticed", "last batch"])
def test_the_end_of_an_epoch_skips_nothing(workers: int, ended: bool) -> None:
    """A loop that goes on with the next epoch gets all of it."""
    whole = expected(1)
    state = stopped(loader_of(workers), 1, None if ended else len(whole))
    loader = loader_of(workers)
    loader.load_state_dict(state)
    for epoch in (2, 3):
        loader.batch_sampler.set_epoch(epoch)
        assert list(loader) == expected(epoch)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_that_has_ended_is_not_repeated_silently(workers: int) -> None:
    """The loop should have gone on with the next epoch."""
    state = stopped(loader_of(workers), 1, None)
    loader = loader_of(workers)
    loader.load_state_dict(state)
    loader.batch_sampler.set_epoch(1)
    with pytest.warns(UserWarning, match="epoch 1 is iterated again.*call sampler.set_epoch.*the next epoch"):
        assert list(loader) == expected(1)


def test_the_epoch_comes_with_the_state() -> None:
    loader = loader_of(2)
    loader.load_state_dict(stopped(loader_of(2), 5, 3))
    assert list(loader) == expected(5)[3:]
    assert loader.batch_sampler.epoch == 5


def test_interrupted_twice() -> None:
    whole = expected(0)
    loader = loader_of(2)
    loader.load_state_dict(stopped(loader_of(2), 0, 4))
    iterator = iter(loader)
    assert [next(iterator) for _ in range(3)] == whole[4:7]
    again = loader_of(2)
    again.load_state_dict(loader.state_dict())
    assert list(again) == whole[7:]


def test_rare_snapshots_and_persistent_workers() -> None:
    whole = expected(1)
    settings: dict[str, Any] = {"snapshot_every_n_steps": 3, "persistent_workers": True}
    loader = loader_of(2, **settings)
    loader.load_state_dict(stopped(loader_of(2, **settings), 1, 5))
    assert list(loader) == whole[5:]
    loader.batch_sampler.set_epoch(2)
    assert list(loader) == expected(2)


def test_other_settings_are_refused() -> None:
    loader = loader_of(0, seed=5)
    loader.load_state_dict(stopped(loader_of(0), 0, 2))
    with refused(SamplerError, "seed 4", "has 5"):
        list(loader)
