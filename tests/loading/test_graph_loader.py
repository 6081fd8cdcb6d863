"""`tp.GraphDataLoader` gives what DGL's loader gives for the same graphs: batches, order, errors and random numbers."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch
import torch.distributed as dist
from dgl.dataloading import GraphDataLoader
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Subset, SubsetRandomSampler

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError
from tests.support.graphs import assert_same_dgl_batch, assert_same_graph
from tests.support.messages import refused
from tests.support.stores import molecules, purchases
from tests.support.tensors import generator

ITEMS = molecules(30)


def first_labels(items: Any) -> Any:
    """A collate function of the user's, which relies on items being pairs in a list."""
    assert isinstance(items, list)
    return dgl.batch([graph for graph, _ in items]), [label[0] for _, label in items]


def of_one(item: Any) -> Any:
    graph, label = item
    return graph, label * 2


def seeded(worker: int) -> None:
    torch.manual_seed(worker)


# Arguments are made for each loader, since samplers and generators have a state.
CONFIGURATIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "defaults": dict,
    "batch_size": lambda: {"batch_size": 7},
    "whole batches only": lambda: {"batch_size": 7, "drop_last": True},
    "larger, dropped": lambda: {"batch_size": 64, "drop_last": True},
    "shuffled": lambda: {"batch_size": 7, "shuffle": True},
    "shuffled, one by one": lambda: {"shuffle": True},
    "generator": lambda: {"batch_size": 7, "shuffle": True, "generator": generator(7)},
    "generator, in order": lambda: {"batch_size": 7, "generator": generator(7)},
    "sampler": lambda: {"batch_size": 7, "sampler": SubsetRandomSampler(range(3, 29), generator(7))},
    "sampler of repeated ids": lambda: {
        "batch_size": 7, "sampler": RandomSampler(ITEMS, replacement=True, num_samples=40), "drop_last": True,
    },
    "batch_sampler": lambda: {"batch_sampler": BatchSampler(RandomSampler(ITEMS, generator=generator(7)), 7, True)},
    "list as a batch_sampler": lambda: {"batch_sampler": [[3, 1], [29], [4, 4, 0]]},
    "sampler of packs": lambda: {
        "batch_sampler": tp.PackBatchSampler(tp.sizes_of(ITEMS), tp.Limits(20, 26), content="fixed"),
    },
    "no batches": lambda: {"batch_size": None},
    "no batches, shuffled": lambda: {"batch_size": None, "shuffle": True},
    "no batches, collate_fn": lambda: {"batch_size": None, "collate_fn": of_one},
    "collate_fn": lambda: {"batch_size": 7, "collate_fn": first_labels},
    "collate_fn, batch_sampler": lambda: {"batch_sampler": [[3, 1], [29]], "collate_fn": first_labels},
    "workers": lambda: {"batch_size": 7, "num_workers": 2},
    "workers, generator": lambda: {"batch_size": 7, "num_workers": 2, "shuffle": True, "generator": generator(7)},
    "persistent workers": lambda: {"batch_size": 7, "num_workers": 2, "shuffle": True, "persistent_workers": True},
    "workers with settings": lambda: {
        "batch_size": 7, "num_workers": 2, "worker_init_fn": seeded, "prefetch_factor": 3, "timeout": 60,
    },
    "workers, no batches": lambda: {"batch_size": None, "num_workers": 2},
    "workers, collate_fn": lambda: {"batch_size": 7, "num_workers": 2, "collate_fn": first_labels},
    "ddp, shuffled": lambda: {"batch_size": 7, "use_ddp": True, "shuffle": True},
    "ddp, seed": lambda: {"batch_size": 7, "use_ddp": True, "shuffle": True, "ddp_seed": 5, "drop_last": True},
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tp.GraphStore:
    return tp.GraphStore.write(
        tmp_path_factory.mktemp("loader") / "store", ITEMS, compact=True, splits={"train": range(20)}
    )


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def assert_same_value(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, dgl.DGLGraph):
        assert_same_dgl_batch(found, expected)
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for name, value in expected.items():
            assert_same_value(found[name], value)
    elif not isinstance(expected, list | tuple):
        assert found == expected
    else:
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same_value(one, other)


def epochs_of(loader: Any) -> tuple[list[list[Any]], torch.Tensor]:
    """Batches of two epochs, and the state of torch's random numbers after them."""
    torch.manual_seed(3)
    found = []
    for epoch in range(2):
        if getattr(loader, "use_ddp", False):
            loader.set_epoch(epoch)
        found.append(list(loader))
    return found, torch.get_rng_state()


