"""The sampler: limits, ranks, epochs, warnings, and what it refuses."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import GraphTooLargeError, LimitsError, PlanError, SamplerError, SizesError
from tests.support.graphs import flat, generator, random_graph
from tests.support.messages import refused

# 3 size classes, 12 graphs; under LIMITS every pack holds several.
SIZES = tp.GraphSizes([[3, 4], [2, 2], [1, 0]] * 4)
LIMITS = tp.Limits(nodes=6, edges=7)


@pytest.fixture(autouse=True)
def _no_world_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher's environment must not decide these tests."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def sampler(**settings: Any) -> tp.PackBatchSampler:
    return tp.PackBatchSampler(SIZES, LIMITS, **settings)


def test_ids_within_a_pack_are_python_integers() -> None:
    # Datasets index lists, and collate functions serialise ids; numpy integers disturb both.
    assert {type(graph) for graph in flat(list(sampler()))} == {int}


# Limits and oversize ------------------------------------------------------------------------------------------


def test_samplers_of_different_graphs_with_one_cap_have_one_shape() -> None:
    limits = tp.Limits(nodes=12, edges=14, graphs=9)
    parts = [tp.GraphSizes([[size, size]] * 20) for size in (2, 3, 12)]
    assert {tp.PackBatchSampler(part, limits).limits for part in parts} == {limits}
    plan = tp.pack(parts[0], limits.replace_graphs(4))
    assert tp.PackBatchSampler(parts[0], limits, plan=plan).limits == limits


def test_too_large_graphs_are_named() -> None:
    sizes = tp.GraphSizes([[3, 1], [50, 1], [3, 1], [4, 12]])
    with refused(
        GraphTooLargeError, "2 of 4 graphs", "Limits(nodes=10, edges=10, graphs=None)", "graph 1 (50 nodes, 1 edges)",
        "graph 3 (4 nodes, 12 edges)", "50 nodes, 12 edges", "Raise the limits",
    ):  # fmt: skip
        tp.PackBatchSampler(sizes, tp.Limits(10, 10))
    with pytest.raises(GraphTooLargeError, match=r"13 of 13.*graph 9 \(") as caught:
        tp.PackBatchSampler(tp.GraphSizes([[9, 1]] * 13), tp.Limits(8, 8))
    assert "graph 10 (" not in str(caught.value)
    assert "and 3 more" in str(caught.value)


def test_dropping_neither_repeats_nor_loses_others() -> None:
    """PyG's dynamic batches repeat a graph here, multipack's lose all after the large one."""
    sizes = tp.GraphSizes([[3, 1], [50, 1], [3, 1], [4, 1]])
    with pytest.warns(UserWarning, match=r"1 of 4 graphs exceed Limits\(nodes=10.* and are dropped") as caught:
        s = tp.PackBatchSampler(sizes, tp.Limits(10, 10), oversize="drop")
    assert [Path(w.filename).name for w in caught] == [Path(__file__).name]
    batches = list(s)
    assert sorted(flat(batches)) == [0, 2, 3]
    assert all(batches)
    assert s.dropped_ids.tolist() == [1]


def test_dropping_all_is_an_error() -> None:
    with refused(GraphTooLargeError, "2 of 2 graphs", "Raise the limits"):
        tp.PackBatchSampler(tp.GraphSizes([[9, 1], [8, 9]]), tp.Limits(7, 7), oversize="drop")


def test_no_graphs() -> None:
    with refused(SizesError, "no graphs", "at least one"):
        tp.PackBatchSampler(tp.GraphSizes(np.zeros((0, 2), dtype=np.int64)), LIMITS)


def test_a_dataset_is_read_directly() -> None:
    gen = generator(0)
    graphs = [(random_graph(gen, *size), 0) for size in SIZES.array.tolist()]
    assert list(tp.PackBatchSampler(graphs, LIMITS)) == list(sampler())
    assert list(tp.PackBatchSampler(tp.with_ids(graphs), LIMITS)) == list(sampler())


# Ranks --------------------------------------------------------------------------------------------------------


def dealt(packs: int, ranks: int, packs_per_batch: int, drop_last: bool = False) -> list[list[list[int]]]:
    """Batches of each rank where graph i is pack i."""
    sizes = tp.GraphSizes([[1, 0]] * packs)
    return [
        list(
            tp.PackBatchSampler(
                sizes, tp.Limits(1, 1), shuffle=False, packs_per_batch=packs_per_batch,
                num_replicas=ranks, rank=rank, drop_last=drop_last,
            )
        )
        for rank in range(ranks)
    ]  # fmt: skip


def test_leftover_packs_go_one_to_each_rank() -> None:
    # 3 ranks, 2 packs a batch: 6 packs a step, 4 left over.
    assert dealt(10, 3, 2) == [[[0, 1], [6, 9]], [[2, 3], [7]], [[4, 5], [8]]]
    # Fewer left than ranks: the others stay empty.
    assert dealt(8, 3, 2) == [[[0, 1], [6]], [[2, 3], [7]], [[4, 5], []]]
    assert dealt(2, 3, 4) == [[[0]], [[1]], [[]]]


def test_drop_last_drops_the_uneven_rest() -> None:
    assert dealt(10, 3, 2, drop_last=True) == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert dealt(12, 3, 2, drop_last=True) == [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]]
    with refused(SamplerError, "drop_last=True would leave nothing", "2 packs", "needs 1 x 3", "drop_last=False"):
        dealt(2, 3, 1, drop_last=True)


def test_world_size_without_a_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with refused(SamplerError, "WORLD_SIZE is 2", "not initialised", "init_process_group", "num_replicas and rank"):
        sampler()
    assert sampler(num_replicas=2, rank=1).rank == 1
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert sampler().num_replicas == 1


def test_process_group_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A launcher sets WORLD_SIZE too; with a process group that is no error.
    monkeypatch.setenv("WORLD_SIZE", "2")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        s = sampler()
        assert (s.num_replicas, s.rank) == (1, 0)
        # What is given counts more than the group.
        assert sampler(num_replicas=3, rank=2).rank == 2
    finally:
        torch.distributed.destroy_process_group()
    with refused(SamplerError, "WORLD_SIZE is 2"):
        sampler()


# Epochs and warnings ------------------------------------------------------------------------------------------


def repeats(s: tp.PackBatchSampler, times: int = 3) -> list[warnings.WarningMessage]:
    """Warnings when one epoch is iterated several times."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            list(s)
    return caught


