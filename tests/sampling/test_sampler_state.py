"""Where iterations of samplers and loaders begin, and states of loaders: what they hold, and what is refused."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch.utils.data

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.loading.packed_loader import PackedLoader
from tests.support.messages import refused
from tests.support.samplers import Ids

ROWS = np.tile([[3, 4], [2, 2], [1, 0]], (20, 1))
LIMITS = tp.Limits(nodes=6, edges=7)


def sampler(rows: Any = ROWS, limits: tp.Limits = LIMITS, **settings: Any) -> tp.PackBatchSampler:
    return tp.PackBatchSampler(tp.GraphSizes(rows), limits, **{"seed": 5, **settings})


def loader(*args: Any, **settings: Any) -> PackedLoader:
    return PackedLoader(Ids(), sampler(*args, **settings))


def epoch_of(epoch: int, skip: int = 0) -> list[list[int]]:
    """Batches of an epoch of a new sampler."""
    s = sampler()
    s.set_epoch(epoch, skip)
    return list(s)


def after(batches: int, epoch: int = 0, *args: Any, **settings: Any) -> dict[str, Any]:
    """State of a new loader after some batches of an epoch, sent through JSON."""
    new = loader(*args, **settings)
    new.set_epoch(epoch)
    list(itertools.islice(new, batches))
    state: dict[str, Any] = json.loads(json.dumps(new.state_dict()))
    return state


# Where iterations begin ---------------------------------------------------------------------------------------


def test_an_iteration_leaves_out_the_first_batches() -> None:
    whole = epoch_of(3)
    for skip in (0, 1, len(whole)):
        assert epoch_of(3, skip) == whole[skip:]
    s = sampler()
    s.set_epoch(3, skip=2)
    assert len(s) == len(whole)
    s.set_epoch(3)
    assert list(s) == whole
    s.set_epoch(4, skip=2)
    assert list(s) == epoch_of(4)[2:]
    # Only the next iteration leaves them out.
    with pytest.warns(UserWarning, match="epoch 4 is iterated again"):
        assert list(s) == epoch_of(4)


def test_after_a_state_of_a_complete_epoch_another_epoch_may_be_set() -> None:
    whole, one = loader(), loader()
    one.load_state_dict(after(len(whole), epoch=2))
    one.set_epoch(3)
    with warnings.catch_warnings(action="error"):
        assert list(one) == epoch_of(3)


def test_a_wrong_number_of_batches_is_refused() -> None:
    s, number = sampler(), len(epoch_of(0))
    for value in (-1, number + 1, 1.5, "2", None):
        with refused(SamplerError, "skip must be an integer in 0..", repr(value)):
            s.set_epoch(4, skip=value)  # type: ignore[arg-type]
    assert s.epoch == 0


def test_only_an_epoch_from_its_start_is_a_repetition() -> None:
    one = loader()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(itertools.islice(one, 3))
        one.load_state_dict(one.state_dict())
        list(one)
    one.set_epoch(0)
    with pytest.warns(UserWarning, match="epoch 0 is iterated again"):
        list(one)


def test_an_epoch_set_too_late_is_refused() -> None:
    """Workers of a plain loader have their first batches of epoch 0 already; a packed loader waits."""
    s = sampler()
    dataset: Any = range(len(ROWS))
    iterator = iter(torch.utils.data.DataLoader(dataset, batch_sampler=s, collate_fn=list, num_workers=2))
    s.set_epoch(3)
    with refused(SamplerError, "set to 3 after this iteration of epoch 0 had begun", "before iter(loader)"):
        list(iterator)
    packed = PackedLoader(Ids(), sampler(), num_workers=2)
    iterator = iter(packed)
    packed.set_epoch(3)
    assert list(iterator) == epoch_of(3)


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


# What a state is ----------------------------------------------------------------------------------------------


def test_a_state_is_small_and_plain() -> None:
    small = after(1)
    assert set(small) == {
        "trains",
        "version", "seed", "epoch", "position", "next_epoch", "num_replicas", "content", "shuffle", "packs_per_batch",
        "drop_last", "num_graphs", "limits", "sizes", "plan",
    }  # fmt: skip
    large = after(1, 0, np.tile(ROWS, (200, 1)))
    assert len(json.dumps(large)) < len(json.dumps(small)) + 20 < 600


def test_a_state_is_equal_on_all_ranks_and_serves_each() -> None:
    state = after(3, num_replicas=3, rank=0)
    assert state == after(3, num_replicas=3, rank=2)
    one, whole = (loader(num_replicas=3, rank=2) for _ in range(2))
    one.load_state_dict(state)
    assert list(one) == list(whole)[3:]


def test_the_oldest_iteration_under_way_counts() -> None:
    """It began when its first batch was requested; and an epoch that was set has no batches yet."""
    one = loader(content="fixed")
    one.set_epoch(0)
    second, first = iter(one), iter(one)
    for iterator in (first, first, second, first):
        next(iterator)
    assert one.state_dict()["position"] == 3
    one.sampler.set_epoch(1)
    assert (one.state_dict()["epoch"], one.state_dict()["position"]) == (1, 0)
    one.sampler.set_epoch(0)
    assert len([*first]) == len(one) - 3
    assert one.state_dict()["position"] == 1
    third = iter(one)
    for iterator in (third, third):
        next(iterator)
    assert one.state_dict()["position"] == 1
    del second
    assert one.state_dict()["position"] == 2
    del third
    assert one.state_dict()["position"] == 2


def some_of(batches: Any, number: int | None) -> None:
    """Iterate in a generator, which holds the iterator until the generator is gone."""
    generator = (batch for batch in batches)
    list(itertools.islice(generator, number))


@pytest.mark.filterwarnings("ignore:epoch 0 is iterated again")
@pytest.mark.parametrize(
    ("workers", "gradients", "number"),
    [(0, True, 1), (0, True, None), (0, False, 7), (2, True, 7), (2, False, None)],
)
def test_an_evaluation_in_the_middle_of_an_epoch_changes_no_state(
    workers: int, gradients: bool, number: int | None
) -> None:
    """Under no_grad or without it, whole or not; also in a resumed epoch, and if the loop has all batches."""
    one = PackedLoader(Ids(), sampler(), num_workers=workers)

    def evaluate() -> dict[str, Any]:
        before = one.state_dict()
        with torch.set_grad_enabled(gradients):
            some_of(one, number)
        # With gradients, the evaluation uses up an epoch.
        assert {**one.state_dict(), "next_epoch": 0} == {**before, "next_epoch": 0}
        assert one.state_dict()["next_epoch"] == before["next_epoch"] + gradients
        return before

    training, length = iter(one), len(one)
    got = [next(training) for _ in range(3)]
    state = evaluate()
    got += [next(training)]
    assert (evaluate()["position"], state["position"]) == (4, 3)
    got += [next(training) for _ in range(length - 4)]
    assert (evaluate()["position"], got) == (length, epoch_of(0))
    assert next(training, None) is None
    # Nor does the evaluation count when the training has ended.
    assert one.state_dict()["position"] == length
    one.load_state_dict(state)
    training = iter(one)
    assert next(training) == got[3]
    assert evaluate()["position"] == 4
    assert list(training) == got[4:]


def test_a_training_counts_although_predictions_are_under_way() -> None:
    """As a check before the training leaves them; and iterations before a state was loaded do not count."""
    one = loader()
    with torch.no_grad():
        checking = iter(one)
        next(checking)
    training = iter(one)
    for _ in range(3):
        next(training)
    state = one.state_dict()
    assert state["position"] == 3
    one.load_state_dict(after(5))
    assert one.state_dict()["position"] == 5
    assert len([*checking, *training]) == 2 * len(one) - 4


def test_an_iteration_that_lost_its_workers_is_refused() -> None:
    """Persistent workers serve one iteration: the older one would end early, or take batches of the other."""
    one = PackedLoader(Ids(), sampler(), num_workers=1, persistent_workers=True)
    training = iter(one)
    got = [next(training) for _ in range(3)]
    with torch.no_grad():
        assert list(one) == epoch_of(0)
    assert one.state_dict()["position"] == 3
    with refused(SamplerError, "of epoch 0 has yielded 3 batches", "persistent_workers=False", "a second loader"):
        next(training)
    one.load_state_dict(one.state_dict())
    assert [*got, *one] == epoch_of(0)
    one.set_epoch(1)
    assert list(one) == epoch_of(1)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_of_a_loader_has_no_iterations(copied: Any) -> None:
    one = loader(content="fixed")
    training = iter(one)
    next(training)
    other = copied(one)
    other.set_epoch(0)
    assert [*other] == [*loader(content="fixed")]
    assert other.state_dict()["position"] == len(one)
    assert (one.state_dict()["position"], len([*training])) == (1, len(one) - 1)


def test_the_rest_of_an_epoch_comes_although_a_framework_sets_another() -> None:
    """Frameworks set the epoch of the sampler; `set_epoch` of the loader is the user's word."""
    state, end = after(4, 2), after(len(epoch_of(2)), 2)
    one = loader()
    one.load_state_dict(state)
    one.sampler.set_epoch(3)
    assert one.state_dict() == state
    with pytest.warns(UserWarning, match="in the middle of epoch 2, but epoch 3 was set"):
        assert list(one) == epoch_of(2)[4:]
    one.sampler.set_epoch(3)
    assert list(one) == epoch_of(3)
    one.load_state_dict(state)
    one.set_epoch(4)
    assert list(one) == epoch_of(4)
    # Of an epoch that has ended nothing is left, so that the next one is whole.
    one.load_state_dict(end)
    one.sampler.set_epoch(5)
    assert list(one) == epoch_of(5)
    one.load_state_dict(end)
    assert list(one) == []


