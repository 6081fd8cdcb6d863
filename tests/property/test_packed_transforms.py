"""Transforms in a packed dataset: those of a padded batch, the same for any workers; what is kept is described."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch
from dgl.dataloading import GraphDataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, GraphTooLargeError
from dgl_tuplepack.graphs.items import EpochIds
from tests.graphs import assert_same_graph
from tests.messages import refused
from tests.property.test_graph_transforms import as_it_is, shaken
from tests.stores import molecules
from tests.unit.test_packed_cache import files_in

# A machine with one core makes torch remark on two workers.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

ITEMS = molecules(30)
LIMITS = tp.Limits(nodes=20, edges=26)
WITH_LOOPS = tp.Limits(nodes=20, edges=40)


def assert_same_packs(found: Any, expected: Any) -> None:
    assert_same_graph(found[0], expected[0])
    for ours, theirs in zip(found[1], expected[1], strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("workers", [0, 2])
def test_packs_are_the_padded_batches_of_transformed_graphs(workers: int) -> None:
    """In each epoch, for persistent workers too; the transform of batches comes last."""
    noise = tp.transforms.AddNoise("x", 0.1)
    given: dict[str, Any] = {"transform": shaken, "batch_transform": noise, "transform_seed": 4}
    packed = tp.PackedDataset(ITEMS, LIMITS, **given, multiple_of=2)
    collate = tp.PaddedCollate(packed.limits, tp.with_ids(ITEMS)[0], **given)
    loader = GraphDataLoader(packed, batch_size=1, num_workers=workers, persistent_workers=workers > 0)
    sums = []
    for epoch in (0, 3):
        packed.set_epoch(epoch)
        packs = [*packed.sampler._batches_of(epoch), *[[]] * (len(packed) - len(packed.sampler))]
        for (graph, labels), ids in zip(loader, packs, strict=True):
            expected = collate(tp.with_ids(ITEMS).__getitems__(EpochIds(ids, epoch)))
            assert_same_graph(graph, dgl.batch([expected.graph]))
            assert torch.equal(labels.values[0], expected.labels)
            assert torch.equal(labels.graph_ids[0], expected.graph_ids)
            sums.append(graph.ndata["y"].sum().item())
    sums = [value for value in sums if value]
    assert len(set(sums)) == len(sums)


@pytest.mark.parametrize("kept", [True, False])
def test_what_is_transformed_once_is_packed_as_a_dataset_of_it(tmp_path: Path, kept: bool) -> None:
    """For graphs of a list and of a store; limits count the edges that are added."""
    loops = dgl.transforms.AddSelfLoop()
    made = [(loops(graph), label) for graph, label in ITEMS]
    expected = tp.PackedDataset(made, WITH_LOOPS)
    store = tp.GraphStore.write(tmp_path / "store", ITEMS)
    for number, source in enumerate((ITEMS, store, store.subset(range(30)), iter(ITEMS))):
        given: dict[str, Any] = {"save_dir": tmp_path / "kept", "name": str(number)} if kept else {}
        packed = tp.PackedDataset(source, WITH_LOOPS, pre_transform=loops, **given)
        assert len(packed) == len(expected)
        for found, right in zip(packed, expected, strict=True):
            assert_same_packs(found, right)
        assert "AddSelfLoop" in str(packed.store.pre_transform)
    assert store.pre_transform is None


@pytest.mark.parametrize("source", [ITEMS, "a store"], ids=["list", "store"])
def test_a_cache_of_another_transform_is_refused_and_left_as_it_is(tmp_path: Path, source: Any) -> None:
    graphs = tp.GraphStore.write(tmp_path / "given", ITEMS) if source == "a store" else source
    given: dict[str, Any] = {"save_dir": tmp_path / "kept"}
    drop = dgl.transforms.DropEdge(0.3)
    packed = tp.PackedDataset(graphs, LIMITS, pre_transform=drop, transform_seed=2, **given)
    before = files_in(tmp_path / "kept")
    again = tp.PackedDataset(graphs, LIMITS, pre_transform=dgl.transforms.DropEdge(0.3), transform_seed=2, **given)
    for found, expected in zip(again, packed, strict=True):
        assert_same_packs(found, expected)
    for other, seed in ((dgl.transforms.DropEdge(0.4), 2), (drop, 3), (dgl.transforms.ToSimple(), 2)):
        with refused(FormatError, "DropEdge(p=0.3", "is wanted with the pre_transform", "force_reload=True"):
            tp.PackedDataset(graphs, LIMITS, pre_transform=other, transform_seed=seed, **given)
    if source != "a store":
        with refused(FormatError, "DropEdge(p=0.3", "is wanted without a pre_transform", "force_reload=True"):
            tp.PackedDataset(graphs, LIMITS, **given)
    assert files_in(tmp_path / "kept") == before
    replaced = tp.PackedDataset(graphs, WITH_LOOPS, pre_transform=as_it_is, force_reload=True, **given)
    for (found, _), (expected, _) in zip(replaced.store, ITEMS, strict=True):
        assert_same_graph(found, expected)


def test_graphs_that_all_exceed_the_limits_are_named() -> None:
    with refused(GraphTooLargeError, "30 of 30 graphs exceed"):
        tp.PackedDataset(ITEMS, tp.Limits(1, 1), oversize="drop")


def test_temporary_copies_of_transformed_graphs_go_with_the_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        packed = tp.PackedDataset(ITEMS, LIMITS, pre_transform=as_it_is)
        assert list(Path(folder).iterdir())
        del packed
        assert not list(Path(folder).iterdir())
