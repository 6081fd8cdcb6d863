"""Loading from a store: loaders, workers of both kinds, and a life without DGL."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data
from dgl.dataloading import GraphDataLoader

import dgl_tuplepack as tp
from tests.support.graphs import assert_same_batch, assert_same_dgl_batch, assert_same_item, flat
from tests.support.stores import molecules

pytestmark = pytest.mark.processes

LIMITS = tp.Limits(nodes=20, edges=26)
ITEMS = molecules(40)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tp.GraphStore:
    return tp.GraphStore.write(tmp_path_factory.mktemp("stores") / "store", ITEMS, compact=True)


def loader_of(store: tp.GraphStore, **settings: Any) -> Any:
    """The usual two lines of a user."""
    sampler = tp.PackBatchSampler(store, LIMITS, seed=3, packs_per_batch=2)
    padded = store.padded(sampler.limits, packs_per_batch=2)
    return GraphDataLoader(padded, sampler=sampler, batch_size=None, **settings)


def epochs_of(loader: Any) -> list[list[tp.PaddedBatch]]:
    found = []
    for epoch in (0, 1):
        loader.sampler.set_epoch(epoch)
        found.append(list(loader))
    return found


@pytest.fixture(scope="module")
def expected() -> list[list[tp.PaddedBatch]]:
    """Two epochs the slow way: items, a batch sampler, and `PaddedCollate`."""
    named = tp.with_ids(ITEMS)
    sampler = tp.PackBatchSampler(ITEMS, LIMITS, seed=3, packs_per_batch=2)
    collate = tp.PaddedCollate(sampler.limits, named[0], packs_per_batch=2)
    loader = GraphDataLoader(named, batch_sampler=sampler, collate_fn=collate)
    epochs = []
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        epochs.append(list(loader))
    return epochs


def assert_same_epochs(found: list[list[Any]], expected: list[list[Any]]) -> None:
    for batches, rightly in zip(found, expected, strict=True):
        for batch, right in zip(batches, rightly, strict=True):
            assert_same_batch(batch, right)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_workers": 2},
        {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 3},
        {"num_workers": 1, "multiprocessing_context": "fork", "prefetch_factor": 1},
        {"num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True},
    ],
    ids=str,
)
def test_batches_do_not_depend_on_the_workers(
    store: tp.GraphStore, expected: list[list[tp.PaddedBatch]], settings: dict[str, Any]
) -> None:
    """Whole epochs equal those of `PaddedCollate`, in order; all graphs come once."""
    loader = loader_of(store, **settings)
    before = loader.dataset[[3, 1]]
    found = epochs_of(loader)
    assert_same_epochs(found, expected)
    # Sending the view to workers has not changed it here.
    assert_same_batch(loader.dataset[[3, 1]], before)
    assert [len(batches) for batches in found] == [len(loader)] * 2
    for batches in found:
        ids = flat([batch.graph_ids[batch.graph_mask].tolist() for batch in batches])
        assert sorted(ids) == list(range(len(ITEMS)))
    assert_same_dgl_batch(found[1][0].graph, expected[1][0].graph)


@pytest.mark.parametrize("from_store", [False, True])
def test_exact_batches_have_one_shape(store: tp.GraphStore, from_store: bool) -> None:
    data: Any = tp.with_ids(ITEMS)
    sampler, other = tp.StaticBatchSampler(data, 8), tp.StaticBatchSampler(data, 8)
    if from_store:
        loader: Any = GraphDataLoader(store.padded(sampler.limits), sampler=sampler, batch_size=None)
    else:
        collate = tp.PaddedCollate(sampler.limits, example=data[0])
        loader = GraphDataLoader(data, batch_sampler=sampler, collate_fn=collate)
    for batch, ids in zip(loader, other, strict=True):
        assert (len(batch.node_mask), len(batch.graph_mask)) == (sampler.limits.nodes + 1, 9)
        assert batch.graph_ids[batch.graph_mask].tolist() == ids


# Pickling ----------------------------------------------------------------------------------------------------


def test_a_store_pickles_as_a_path(store: tp.GraphStore) -> None:
    """Whatever its size; so do views, which have memory of their own."""
    assert len(pickle.dumps(store)) < 500
    assert len(pickle.dumps(store.padded(tp.Limits(10_000, 10_000, 1000)))) < 3000


def test_a_pickled_store_opens_elsewhere(store: tp.GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path given from the working folder means the same file in a worker with another one."""
    monkeypatch.chdir(store.path.parent)
    opened = tp.GraphStore("store")
    limits = tp.Limits(20, 26, 8)
    data = pickle.dumps((opened, opened.subset([5, 6]), opened.subset([5, 6]).padded(limits, label_fill=7)))
    monkeypatch.chdir(tmp_path)
    again, part, padded = pickle.loads(data)
    assert_same_item(again[3], ITEMS[3])
    assert_same_item(part[1], ITEMS[6])
    assert part.original_ids.tolist() == [5, 6]
    assert_same_batch(padded[[1, 0]], store.subset([5, 6]).padded(limits, label_fill=7)[[1, 0]])


# Memory ------------------------------------------------------------------------------------------------------


def test_batches_survive_torch_save(store: tp.GraphStore, tmp_path: Path) -> None:
    """Which refuses a memory that is seen as two dtypes."""
    batch = store.padded(tp.Limits(20, 26, 8))[[0, 1]]
    torch.save(batch, tmp_path / "batch.pt")
    assert_same_batch(torch.load(tmp_path / "batch.pt", weights_only=False), batch)


def test_a_compiled_step_may_change_a_batch_in_place(store: tp.GraphStore) -> None:
    """Which torch refuses for tensors of several dtypes in one memory."""
    batch, expected = (store.padded(tp.Limits(20, 26, 8))[[0, 1]] for _ in range(2))

    def step(x: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        labels.add_(1)
        return x * mask

    found = torch.compile(step, backend="aot_eager")(batch.node_features["x"], batch.labels, batch.node_mask)
    assert found.equal(expected.node_features["x"] * expected.node_mask)
    assert batch.labels.equal(expected.labels + 1)


def test_the_default_device_of_torch_changes_nothing(store: tp.GraphStore) -> None:
    """Batches are assembled on the CPU; "meta" is a device of which nothing can be read."""
    limits = tp.Limits(20, 26, 8)
    padded = store.padded(limits)
    with torch.device("meta"):
        batches = [padded[[0, 1]], store.padded(limits)[[0, 1]]]
    for batch in batches:
        assert_same_batch(batch, padded[[0, 1]])


def test_threads_share_a_view(store: tp.GraphStore) -> None:
    padded = store.padded(tp.Limits(20, 26, 8))
    ids = [[i % len(store), (i + 1) % len(store)] for i in range(400)]
    with ThreadPoolExecutor(4) as pool:
        for found, chosen in zip(pool.map(padded.__getitem__, ids), ids, strict=True):
            assert_same_batch(found, padded[chosen])


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_change_in_place_does_not_disturb_gradients_of_others(store: tp.GraphStore, device: str | None) -> None:
    """All tensors lie in one memory, and `x` and the labels are of one dtype: autograd must tell them apart."""
    batch = (store if device is None else store.to(device)).padded(tp.Limits(20, 26, 8))[[0, 1]]
    weights = torch.ones_like(batch.node_features["x"], requires_grad=True)
    total = (weights * batch.node_features["x"]).sum()
    batch.labels.add_(1)
    total.backward()
    assert weights.grad is not None
    assert weights.grad.equal(batch.node_features["x"])