# What is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"seed": 6}, ["seed 5", "has 6"]),
        ({"content": "fixed"}, ["content 'resample'", "'fixed'", "pass content='resample'"]),
        ({"packs_per_batch": 2}, ["packs_per_batch 1", "has 2"]),
        ({"drop_last": True}, ["drop_last False", "has True"]),
        ({"rows": ROWS[:-1]}, ["num_graphs 60", "has 59"]),
        ({"limits": tp.Limits(6, 8)}, ["limits", "'edges': 7", "'edges': 8"]),
        ({"limits": tp.Limits(6, 7, graphs=3)}, ["limits", "'graphs': None", "'graphs': 3"]),
        ({"rows": ROWS[::-1]}, ["sizes", "resuming would repeat or lose graphs"]),
        ({"plan": tp.pack(tp.GraphSizes(ROWS), LIMITS, method="none")}, ["plan", after(2)["plan"]]),
    ],
    ids=str,
)
def test_other_settings_name_both_values(changes: dict[str, Any], parts: list[str]) -> None:
    with refused(SamplerError, *parts, "begin the epoch again"):
        loader(**changes).load_state_dict(after(2))


@pytest.mark.filterwarnings("ignore:1 of 61 graphs exceed")
@pytest.mark.parametrize("place", [0, 30, 60])
def test_a_dropped_graph_at_another_place_is_refused(place: int) -> None:
    """Those left are the same in the same order, but their ids are others."""
    rows = np.insert(ROWS, [7], [9, 9], axis=0)
    state = after(2, 0, rows, oversize="drop")
    loader(rows, oversize="drop").load_state_dict(state)
    with refused(SamplerError, "sizes", "resuming would repeat or lose graphs"):
        loader(np.insert(ROWS, [place], [9, 9], axis=0), oversize="drop").load_state_dict(state)