@pytest.mark.parametrize("content", ["resample", "exchange"])
def test_iterating_an_epoch_twice_warns_once(content: str) -> None:
    s = sampler(content=content)
    s.set_epoch(5)
    (warning,) = repeats(s)
    assert warning.category is UserWarning
    for part in ("epoch 5 is iterated again", content, "set_epoch"):
        assert part in str(warning.message)
    assert Path(warning.filename) == Path(__file__)
    s.set_epoch(6)
    assert repeats(s) == []


@pytest.mark.parametrize("settings", [{"content": "fixed"}, {"shuffle": False}])
def test_fixed_content_may_be_repeated(settings: dict[str, Any]) -> None:
    assert repeats(sampler(**settings)) == []


def test_iter_alone_is_no_iteration() -> None:
    """Torch calls iter() more than once an epoch; only batches that were asked for count."""
    s = sampler()
    for epoch in range(2):
        s.set_epoch(epoch)
        for _ in range(3):
            iter(s)
        assert repeats(s, times=1) == []
    # The second time that batches are asked for is a repetition.
    assert len(repeats(s, times=1)) == 1


def test_epoch_at_the_first_batch_counts() -> None:
    s, later = sampler(), sampler()
    iterator = iter(s)
    s.set_epoch(2)
    later.set_epoch(2)
    assert list(iterator) == list(later)


def test_the_sampler_is_its_own_sampler() -> None:
    # Lightning calls loader.batch_sampler.sampler.set_epoch.
    s = sampler()
    assert s.sampler is s
    s.sampler.set_epoch(4)
    assert s.epoch == 4
    assert isinstance(s, torch.utils.data.Sampler)


