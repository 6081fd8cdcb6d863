"""Loaders of DGL and torch, worker processes, datasets, and subsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import dgl.data.utils
import numpy as np
import pytest
import torch
import torch.utils.data
from dgl.dataloading import GraphDataLoader

import dgl_tuplepack as tp
from tests.graphs import (
    assert_same_batch,
    assert_same_graph,
    flat,
    generator,
    random_graph,
    random_label,
)

# A machine with one core makes torch remark on two workers.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

LIMITS = tp.Limits(nodes=14, edges=24)
LOADERS = {"dgl": GraphDataLoader, "torch": torch.utils.data.DataLoader}


class Molecules(dgl.data.DGLDataset):
    """Small labelled graphs, as a user's dataset gives them."""

    def __init__(self, folder: Path, number: int = 40) -> None:
        self.number = number
        super().__init__(name="molecules", raw_dir=str(folder))

    def process(self) -> None:
        gen = generator(5)
        sizes = np.random.default_rng(5).integers(0, [8, 14], (self.number, 2)).tolist()
        features = {"feat": ((3,), torch.int64)}, {"feat": ((2,), torch.float32)}
        self.graphs = [random_graph(gen, *size, *features) for size in sizes]
        self.labels = [random_label(gen, "tensor", (1,), torch.float32) for _ in sizes]

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.graphs[index], self.labels[index]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Molecules:
    return Molecules(tmp_path_factory.mktemp("molecules"))


def loader_of(dataset: Any, kind: str = "dgl", workers: int = 0, **settings: Any) -> Any:
    """The usual three lines of a user."""
    named = tp.with_ids(dataset)
    sampler = tp.PackBatchSampler(dataset, LIMITS, seed=3, packs_per_batch=2)
    collate = tp.PaddedCollate(sampler.limits, example=named[0], packs_per_batch=2)
    return LOADERS[kind](named, batch_sampler=sampler, collate_fn=collate, num_workers=workers, **settings)


def epochs_of(loader: Any, epochs: tuple[int, ...] = (0, 1)) -> list[list[tp.PaddedBatch]]:
    """All batches of some epochs, set the way a plain loop does."""
    found = []
    for epoch in epochs:
        loader.batch_sampler.set_epoch(epoch)
        found.append(list(loader))
    return found


@pytest.fixture(scope="module")
def expected(dataset: Molecules) -> list[list[tp.PaddedBatch]]:
    """Two epochs without any loader."""
    named = tp.with_ids(dataset)
    sampler = tp.PackBatchSampler(dataset, LIMITS, seed=3, packs_per_batch=2)
    collate = tp.PaddedCollate(sampler.limits, example=named[0], packs_per_batch=2)
    epochs = []
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        epochs.append([collate([named[i] for i in ids]) for ids in sampler])
    return epochs


@pytest.mark.parametrize("settings", [{}, {"workers": 2}, {"workers": 2, "persistent_workers": True}], ids=str)
@pytest.mark.parametrize("kind", LOADERS)
def test_batches_do_not_depend_on_the_loader(
    dataset: Molecules, expected: list[list[tp.PaddedBatch]], kind: str, settings: dict[str, Any]
) -> None:
    """Same seed and epoch, same batches: with DGL's loader or torch's, with workers or without."""
    loader = loader_of(dataset, kind, **settings)
    found = epochs_of(loader)
    assert [len(batches) for batches in found] == [len(loader)] * 2
    for batches, rightly in zip(found, expected, strict=True):
        for batch, right in zip(batches, rightly, strict=True):
            assert_same_batch(batch, right)
            assert batch._graph is None
            assert batch.graph.batch_size == len(batch.graph_mask)
    seen = [flat([b.graph_ids[b.graph_mask].tolist() for b in batches]) for batches in found]
    assert sorted(seen[0]) == sorted(seen[1]) == list(range(len(dataset)))
    assert seen[0] != seen[1]


def test_spawned_workers(dataset: Molecules, expected: list[list[tp.PaddedBatch]]) -> None:
    """What macOS and Windows do: dataset and collate function travel as pickles."""
    graphs = [dataset[i] for i in range(len(dataset))]
    loader = loader_of(graphs, workers=1, multiprocessing_context="spawn")
    for batch, right in zip(loader, expected[0], strict=True):
        assert_same_batch(batch, right)


@pytest.mark.parametrize("subset", [dgl.data.utils.Subset, torch.utils.data.Subset])
def test_subsets_by_split(dataset: Molecules, subset: Any) -> None:
    """Ids are positions in the subset, as its sizes are."""
    split = [31, 4, 17, 9, 22, 0]
    part = subset(dataset, split)
    seen = []
    for batch in loader_of(part):
        ids = batch.graph_ids[batch.graph_mask].tolist()
        seen += ids
        for graph, i in zip(tp.unpad(batch), ids, strict=True):
            assert_same_graph(graph, dataset[split[i]][0])
    assert sorted(seen) == list(range(len(split)))


def test_more_ranks_than_packs(dataset: Molecules) -> None:
    part = torch.utils.data.Subset(dataset, [0])
    sampler = tp.PackBatchSampler(part, LIMITS, num_replicas=2, rank=1)
    collate = tp.PaddedCollate(sampler.limits, example=dataset[0])
    for workers in (0, 1):
        (batch,) = GraphDataLoader(part, batch_sampler=sampler, collate_fn=collate, num_workers=workers)
        sampler.set_epoch(1)
        assert not batch.graph_mask.any()
        assert batch.graph.batch_size == 2