def test_a_default_that_changed_names_the_old_one() -> None:
    """Earlier versions resampled where most sizes are distinct, too, and wrote a period of plans."""
    rows = np.stack([np.arange(1, 41), np.arange(40, 0, -1)], axis=1)
    limits = tp.Limits(nodes=100, edges=100)
    old = {**after(2, 1, rows, limits, content="resample"), "replan_every": None}
    default = loader(rows, limits)
    with refused(SamplerError, "content 'resample'", "has 'exchange'", "pass content='resample'"):
        default.load_state_dict(old)
    one, whole = (loader(rows, limits, content="resample") for _ in range(2))
    one.load_state_dict(old)
    whole.set_epoch(1)
    assert list(one) == list(whole)[2:]


@pytest.mark.parametrize("changes", [{"content": "repack", "replan_every": 1}, {"replan_every": 3}])
def test_states_of_epochs_with_new_plans_are_refused(changes: dict[str, Any]) -> None:
    with refused(SamplerError, "resuming would repeat or lose graphs"):
        loader(content="resample").load_state_dict({**after(2), **changes})


@pytest.mark.parametrize("state", [None, 3, [], {}, {"epoch": 1}], ids=str)
def test_what_is_no_state(state: Any) -> None:
    with refused(SamplerError, "state_dict() returned", str(state)):
        loader().load_state_dict(state)


def test_damaged_states_are_refused_and_change_nothing() -> None:
    state, end, one = after(2), len(epoch_of(0)), loader()
    one.set_epoch(2)
    with refused(SamplerError, "version 2", "reads version 1", "the release that saved it"):
        one.load_state_dict({**state, "version": 2})
    with refused(SamplerError, "lacks position", "state_dict() returned"):
        one.load_state_dict({name: value for name, value in state.items() if name != "position"})
    for value in (-1, end + 1, 1.5, "1"):
        with refused(SamplerError, "position of a state must be an integer in 0..", repr(value)):
            one.load_state_dict({**state, "position": value})
    for value in (-1, 2**64, None):
        with refused(SamplerError, "epoch of a state must be an integer in 0..2**64-1", repr(value)):
            one.load_state_dict({**state, "epoch": value})
    assert one.sampler.epoch == 2
    assert list(one) == epoch_of(2)
