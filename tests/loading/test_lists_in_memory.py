"""Loaders copy lists to a temporary store, and their batches stay those of the items, bit for bit."""

from __future__ import annotations

import copy
import gc
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from dgl.dataloading import GraphDataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.batches.collate import CollatedView
from dgl_tuplepack.errors import FormatError, InputError, SchemaError
from dgl_tuplepack.loading.packed_loader import WholeBatches
from tests.loading.test_graph_loader import assert_same_value
from tests.support.graphs import assert_same_batch
from tests.support.messages import refused
from tests.support.stores import molecules, purchases

ITEMS = molecules(20)
GRAPHS = [graph for graph, _ in ITEMS]


def featured(make: Callable[[dgl.DGLGraph], torch.Tensor]) -> list[Any]:
    """Graphs with a node feature."""
    graphs = [graph.clone() for graph in GRAPHS]
    for graph in graphs:
        graph.ndata["x"] = make(graph)
    return graphs


def labelled(make: Callable[[int], Any]) -> list[Any]:
    return [(graph, make(i)) for i, graph in enumerate(GRAPHS)]


LISTS: dict[str, Any] = {
    "pairs": ITEMS,
    "tuple": tuple(ITEMS),
    "lists of two": [list(item) for item in ITEMS],
    "graphs": GRAPHS,
    "int32": [graph.int() for graph in GRAPHS],
    "hetero": purchases(9),
    "int labels": labelled(lambda i: i),
    "bool labels": labelled(lambda i: i % 2 == 0),
    "float labels": labelled(lambda i: i / 3),
    "int and float labels": labelled(lambda i: i / 2 if i % 2 else i // 2),
    "tensor of no dimensions": labelled(torch.tensor),
    "vectors": labelled(lambda i: torch.full((3,), i, dtype=torch.float16)),
    "vectors of several lengths": labelled(lambda i: torch.zeros(i % 2 + 1)),
    "numpy numbers": labelled(np.float32),
    "numpy vectors": labelled(lambda i: np.full(2, i)),
    "text": labelled(str),
    "None": labelled(lambda _: None),
    "dict of labels": labelled(lambda i: {"y": torch.tensor(i), "z": torch.zeros(2)}),
    "dict of integers and tensors": labelled(lambda i: {"y": i, "z": torch.zeros(2)}),
    "dict of floats": labelled(lambda i: {"y": i / 3}),
    "dict with other keys": labelled(lambda i: {"y": i} if i % 2 else {"z": i}),
    "empty dict": labelled(lambda _: {}),
    "dict in a dict": labelled(lambda i: {"y": {"z": i}}),
    "list of labels": labelled(lambda i: [torch.tensor(i), torch.zeros(2)]),
    "labels with gradients": labelled(lambda i: torch.tensor(float(i), requires_grad=True)),
    "three parts": [(graph, label, i) for i, (graph, label) in enumerate(ITEMS)],
    "one part": [(graph,) for graph in GRAPHS],
    "named": [({"a": g, "b": g}, y) for g, y in ITEMS],
    "batched graphs": [(dgl.batch([g, g]), y) for g, y in ITEMS],
    "bool features": featured(lambda g: torch.ones(g.num_nodes(), 2, dtype=torch.bool)),
    "bfloat16 features": featured(lambda g: torch.ones(g.num_nodes(), 2, dtype=torch.bfloat16)),
    "complex features": featured(lambda g: torch.ones(g.num_nodes(), dtype=torch.complex64)),
    "features with gradients": featured(lambda g: torch.ones(g.num_nodes(), 2, requires_grad=True)),
    "features of several widths": featured(lambda g: torch.ones(g.num_nodes(), 1 + g.num_nodes() % 2)),
    "strided features": featured(lambda g: torch.arange(4.0 * g.num_nodes()).view(-1, 4)[:, ::2]),
}  # fmt: skip
COPIED = {
    "pairs", "tuple", "lists of two", "graphs", "int32", "hetero", "int labels", "bool labels",
    "tensor of no dimensions", "vectors", "bool features", "bfloat16 features", "complex features",
    "strided features", "dict of labels", "dict of integers and tensors",
}  # fmt: skip


def outcome(loader: Callable[[], Any]) -> Any:
    """Batches and the gradients that they lead to, or the type of an error."""
    try:
        return list(loader())
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_of_anything_is_batched_as_by_dgl(kind: str) -> None:
    items = LISTS[kind]
    expected = outcome(lambda: GraphDataLoader(items, batch_size=6))
    found = outcome(lambda: tp.GraphDataLoader(items, batch_size=6))
    if isinstance(expected, type):
        assert found is expected
        return
    assert len(found) == len(expected)
    for one, right in zip(found, expected, strict=True):
        assert_same_value(one, right)
        for a, b in zip(_tensors(one), _tensors(right), strict=True):
            assert a.requires_grad == b.requires_grad
    assert isinstance(tp.GraphDataLoader(items, batch_size=6).dataset, WholeBatches) == (kind in COPIED)


def _tensors(batch: Any) -> list[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        return [batch]
    if isinstance(batch, dgl.DGLGraph):
        return [batch.nodes[t].data[name] for t in batch.ntypes for name in batch.nodes[t].data]
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else ()
    return [tensor for value in values for tensor in _tensors(value)]


@pytest.mark.parametrize("kind", sorted(LISTS.keys() - {"text", "None", "list of labels"}))
@pytest.mark.parametrize("padded", [True, False])
def test_packed_loader_gives_the_same_batches_from_a_copy(kind: str, padded: bool) -> None:
    settings: Any = {"graphs_per_batch": 6, "padded": padded, "seed": 4}
    expected = outcome(lambda: tp.packed_loader(LISTS[kind], in_memory=False, **settings))
    found = outcome(lambda: tp.packed_loader(LISTS[kind], **settings))
    if isinstance(expected, type):
        assert found is expected
        return
    for one, right in zip(found, expected, strict=True):
        if padded:
            assert_same_batch(one, right)
            for t, features in one.features_by_type.items():
                assert [v.requires_grad for v in features.values()] == [
                    v.requires_grad for v in right.features_by_type[t].values()
                ]
        else:
            assert_same_value(list(one) if isinstance(one, tuple) else one, right)


class Watched(list[Any]):
    """A list that counts reads; it is not copied unasked, since it might change items."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        type(self).reads += 1
        return super().__getitem__(index)


class Random(torch.utils.data.Dataset[Any]):
    """A dataset that need not return the same item each time."""

    def __len__(self) -> int:
        return len(ITEMS)

    def __getitem__(self, index: int) -> Any:
        return ITEMS[index]


def test_items_are_read_once_if_they_are_copied_and_in_each_epoch_otherwise() -> None:
    for settings, epochs_read in (({"in_memory": True}, 0), ({}, 3), ({"in_memory": False}, 3)):
        loader = tp.packed_loader(Watched(ITEMS), 6, **settings)
        before = Watched.reads
        for epoch in range(3):
            loader.set_epoch(epoch)
            list(loader)
        assert Watched.reads - before == epochs_read * len(ITEMS)


def test_gradients_of_any_graph_are_kept_or_refused(tmp_path: Path) -> None:
    for content in ("feature", "label"):
        items = [(graph.clone(), torch.zeros(1)) for graph in GRAPHS]
        for graph, _ in items:
            graph.ndata["h"] = torch.ones(graph.num_nodes(), 2)
        (items[7][0].ndata["h"] if content == "feature" else items[7][1]).requires_grad_()
        loaders: list[Any] = [tp.GraphDataLoader(items, batch_size=20), tp.packed_loader(items, 20, padded=False)]
        for loader in (*loaders, tp.packed_loader(items, 20)):
            (batch,) = loader
            padded = isinstance(batch, tp.PaddedBatch)
            feature, label = (batch.node_features["h"], batch.labels) if padded else (batch[0].ndata["h"], batch[1])
            assert (feature.requires_grad, label.requires_grad) == (content == "feature", content == "label")
        for call in (
            lambda: tp.GraphStore.write(tmp_path / content, items),  # noqa: B023
            lambda: tp.packed_loader(items, 20, in_memory=True),  # noqa: B023
            lambda: tp.GraphDataLoader(items, in_memory=True),  # noqa: B023
        ):
            with refused(SchemaError, "require gradients", "detach"):
                call()


def test_other_datasets_are_copied_on_request_only() -> None:
    assert isinstance(tp.packed_loader(Random(), 6).view, CollatedView)
    assert tp.packed_loader(Random(), 6, in_memory=True).collate is None
    assert not isinstance(tp.GraphDataLoader(Random()).dataset, WholeBatches)
    assert isinstance(tp.GraphDataLoader(Random(), in_memory=True).dataset, WholeBatches)
    with refused(InputError, "in_memory=True", "item 0"):
        tp.GraphDataLoader(LISTS["three parts"], in_memory=True)
    for own in ({"transform": dgl.transforms.DropEdge()}, {"padded": False, "collate_fn": len}):
        assert isinstance(tp.packed_loader(ITEMS, 40, oversize="drop", **own).view, CollatedView)


@pytest.mark.parametrize("make", [tp.packed_loader, tp.GraphDataLoader])
def test_a_copy_that_the_system_refuses_is_a_warning(
    make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Batches stay right, but are made of single items, which takes far longer."""
    settings: Any = {"batch_size" if make is tp.GraphDataLoader else "graphs_per_batch": 6}
    (expected, *_) = make(ITEMS, **settings, in_memory=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    for source in (ITEMS, tuple(ITEMS)):
        with pytest.warns(UserWarning, match="copied.*one by one.*a temporary folder.*No such file.*in_memory=False"):
            (found, *_) = make(source, **settings)
        if make is tp.packed_loader:
            assert_same_batch(found, expected)
        else:
            assert_same_value(found, expected)
    with refused(FormatError, "cannot write a temporary folder", "No such file"):
        make(ITEMS, **settings, in_memory=True)


def test_copies_go_with_their_loaders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    loaders = [tp.packed_loader(ITEMS, 6), tp.GraphDataLoader(ITEMS, batch_size=6)]
    assert len(list(tmp_path.iterdir())) == 2
    for loader in loaders:
        list(loader)
    del loader, loaders
    gc.collect()
    assert not list(tmp_path.iterdir())


MAKERS: dict[str, Callable[[], Any]] = {
    "padded": lambda: tp.packed_loader(ITEMS, 6),
    "plain": lambda: tp.packed_loader(ITEMS, 6, padded=False),
    "read one by one": lambda: tp.packed_loader(ITEMS, 6, in_memory=False),
    "GraphDataLoader": lambda: tp.GraphDataLoader(ITEMS, batch_size=6),
    "PackedDataset": lambda: tp.PackedDataset(ITEMS, tp.Limits(20, 20)),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=[*MAKERS])
def test_a_pickled_loader_of_a_list_needs_nothing_of_the_first(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    expected, pickled = [*make()], pickle.dumps(make())
    gc.collect()
    assert not list(tmp_path.iterdir())
    again = pickle.loads(pickle.dumps(pickle.loads(pickled)))
    gc.collect()
    for found, right in zip(again, expected, strict=True):
        (assert_same_batch if isinstance(right, tp.PaddedBatch) else assert_same_value)(found, right)
    del again
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_copies_of_a_loader_and_its_spawned_workers_share_the_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    loader = tp.packed_loader(ITEMS, 6, num_workers=1, multiprocessing_context="spawn")
    copies = [copy.copy(loader.view), copy.deepcopy(loader.view)]
    assert len(list(tmp_path.iterdir())) == 1
    with monkeypatch.context() as sending:
        # As while a process is started.
        sending.setattr("dgl_tuplepack.storage.selection.get_spawning_popen", object)
        sent = pickle.dumps(loader.view)
        received = pickle.loads(sent)
    assert len(sent) < len(pickle.dumps(loader.view)) - 1000
    assert_same_batch(received[[3, 1]], loader.view[[3, 1]])
    del received
    expected = [*loader]
    del loader
    gc.collect()
    # The copies keep the store.
    assert len(list(tmp_path.iterdir())) == 1
    assert_same_batch(copies[1][[3, 1]], copies[0][[3, 1]])
    assert sum(batch.num_real_graphs for batch in expected) == 20
