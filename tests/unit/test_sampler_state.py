"""States of samplers: what they hold, what they resume, and what is refused."""

from __future__ import annotations

import json
import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest
import torch.utils.data

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SamplerError
from tests.messages import refused

ROWS = np.tile([[3, 4], [2, 2], [1, 0]], (20, 1))
LIMITS = tp.Limits(nodes=6, edges=7)
CONTENTS = ("fixed", "resample", "repack")


def sampler(rows: Any = ROWS, limits: tp.Limits = LIMITS, **settings: Any) -> tp.PackBatchSampler:
    return tp.PackBatchSampler(tp.GraphSizes(rows), limits, **{"seed": 5, **settings})


def epoch_of(epoch: int, **settings: Any) -> list[list[int]]:
    """All batches of an epoch of a new sampler."""
    s = sampler(**settings)
    s.set_epoch(epoch)
    return list(s)


def after(batches: int, epoch: int = 0, **settings: Any) -> dict[str, Any]:
    """State of a new sampler after some batches of an epoch, sent through JSON."""
    s = sampler(**settings)
    s.set_epoch(epoch)
    for _, _batch in zip(range(batches), s, strict=False):
        pass
    state: dict[str, Any] = json.loads(json.dumps(s.state_dict()))
    return state


# What a state is ----------------------------------------------------------------------------------------------


def test_a_state_is_small_and_plain() -> None:
    small = after(1)
    assert set(small) == {
        "version", "seed", "epoch", "position", "num_replicas", "content", "shuffle", "packs_per_batch", "drop_last",
        "num_graphs", "limits", "sizes", "plan",
    }  # fmt: skip
    large = after(1, rows=np.tile(ROWS, (200, 1)))
    assert len(json.dumps(large)) < len(json.dumps(small)) + 20 < 600


def test_a_state_is_equal_on_all_ranks() -> None:
    assert after(3, num_replicas=3, rank=0) == after(3, num_replicas=3, rank=2)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("epoch", [0, 2])
def test_the_rest_of_an_epoch(content: str, epoch: int) -> None:
    whole = epoch_of(epoch, content=content)
    for batches in (0, 1, len(whole) - 1, len(whole)):
        s = sampler(content=content)
        s.load_state_dict(after(batches, epoch, content=content))
        assert s.epoch == epoch
        assert len(s) == len(whole)
        assert list(s) == whole[batches:]
        # It resumes once; then come whole epochs.
        s.set_epoch(epoch + 1)
        assert list(s) == epoch_of(epoch + 1, content=content)


def test_a_state_of_one_rank_serves_another() -> None:
    s = sampler(num_replicas=3, rank=2)
    s.load_state_dict(after(2, 1, num_replicas=3, rank=0))
    assert list(s) == epoch_of(1, num_replicas=3, rank=2)[2:]


def test_delivered_counts_from_where_the_iteration_began() -> None:
    whole = epoch_of(0)
    s = sampler()
    # All are taken, as workers of a plain loader would; the loop got three of them.
    list(s)
    state = s.state_dict(delivered=3)
    resumed = sampler()
    resumed.load_state_dict(state)
    assert list(resumed) == whole[3:]
    # Two more than before: what came before the interruption counts too.
    again = sampler()
    again.load_state_dict(resumed.state_dict(delivered=2))
    assert list(again) == whole[5:]


def test_delivered_of_a_new_epoch() -> None:
    s = sampler()
    list(s)
    s.set_epoch(1)
    assert s.state_dict(delivered=0)["position"] == s.state_dict()["position"] == 0
    assert s.state_dict()["epoch"] == 1


def test_delivered_cannot_exceed_the_epoch() -> None:
    s = sampler()
    s.load_state_dict(after(len(s) - 2))
    for value in (3, -1, 1.0, "2"):
        with refused(SamplerError, "delivered must be an integer in 0..2", repr(value)):
            s.state_dict(delivered=value)  # type: ignore[arg-type]


# Iterators ----------------------------------------------------------------------------------------------------


def test_an_iterator_resumes_by_itself() -> None:
    first = iter(sampler())
    taken = [next(first) for _ in range(4)]
    second = iter(sampler())
    second.load_state_dict(first.state_dict())
    assert [*taken, *second] == epoch_of(0)


def test_the_position_goes_to_the_iterator_that_begins() -> None:
    """Loaders call iter() more than once and drop what they do not use."""
    whole = epoch_of(3)
    s = sampler()
    s.load_state_dict(after(4, 3))
    unused, used = iter(s), iter(s)
    assert unused.state_dict()["position"] == used.state_dict()["position"] == 4
    assert next(used) == whole[4]
    # What begins now starts the epoch again.
    with pytest.warns(UserWarning, match="epoch 3 is iterated again"):
        assert list(s) == whole
    assert [whole[4], *used] == whole[4:]