def assert_same_loader(ours: Any, theirs: Any) -> None:
    """Both have the same settings, and the same batches in two epochs."""
    assert isinstance(ours, DataLoader)
    assert len(ours) == len(theirs)
    for name in ("batch_size", "drop_last", "num_workers", "persistent_workers", "prefetch_factor", "timeout"):
        assert getattr(ours, name) == getattr(theirs, name), name
    for name in ("sampler", "batch_sampler", "worker_init_fn"):
        assert type(getattr(ours, name)) is type(getattr(theirs, name)), name
    (found, state), (expected, other) = epochs_of(ours), epochs_of(theirs)
    assert sum(map(len, expected)) > 0 or len(theirs) == 0
    assert_same_value(found, expected)
    assert torch.equal(state, other)


def test_arguments_have_the_order_and_defaults_of_the_original() -> None:
    found, expected = (inspect.signature(kind).parameters for kind in (tp.GraphDataLoader, GraphDataLoader))
    ours = [(p.name, p.default, p.kind) for p in found.values() if p.name not in ("with_ids", "in_memory")]
    assert ours == [(p.name, p.default, p.kind) for p in expected.values()]


@pytest.mark.parametrize("kind", ["list", "store"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_epochs_are_those_of_the_loader_of_dgl(store: tp.GraphStore, name: str, kind: str) -> None:
    of = CONFIGURATIONS[name]
    dataset = store if kind == "store" else ITEMS
    assert_same_loader(tp.GraphDataLoader(dataset, **of()), GraphDataLoader(ITEMS, **of()))


def test_stores_are_fetched_whole_unless_items_are_asked_for(
    store: tp.GraphStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above would pass item by item, too."""
    monkeypatch.setattr(tp.GraphStore, "__getitem__", None)
    for dataset in (store, store.subset(range(20)), store.batched(), Subset(store, range(20))):
        (graph, _), *_ = tp.GraphDataLoader(dataset, batch_size=16, shuffle=True)
        assert graph.batch_size == 16
    with pytest.raises(TypeError):
        next(iter(tp.GraphDataLoader(store, batch_size=16, collate_fn=first_labels)))


def views_of(store: tp.GraphStore) -> Iterator[tuple[Any, Any]]:
    """What else a loader may be given, and the same as a list."""
    ids = [7, 3, 3, 29, 0, 11]
    chosen = [ITEMS[i] for i in ids]
    yield store.subset(ids), chosen
    yield Subset(store, ids), chosen
    yield Subset(store, []), []
    yield store.batched(), ITEMS
    yield store.to("cpu"), ITEMS
    yield store.to("cpu").batched(), ITEMS
    yield Subset(ITEMS, ids), chosen
    yield [], []
    yield ITEMS[:1], ITEMS[:1]
    yield store.subset([4]), ITEMS[4:5]


def test_every_view_of_a_store_is_batched_as_the_list(store: tp.GraphStore) -> None:
    for dataset, items in views_of(store):
        for shuffle in (False, True) if items else (False,):
            settings: Any = {"batch_size": 4, "shuffle": shuffle}
            ours = tp.GraphDataLoader(dataset, **settings)
            assert_same_loader(ours, GraphDataLoader(items, **settings))


def test_labels_of_any_kind_and_heterographs_come_as_dgl_collates_them(tmp_path: Path) -> None:
    bare = [graph for graph, _ in ITEMS]
    named = [(graph, {"y": label, "root": torch.tensor(i)}) for i, (graph, label) in enumerate(ITEMS)]
    short = [(graph.int(), label) for graph, label in ITEMS]
    several = [({"a": graph, "b": graph}, label) for graph, label in ITEMS]
    for name, items in {"bare": bare, "named": named, "int": short, "several": several, "hetero": purchases(9)}.items():
        found = tp.GraphStore.write(tmp_path / name, items)
        assert_same_loader(tp.GraphDataLoader(found, batch_size=4), GraphDataLoader(list(found), batch_size=4))


def test_the_path_of_a_file_gives_the_batches_of_its_graphs(store: tp.GraphStore, tmp_path: Path) -> None:
    """A path without a store, such as that of a .bin file, was taken for a dataset of letters."""
    graphs, labels = zip(*ITEMS, strict=True)
    dgl.save_graphs(str(tmp_path / "graphs.bin"), list(graphs), {"labels": torch.stack(labels)})
    for path in (store.path, str(tmp_path / "graphs.bin")):
        assert_same_loader(tp.GraphDataLoader(path, batch_size=7), GraphDataLoader(ITEMS, batch_size=7))
        settings: Any = {"batch_size": 7, "collate_fn": first_labels}
        assert_same_loader(tp.GraphDataLoader(path, **settings), GraphDataLoader(ITEMS, **settings))


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"shuffle": True, "sampler": [0]},
        {"use_ddp": True, "batch_sampler": [[0]]},
        {"nothing": 1},
    ],
    ids=str,
)
def test_wrong_arguments_are_errors_of_dgls_loader(store: tp.GraphStore, wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)) as expected:
        GraphDataLoader(ITEMS, **wrong)
    with pytest.raises(expected.type) as found:
        tp.GraphDataLoader(store, **wrong)
    assert str(found.value) == str(expected.value)


def test_ids_beyond_the_data_and_epochs_without_ddp_are_errors(store: tp.GraphStore) -> None:
    with pytest.raises(tp.errors.SizesError, match="30"):
        list(tp.GraphDataLoader(store, batch_sampler=[[0, 30]]))
    with pytest.raises(dgl.DGLError, match="use_ddp"):
        tp.GraphDataLoader(store).set_epoch(1)


class Attributed(list[Any]):
    """A dataset with attributes, as DGL's have them."""

    dim_nfeats, gclasses = 3, 2


def test_attributes_of_the_dataset_are_those_of_the_loaders_dataset(store: tp.GraphStore) -> None:
    items = Attributed(ITEMS)
    assert tp.GraphDataLoader(items).dataset is items
    assert tp.GraphDataLoader(items, in_memory=True).dataset.dataset is items
    assert tp.GraphDataLoader(items).dataset.gclasses == 2
    loader = tp.GraphDataLoader(store, batch_size=8)
    assert loader.dataset.dataset is store
    assert loader.dataset.splits["train"].tolist() == list(range(20))
    assert not hasattr(loader.dataset, "gclasses")
    assert_same_graph(loader.dataset[3][0], ITEMS[3][0])
    for same in (copy.copy(loader.dataset), pickle.loads(pickle.dumps(loader.dataset))):
        assert_same_value(loader.collate_fn(same.__getitems__([2, 1])), next(iter(DataLoader(
            same, batch_sampler=[[2, 1]], collate_fn=loader.collate_fn,
        ))))  # fmt: skip


def test_a_loader_is_made_again_from_its_parts(store: tp.GraphStore) -> None:
    """Of a whole one, of one with a collate function, and of one without batches."""
    expected = list(GraphDataLoader(ITEMS, batch_size=7))
    loader = tp.GraphDataLoader(store, batch_size=7)
    for kind in (tp.GraphDataLoader, DataLoader):
        again: Any = kind(loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn)
        assert_same_value(list(again), expected)
    part = DataLoader(Subset(loader.dataset, range(7, 14)), batch_size=7, collate_fn=loader.collate_fn)
    assert_same_value(list(part), expected[1:2])
    items = tp.GraphDataLoader(loader.dataset, batch_size=7, collate_fn=first_labels)
    assert items.dataset is store
    assert_same_value(list(items), list(GraphDataLoader(ITEMS, batch_size=7, collate_fn=first_labels)))
    single = tp.GraphDataLoader(store, batch_size=None)
    again = tp.GraphDataLoader(single.dataset, batch_size=None, collate_fn=single.collate_fn)
    assert_same_value(list(again), list(GraphDataLoader(ITEMS, batch_size=None)))


@pytest.mark.parametrize(("kind", "workers"), [(GraphDataLoader, 1), (DataLoader, 0)])
def test_a_loader_of_dgl_or_torch_refuses_the_view(store: tp.GraphStore, kind: Any, workers: int) -> None:
    for view in (store.batched(), store.to("cpu").batched()):
        with refused(InputError, "single graphs", "tp.GraphDataLoader(store, batch_size=64, shuffle=True)"):
            next(iter(kind(view, batch_size=8, num_workers=workers)))
    with refused(InputError, "tp.GraphDataLoader(store", "your own collate_fn"):
        next(iter(tp.GraphDataLoader(store.batched(), batch_size=8, collate_fn=first_labels)))
    with refused(InputError, "tp.GraphDataLoader(store"):
        next(iter(GraphDataLoader(tp.with_ids(store.batched()), batch_size=8, collate_fn=list)))
