"""What is left of an epoch for another number of ranks: each graph comes exactly once, in batches within the limits."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.loading.packed_loader import PackedLoader
from tests.support.messages import refused

SIZES = np.random.default_rng(0).integers(1, 30, (120, 2))


class Ids:
    """A view that returns the ids of a batch."""

    shapes = ()

    def __len__(self) -> int:
        return len(SIZES)

    def __getitem__(self, ids: Any) -> list[int]:
        return list(ids)


def sampler_of(kind: str, ranks: int, rank: int, **more: Any) -> Any:
    sizes = tp.GraphSizes(SIZES)
    if kind == "static":
        return tp.StaticBatchSampler(sizes, 4, num_replicas=ranks, rank=rank, **more)
    limits: Any = tp.Limits(nodes=60, edges=60)
    if kind == "buckets":
        limits = [tp.Limits(nodes=30, edges=40), limits]
    return tp.PackBatchSampler(sizes, limits, packs_per_batch=2, num_replicas=ranks, rank=rank, **more)


def on_ranks(kind: str, ranks: int, state: Any, steps: int | None, epoch: int, **more: Any) -> tuple[Any, Any, Any]:
    """Batches of some steps (None: all) on all ranks, ``[rank][step]``, the state after them, and a sampler."""
    batches, states = [], []
    for rank in range(ranks):
        loader = PackedLoader(Ids(), sampler_of(kind, ranks, rank, **more))
        if state is None:
            loader.set_epoch(epoch)
        else:
            loader.load_state_dict(state)
            # Loops set the epoch that they resume.
            loader.set_epoch(epoch)
        batches.append(list(islice(loader, steps)))
        states.append(json.dumps(loader.state_dict()))
    assert len(set(states)) == len({len(own) for own in batches}) == 1
    return batches, json.loads(states[0]), loader.sampler


@settings(max_examples=40)
@given(
    kind=st.sampled_from(["static", "packs", "buckets"]),
    ranks=st.lists(st.integers(1, 8), min_size=2, max_size=4),
    steps=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    seed=st.integers(0, 3),
)
def test_each_graph_comes_once(kind: str, ranks: list[int], steps: list[int], seed: int) -> None:
    state, seen = None, list[int]()
    for number, most in zip(ranks, [*steps[: len(ranks) - 1], None], strict=True):
        batches, state, sampler = on_ranks(kind, number, state, most, epoch=5, seed=seed)
        shapes = sampler.limits if isinstance(sampler.limits, tuple) else (sampler.limits,)
        for batch in (each for own in batches for each in own):
            content = SIZES[batch].sum(axis=0) if batch else np.zeros(2, int)
            packs = sampler.packs_per_batch if kind != "static" else 1
            assert (content <= packs * shapes[-1].array).all()
            assert batch or kind != "static"
            seen += batch
    assert sorted(seen) == list(range(len(SIZES)))
    # The next epoch is that of a new loader.
    after, _, _ = on_ranks(kind, ranks[-1], state, None, epoch=6, seed=seed)
    assert after == on_ranks(kind, ranks[-1], None, None, epoch=6, seed=seed)[0]


@pytest.mark.parametrize("kind", ["static", "packs", "buckets"])
def test_without_the_rest_no_graph_comes_twice(kind: str) -> None:
    first, state, _ = on_ranks(kind, 4, None, 2, epoch=1, drop_last=True)
    then, _, _ = on_ranks(kind, 3, state, None, epoch=1, drop_last=True)
    ids = [i for batches in (first, then) for own in batches for batch in own for i in batch]
    assert len(ids) == len(set(ids)) > 80
    assert all(len(batch) == 4 for own in then for batch in own) or kind != "static"


def test_too_few_graphs_for_a_step_are_refused() -> None:
    length = len(sampler_of("static", 1, 0))
    _, state, _ = on_ranks("static", 1, None, length - 1, epoch=0)
    other = PackedLoader(Ids(), sampler_of("static", 8, 0))
    with refused(SamplerError, "4 graphs", "8 ranks", "fewer ranks"):
        other.load_state_dict(state)


def test_a_state_of_equally_many_ranks_is_as_before() -> None:
    whole, _, _ = on_ranks("static", 3, None, None, epoch=2)
    first, state, _ = on_ranks("static", 3, None, 5, epoch=2)
    assert "earlier_ranks" not in state
    then, _, _ = on_ranks("static", 3, state, None, epoch=2)
    assert [one + other for one, other in zip(first, then, strict=True)] == whole