def test_a_position_in_an_iterator_is_the_samplers_no_more() -> None:
    """StatefulDataLoader, restored from the end of an epoch, drops the iterator it restored and asks for another."""
    state = after(len(epoch_of(0)))
    s = sampler()
    s.load_state_dict(state)
    iter(s).load_state_dict(state)
    s.set_epoch(1)
    assert list(s) == epoch_of(1)


def test_a_state_in_an_iterator_is_resumed_by_that_one_alone() -> None:
    """In mid-epoch too: what the loader drops is not resumed by the next iteration."""
    state = after(4)
    s = sampler()
    s.load_state_dict(state)
    iter(s).load_state_dict(state)
    assert list(s) == epoch_of(0)


def test_an_iterator_that_resumes_repeats_nothing() -> None:
    s = sampler()
    state = after(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(iter(s))
        iterator = iter(s)
        iterator.load_state_dict(state)
        assert list(iterator) == epoch_of(0)[4:]


@pytest.mark.parametrize("epoch_first", [True, False])
def test_the_end_of_an_epoch_does_not_skip_the_next(epoch_first: bool) -> None:
    """The loop may have moved on before the loader loads its state."""
    state = after(len(epoch_of(2)), 2)
    s = sampler()
    if epoch_first:
        s.set_epoch(3)
    s.load_state_dict(state)
    iterator = iter(s)
    iterator.load_state_dict(state)
    assert s.epoch == 3 if epoch_first else 2
    assert list(iterator) == (epoch_of(3) if epoch_first else [])


def test_the_middle_of_an_epoch_wins_over_set_epoch_before() -> None:
    s = sampler()
    s.set_epoch(7)
    s.load_state_dict(after(4, 2))
    assert s.epoch == 2
    assert list(s) == epoch_of(2)[4:]


def test_set_epoch_after_loading() -> None:
    state = after(4, 2)
    s = sampler()
    s.load_state_dict(state)
    s.set_epoch(2)
    assert list(s) == epoch_of(2)[4:]
    s.load_state_dict(state)
    s.set_epoch(3)
    assert s.state_dict()["position"] == 0
    assert list(s) == epoch_of(3)
    s.set_epoch(2)
    assert list(s) == epoch_of(2)


def test_resuming_is_no_repetition() -> None:
    s = sampler()
    for _, _batch in zip(range(3), s, strict=False):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        s.load_state_dict(s.state_dict())
        list(s)
    with pytest.warns(UserWarning, match="epoch 0 is iterated again"):
        list(s)


# What is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"seed": 6}, ["seed 5", "has 6"]),
        ({"content": "fixed"}, ["content 'resample'", "'fixed'"]),
        ({"content": "fixed", "shuffle": False}, ["'fixed'"]),
        ({"packs_per_batch": 2}, ["packs_per_batch 1", "has 2"]),
        ({"num_replicas": 2, "rank": 0}, ["num_replicas 1", "has 2"]),
        ({"drop_last": True}, ["drop_last False", "has True"]),
        ({"rows": ROWS[:-1]}, ["num_graphs 60", "has 59"]),
        ({"limits": tp.Limits(6, 8)}, ["limits", "'edges': 7", "'edges': 8"]),
        ({"limits": tp.Limits(6, 7, graphs=3)}, ["limits", "'graphs': None", "'graphs': 3"]),
        ({"rows": ROWS[::-1]}, ["sizes", "resuming would repeat or lose graphs"]),
    ],
    ids=str,
)
def test_other_settings_name_both_values(changes: dict[str, Any], parts: list[str]) -> None:
    state = after(2)
    for target in (sampler(**changes), iter(sampler(**changes))):
        with refused(SamplerError, *parts, "begin the epoch again"):
            target.load_state_dict(state)


@pytest.mark.filterwarnings("ignore:1 of 61 graphs exceed")
@pytest.mark.parametrize("place", [0, 30, 60])
def test_a_dropped_graph_at_another_place_is_refused(place: int) -> None:
    """Those left are the same in the same order, but their ids are others."""
    rows = np.insert(ROWS, [7], [9, 9], axis=0)
    state = after(2, rows=rows, oversize="drop")
    sampler(rows, oversize="drop").load_state_dict(state)
    with refused(SamplerError, "sizes", "resuming would repeat or lose graphs"):
        sampler(np.insert(ROWS, [place], [9, 9], axis=0), oversize="drop").load_state_dict(state)


