"""Batches of several shapes through every way of loading: the shape of the step, in workers and on all ranks."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch
from dgl.dataloading import GraphDataLoader
from torch.utils.data import Subset

import dgl_tuplepack as tp
from dgl_tuplepack.errors import GraphTooLargeError, InputError, LimitsError, PlanError, SamplerError, SearchError
from dgl_tuplepack.graphs.items import EpochIds, shape_index_of
from dgl_tuplepack.loading.packed_loader import PackedLoader
from tests.support.graphs import assert_same_batch, shapes_of
from tests.support.messages import refused
from tests.support.stores import molecules, purchases

pytestmark = pytest.mark.processes

PACKS, RANKS = 2, 3


def items_of(kind: str) -> list[Any]:
    """Small graphs; and a large one, which is several of them."""
    items = molecules(150, most=6) if kind == "homogeneous" else purchases(150)
    large = dgl.batch([item[0] if isinstance(item, tuple) else item for item in items[:30]])
    # One graph, not a batch of several.
    large.set_batch_num_nodes({t: torch.tensor([large.num_nodes(t)]) for t in large.ntypes})
    large.set_batch_num_edges({t: torch.tensor([large.num_edges(t)]) for t in large.canonical_etypes})
    return [*items, (large, items[0][1]) if isinstance(items[0], tuple) else large]


def buckets_of(items: list[Any]) -> list[tp.Limits]:
    """A shape of about twelve small graphs, and one for the large graph."""
    sizes = tp.sizes_of(items)
    small = sizes.array[:12].sum(axis=0)
    largest = [max(a, b) for a, b in zip(small.tolist(), sizes.array.max(axis=0).tolist(), strict=True)]
    named = [dict(zip(sizes.components, values, strict=True)) for values in (small.tolist(), largest)]
    return [tp.Limits.from_components(maxima) for maxima in named]


def epoch_of(sampler: tp.PackBatchSampler, epoch: int = 0) -> list[EpochIds]:
    """The batches of an epoch, from another sampler, so that iterating the epoch once more is no repetition."""
    other = copy.deepcopy(sampler)
    other.set_epoch(epoch)
    return list(other)  # type: ignore[arg-type]


@pytest.fixture(params=["homogeneous", "heterogeneous"])
def items(request: pytest.FixtureRequest) -> list[Any]:
    return items_of(request.param)


def samplers(items: list[Any], **settings: Any) -> list[tp.PackBatchSampler]:
    settings = {"packs_per_batch": PACKS, "num_replicas": RANKS, **settings}
    return [tp.PackBatchSampler(items, buckets_of(items), rank=rank, **settings) for rank in range(RANKS)]


@pytest.mark.parametrize(("workers", "settings"), [(2, {}), (0, {"sort_edges": True, "cover_padding": True})])
def test_ranks_get_the_shape_of_the_step_from_collate_and_store_alike(
    items: list[Any], workers: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    store = tp.GraphStore.write(tmp_path / "store", items)
    data = tp.with_ids(items)
    of_ranks, seen, shapes = [], [], {}
    for sampler in samplers(items):
        collate = tp.PaddedCollate(sampler.limits, data[0], PACKS, **settings)
        by_collate = GraphDataLoader(
            data, batch_sampler=copy.deepcopy(sampler), collate_fn=collate, num_workers=workers
        )
        view = store.padded(sampler.limits, PACKS, **settings)
        by_store = GraphDataLoader(view, sampler=copy.deepcopy(sampler), batch_size=None, num_workers=workers)
        on_device = store.to("cpu").padded(sampler.limits, PACKS, **settings)
        steps = list(zip(sampler, by_collate, by_store, strict=True))
        for ids, collated, stored in steps:
            assert_same_batch(stored, collated)
            assert_same_batch(on_device[ids], collated)
            # The shape is that of the step, also where the content would fit a smaller one.
            limits = sampler.limits[ids.shape]
            assert len(collated.graph_mask) == PACKS * limits.graphs + 1
            assert shapes.setdefault(ids.shape, shapes_of(stored)) == shapes_of(stored)
        of_ranks.append([ids.shape for ids, _, _ in steps])
        seen += [i for ids, _, _ in steps for i in ids]
    assert sorted(seen) == list(range(len(items)))
    assert of_ranks[0] == of_ranks[1] == of_ranks[2]
    assert sorted(shapes) == [0, 1]


def test_what_is_not_told_gets_the_smallest_shape_that_holds_it(items: list[Any], tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path / "store", items)
    limits = samplers(items)[0].limits
    data, last = tp.with_ids(items), len(items) - 1
    collate = tp.PaddedCollate(limits, data[0])
    for ids, shape in (([], 0), ([0], 0), ([last], 1)):
        # A subset does not hand on what the sampler told.
        items_of_subset = Subset(data, list(range(len(items)))).__getitems__(EpochIds(ids, 0, 1))
        assert shape_index_of(items_of_subset) is None
        right = store.padded(limits[shape])[ids]
        assert_same_batch(collate(items_of_subset), right)
        assert_same_batch(store.padded(limits)[ids], right)
        assert_same_batch(store.padded(limits)[ids], right)
    with refused(GraphTooLargeError, "the batch holds", "hold"):
        store.padded(limits)[[last, last, last]]
    with refused(GraphTooLargeError, "the batch holds", "hold"):
        collate([data[last]] * 3)
    # A worker that is spawned gets a copy.
    copied = pickle.loads(pickle.dumps(store.padded(limits)))
    assert_same_batch(copied[EpochIds([0], 0, 1)], store.padded(limits[1])[[0]])
    # What a sampler told is binding, for a batch without graphs too.
    empty = EpochIds([], 0, 1)
    for found in (store.padded(limits)[pickle.loads(pickle.dumps(empty))], collate(data.__getitems__(empty))):
        assert_same_batch(found, store.padded(limits[1])[[]])
    with refused(GraphTooLargeError, "the batch holds", "hold"):
        store.padded(limits)[EpochIds([last], 0, 0)]
    with refused(SamplerError, "sampler chose shape 2", "only the shapes 0 to 1", "sampler.limits"):
        store.padded(limits)[EpochIds([0], 0, 2)]


@pytest.mark.parametrize(("kind", "workers"), [("list", 2), ("store", 0), ("transformed", 2)])
def test_one_call_makes_a_loader_of_several_shapes(kind: str, workers: int, tmp_path: Path) -> None:
    items = items_of("homogeneous")
    store = tp.GraphStore.write(tmp_path / "store", items)
    source, given = items if kind == "list" else store, {}
    if kind == "transformed":
        given["transform"] = dgl.transforms.ToSimple()
    shapes: dict[Any, Any] = {}
    for rank in range(RANKS):
        loader = tp.packed_loader(
            source,
            limits=buckets_of(items),
            packs_per_batch=PACKS,
            num_workers=workers,
            num_replicas=RANKS,
            rank=rank,
            **given,
        )
        assert isinstance(loader.limits, tuple)
        for ids, batch in zip(epoch_of(loader.sampler), loader, strict=True):
            assert sorted(ids) == sorted(batch.graph_ids[batch.graph_mask].tolist())
            shapes.setdefault(ids.shape, set()).add(len(batch.node_mask))
    assert {shape: len(lengths) for shape, lengths in shapes.items()} == {0: 1, 1: 1}


def test_a_loader_of_small_batches_finds_its_shapes() -> None:
    items = [*molecules(300, most=6), items_of("homogeneous")[-1]]
    with refused(SearchError, "out of reach", "search several shapes"):
        tp.packed_loader(items, 6)
    loader = tp.packed_loader(items, 6, shapes=2)
    assert len(loader.limits) == len(loader.search.best.limits) == 2
    assert abs(loader.graphs_per_batch / 6 - 1) <= 0.05
    assert sum(batch.num_real_graphs for batch in loader) == len(items)
    loaders = tp.packed_loader({"train": items[:-1], "valid": items[-1:]}, 6, splits=True, shapes=2)
    assert loaders["train"].limits == loaders["valid"].limits
    with refused(InputError, "shapes=2 is for limits that are searched", "this call gives limits"):
        tp.packed_loader(items, limits=buckets_of(items), shapes=2)


def test_parts_of_a_split_share_the_shapes(tmp_path: Path) -> None:
    items = items_of("homogeneous")
    parts = {"train": items[::2], "valid": items[1::2]}
    loaders = tp.packed_loader(parts, splits=True, limits=buckets_of(items))
    assert loaders["train"].limits == loaders["valid"].limits
    assert isinstance(loaders["train"].limits, tuple)
    plans = {name: loader.plan for name, loader in loaders.items()}
    again = tp.packed_loader(parts, splits=True, plan=plans)
    assert again["valid"].limits == loaders["valid"].limits
    one = tp.pack(tp.sizes_of(items[::2]), buckets_of(items)[-1])
    with refused(PlanError, "'train' is for Limits(", "but the plan 'valid' for (Limits("):
        tp.packed_loader(parts, splits=True, plan={"valid": plans["valid"], "train": one})


def test_states_and_plans_of_other_shapes_are_refused() -> None:
    sizes = tp.GraphSizes([[3, 3], [9, 9], [2, 2], [4, 1]] * 5)
    small, middle, large = (tp.Limits(n, n) for n in (5, 7, 12))
    sampler = tp.PackBatchSampler(sizes, [small, large])
    state = json.loads(json.dumps(PackedLoader([], sampler).state_dict()))
    PackedLoader([], tp.PackBatchSampler(sizes, [small, large])).load_state_dict(state)
    for other in ([middle, large], large, [small, middle, large]):
        with refused(SamplerError, "saved with limits"):
            PackedLoader([], tp.PackBatchSampler(sizes, other)).load_state_dict(state)
    with refused(PlanError, "one of them has several shapes", "make a plan for these limits"):
        tp.PackBatchSampler(sizes, large, plan=sampler.plan)
    with refused(PlanError, "one of them has several shapes", "make a plan for these limits"):
        tp.PackBatchSampler(sizes, [small, large], plan=tp.pack(sizes, large))
    with refused(PlanError, "has shape", "make a plan for these shapes"):
        tp.PackBatchSampler(sizes, [tp.Limits(2, 2), large], plan=sampler.plan)
    larger = tp.pack([[10, 10], [10, 10]], [small, tp.Limits(20, 20)])
    with refused(PlanError, "and exceeds"):
        tp.PackBatchSampler([[10, 10], [10, 10]], [small, tp.Limits(12, 12)], plan=larger)


def test_one_shape_is_asked_for_where_there_can_be_no_other() -> None:
    items = items_of("homogeneous")
    buckets = buckets_of(items)
    for call in (
        lambda: tp.StreamPacker(items, buckets),
        lambda: tp.PackedDataset(items, buckets),
        lambda: tp.transforms.PadToLimits(buckets),
        lambda: tp.lower_bound(tp.sizes_of(items), buckets),
    ):
        with refused(LimitsError, "one shape is needed here", "limits of 2", "give one of them"):
            call()