# What is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"content": "repack"}, ("unknown content 'repack'", "fixed", "resample", "exchange")),
        ({"oversize": "skip"}, ("unknown oversize 'skip'", "'error'", "'drop'")),
        ({"content": "resample", "shuffle": False}, ("content='resample'", "content='fixed' or shuffle=True")),
        ({"content": "exchange", "shuffle": False}, ("content='exchange'", "shuffle=False")),
        ({"packs_per_batch": 0}, ("packs_per_batch must be an integer in 1..", "0")),
        ({"seed": 2**64}, ("seed must be an integer in 0..2**64-1", str(2**64))),
        # Any text counts as true in Python, "False" too.
        ({"shuffle": "False"}, ("shuffle must be True or False", "'False'")),
        ({"drop_last": [True]}, ("drop_last must be True or False", "[True]")),
        ({"num_replicas": 2}, ("num_replicas and rank go together", "2 and None", "both or neither")),
        ({"num_replicas": 0, "rank": 0}, ("num_replicas must be an integer in 1..", "0")),
        ({"num_replicas": 2, "rank": 2}, ("rank must be an integer in 0..1", "2")),
    ],
    ids=str,
)
def test_settings_that_cannot_be(settings: dict[str, Any], parts: tuple[str, ...]) -> None:
    with refused(SamplerError, *parts):
        sampler(**settings)


def test_exchange_needs_one_shape() -> None:
    with refused(SamplerError, "content='exchange'", "one shape", "use content='resample'"):
        tp.PackBatchSampler(SIZES, [LIMITS, tp.Limits(99, 99)], content="exchange")


@pytest.mark.parametrize("value", [-1, 2**64, 0.5, False])
def test_epochs_that_cannot_be(value: Any) -> None:
    with refused(SamplerError, "epoch must be an integer in 0..", repr(value)):
        sampler().set_epoch(value)


EQUAL, DENSE = tp.GraphSizes([[1, 1]] * 10), tp.GraphSizes([[2, 4], [1, 4]] * 3)


@pytest.mark.parametrize(
    ("sizes", "limits", "plan", "parts"),
    [
        (SIZES, LIMITS, tp.pack(SIZES.take(range(11)), LIMITS), ("11 graphs", "12 graphs", "3 sizes", "make a plan")),
        (
            SIZES, LIMITS, tp.pack(tp.GraphSizes([[3, 4], [2, 2], [1, 1]] * 4), LIMITS),
            ("12 graphs", "'edges': 28", "'edges': 24", "make a plan for these sizes"),
        ),
        (
            # Best fit never puts graphs of one size together, so its packs would stay within the smaller limits too.
            SIZES, LIMITS, tp.pack(SIZES, tp.Limits(nodes=12, edges=14), method="next_fit"),
            ("Limits(nodes=12, edges=14, graphs=None)", "and exceeds Limits(nodes=6", "pattern 0", "make the plan"),
        ),
        (
            EQUAL, tp.Limits(4, 4, graphs=3), tp.pack(EQUAL, tp.Limits(4, 4), method="next_fit"),
            ("4 graphs", "Limits(nodes=4, edges=4, graphs=3)"),
        ),
        # "node_only" may exceed the edges; its plan carries raised limits, and these are not the sampler's.
        (DENSE, tp.Limits(3, 6), tp.pack(DENSE, tp.Limits(3, 6), method="node_only"), ("and exceeds", "'edges': 8")),
        (SIZES, LIMITS, "plan.json", ("plan must be a PackPlan", "plan.json", "PackPlan.load")),
    ],
)  # fmt: skip
def test_plans_that_do_not_fit(sizes: Any, limits: tp.Limits, plan: Any, parts: tuple[str, ...]) -> None:
    with refused(PlanError, *parts):
        tp.PackBatchSampler(sizes, limits, plan=plan)


def test_tighter_plans_are_welcome() -> None:
    plan = tp.pack(SIZES, tp.Limits(nodes=5, edges=6, graphs=2))
    s = sampler(plan=plan)
    assert s.limits == tp.Limits(6, 7, graphs=2)
    assert len(s) == plan.num_packs


def test_limits_that_do_not_fit() -> None:
    with refused(LimitsError, "limits must be Limits", "(20, 40)"):
        tp.PackBatchSampler([[1, 1]], (20, 40))  # type: ignore[arg-type]
    with refused(LimitsError, "['edges']", "['nodes', 'edges']", "exactly one limit for each component"):
        tp.PackBatchSampler(SIZES, tp.Limits.from_components({"edges": 6}))