def test_other_plans_are_refused() -> None:
    plan = tp.pack(tp.GraphSizes(ROWS), LIMITS, method="none")
    with refused(SamplerError, "plan", plan.fingerprint, after(2)["plan"]):
        sampler(plan=plan).load_state_dict(after(2))


def test_other_plans_of_an_epoch_are_refused() -> None:
    """Another version of a library may repack differently."""
    state = after(2, 3, content="repack")
    with refused(SamplerError, "plan 'another'", "begin the epoch again"):
        sampler(content="repack").load_state_dict({**state, "plan": "another"})


@pytest.mark.parametrize("state", [None, 3, [], {}, {"epoch": 1}], ids=str)
def test_what_is_no_state(state: Any) -> None:
    with refused(SamplerError, "state_dict() returned", str(state)):
        sampler().load_state_dict(state)


def test_damaged_states() -> None:
    state, end = after(2), len(epoch_of(0))
    with refused(SamplerError, "version 2", "reads version 1", "the release that saved it"):
        sampler().load_state_dict({**state, "version": 2})
    with refused(SamplerError, "lacks position", "state_dict() returned"):
        sampler().load_state_dict({name: value for name, value in state.items() if name != "position"})
    for value in (-1, end + 1, 1.5, "1"):
        with refused(SamplerError, "position of a state must be an integer in 0..", repr(value)):
            sampler().load_state_dict({**state, "position": value})
    for value in (-1, 2**64, None):
        with refused(SamplerError, "epoch of a state must be an integer in 0..2**64-1", repr(value)):
            sampler().load_state_dict({**state, "epoch": value})


def test_a_refused_state_changes_nothing() -> None:
    s = sampler()
    s.set_epoch(2)
    with refused(SamplerError, "seed"):
        s.load_state_dict(after(2, seed=1))
    assert s.epoch == 2
    assert list(s) == epoch_of(2)


# Loaders that take batches early ------------------------------------------------------------------------------


def loader_of(source: tp.PackBatchSampler, **settings: Any) -> Any:
    return torch.utils.data.DataLoader(
        range(len(ROWS)),  # type: ignore[arg-type]
        batch_sampler=source,
        collate_fn=list,
        **settings,
    )


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_a_state_with_batches_in_flight_says_what_was_delivered() -> None:
    """Without a number it would tell of batches that the loop never got."""
    s = sampler()
    iterator = iter(loader_of(s, num_workers=2))
    got = [next(iterator) for _ in range(3)]
    with refused(SamplerError, "batches of epoch 0", "state_dict(delivered=", "StatefulDataLoader", "set_epoch"):
        s.state_dict()
    resumed = sampler()
    resumed.load_state_dict(s.state_dict(delivered=3))
    assert [*got, *resumed] == epoch_of(0)
    # The next epoch has not begun, so nothing is in flight.
    s.set_epoch(1)
    assert s.state_dict()["position"] == 0


def test_a_loader_without_workers_takes_nothing_early() -> None:
    s = sampler()
    iterator = iter(loader_of(s))
    got = [next(iterator) for _ in range(3)]
    resumed = sampler()
    resumed.load_state_dict(s.state_dict())
    assert [*got, *resumed] == epoch_of(0)


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_an_epoch_set_too_late_is_refused() -> None:
    """The workers have their first batches of epoch 0 already."""
    s = sampler()
    iterator = iter(loader_of(s, num_workers=2))
    s.set_epoch(3)
    with refused(SamplerError, "set to 3 when this iteration of epoch 0 had begun", "before iter(loader)"):
        list(iterator)


def test_an_epoch_may_be_set_before_the_one_under_way_ends() -> None:
    """Something else iterates the new one, or the last batch was delivered."""
    s = sampler()
    first = iter(s)
    got = [next(first) for _ in range(4)]
    s.set_epoch(1)
    second = iter(s)
    assert next(second) == epoch_of(1)[0]
    assert [*got, *first] == epoch_of(0)
    assert [*second] == epoch_of(1)[1:]
    s.set_epoch(2)
    assert next(second, None) is None


def test_a_lightning_that_keeps_its_position_otherwise_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    other = types.ModuleType("pytorch_lightning.loops.fit_loop")
    other.__file__ = __file__
    monkeypatch.setitem(sys.modules, other.__name__, other)
    with pytest.warns(UserWarning, match="keeps its position in another way .*_FitLoop"):
        batches = list(sampler())
    assert batches == epoch_of(0)
