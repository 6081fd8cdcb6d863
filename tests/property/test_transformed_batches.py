"""Batches of transformed graphs without padding: those of DGL's collate, for any source and number of workers."""

from __future__ import annotations

import pickle
import random
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dgl
import numpy as np
import pytest
import torch
from dgl.dataloading import GraphCollator, GraphDataLoader
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError, SchemaError, TransformError
from tests.graphs import Content, assert_same_dgl_batch, assert_same_graph, assert_same_item, contents, split_item
from tests.messages import refused
from tests.stores import molecules, purchases, write_shards

# A machine with one core makes torch remark on two workers.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

ITEMS = molecules(30)
LIMITS = tp.Limits(nodes=20, edges=26)


def as_it_is(graph: Any) -> Any:
    return graph


def shaken(graph: Any) -> Any:
    """Draw from all three generators, and drop edges; features are written in place."""
    graph.ndata["x"].mul_(random.random())
    graph.ndata["y"] = torch.rand(graph.num_nodes(), 2) + float(np.random.rand())  # noqa: NPY002
    return dgl.transforms.DropEdge(0.3)(graph)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tp.GraphStore:
    return tp.GraphStore.write(tmp_path_factory.mktemp("graphs") / "store", ITEMS, compact=True)


@given(st.data(), contents(min_graphs=1), st.booleans(), st.lists(st.integers(1, 5), max_size=3))
def test_graphs_that_are_read_together_are_those_that_are_read_alone(
    data: st.DataObject, content: Content, compact: bool, cuts: list[int]
) -> None:
    """Of a store, its subsets and shards; in any order, repeated ones too, which share no memory."""
    items = [content.example, *content.items]
    bounds = sorted({0, *(cut for cut in cuts if cut < len(items)), len(items)})
    with tempfile.TemporaryDirectory() as folder, patch("os.fsync"):
        store = tp.GraphStore.write(Path(folder) / "store", items, compact=compact)
        # Graphs without nodes may lack features.
        items = list(store)
        parts = [items[first:last] for first, last in pairwise(bounds)]
        sharded = write_shards(Path(folder) / "shards", parts, compact=compact)
        back = list(range(len(items)))[::-1]
        ids = data.draw(st.lists(st.integers(0, len(items) - 1), min_size=1, max_size=12))
        for selection in (store, sharded, store.subset(back), sharded.subset(back)):
            view = selection.with_transform(as_it_is)
            found = view.__getitems__(ids)
            assert len(found) == len(ids)
            for item, i in zip(found, ids, strict=True):
                assert_same_item(item, selection[i])
                assert_same_item(view[i], selection[i])
            for graph in (split_item(item)[0] for item in found):
                for name in list(graph.ndata) if len(graph.ntypes) == 1 else ():
                    graph.ndata[name].zero_()
            for item, i in zip(view.__getitems__(ids), ids, strict=True):
                assert_same_item(item, selection[i])
            assert view.__getitems__([]) == []


def drawn_alone(view: Any, ids: Sequence[int], epoch: int) -> Any:
    """The slow way: graph by graph, then DGL's collate."""
    view.set_epoch(epoch)
    return GraphCollator().collate([view[i] for i in ids])


def assert_same_pair(found: Any, expected: Any) -> None:
    assert_same_dgl_batch(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_dgl_for_any_number_of_workers(store: tp.GraphStore, workers: int) -> None:
    view, alone = store.with_transform(shaken, seed=3), store.with_transform(shaken, seed=3)
    batches = view.batched()
    sampler, same = (tp.PackBatchSampler(store, LIMITS, seed=1) for _ in range(2))
    packs = GraphDataLoader(batches, sampler=sampler, batch_size=None, num_workers=workers)
    plain = tp.GraphDataLoader(view, batch_size=8, num_workers=workers)
    for epoch in (0, 2):
        sampler.set_epoch(epoch)
        same.set_epoch(epoch)
        for found, ids in zip(packs, same, strict=True):
            assert_same_pair(found, drawn_alone(alone, ids, epoch))
        view.set_epoch(epoch)
        for first, found in enumerate(plain):
            assert_same_pair(found, drawn_alone(alone, range(len(ITEMS))[8 * first :][:8], epoch))


def test_a_view_of_batches_has_single_graphs_and_empty_batches_too(store: tp.GraphStore) -> None:
    view = store.with_transform(shaken)
    view.set_epoch(1)
    batches = pickle.loads(pickle.dumps(view.batched()))
    assert len(batches) == len(store)
    for found, expected in zip(batches, view, strict=True):
        assert_same_item(found, expected)
    assert_same_item(batches[-1], view[29])
    graph, labels = batches[[]]
    assert (graph.batch_size, graph.num_nodes(), len(labels)) == (0, 0, 0)
    assert {n: (v.dtype, v.shape[1:]) for n, v in graph.ndata.items()} == {
        n: (v.dtype, v.shape[1:]) for n, v in batches[[0]][0].ndata.items()
    }


def test_heterographs_without_labels_are_batched_by_type(tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path / "store", purchases(6))
    view = store.with_transform(dgl.transforms.DropEdge(0.5))
    found = view.batched()[[4, 0, 5]]
    expected = GraphCollator().collate([view[i] for i in (4, 0, 5)])
    graph, right = (split_item(batch)[0] for batch in (found, expected))
    assert_same_dgl_batch(graph, right)


def test_a_graph_whose_features_change_midway_is_named(store: tp.GraphStore) -> None:
    def extra(graph: Any) -> Any:
        if graph.num_nodes() > 4:
            graph.ndata["extra"] = torch.zeros(graph.num_nodes())
        return graph

    small = [i for i in range(30) if store.sizes.array[i, 0] <= 4]
    large = [i for i in range(30) if store.sizes.array[i, 0] > 4]
    batches = store.subset([*small, *large]).with_transform(extra).batched()
    with refused(SchemaError, f"graph {large[0]} after the transform", "extra", "the example has"):
        batches[[0, len(small)]]


@pytest.mark.parametrize("workers", [0, 2])
def test_packed_loaders_transform_graphs_without_padding(store: tp.GraphStore, workers: int) -> None:
    """A list, one with ids, a store and its view give the same batches, each epoch others."""
    settings: dict[str, Any] = {"padded": False, "num_workers": workers, "seed": 2}
    given: dict[str, Any] = {"transform": shaken, "transform_seed": 5}
    loaders = [
        tp.packed_loader(store, 8, **settings, **given),
        tp.packed_loader(ITEMS, 8, **settings, **given),
        tp.packed_loader(store.with_transform(shaken, 5), 8, **settings),
        tp.packed_loader(tp.with_ids(ITEMS), 8, **settings, **given),
        tp.packed_loader([(*item, i) for i, item in enumerate(ITEMS)], 8, **settings, **given),
    ]
    totals = []
    for epoch in (0, 1):
        for loader in loaders:
            loader.set_epoch(epoch)
        for first, *others in zip(*loaders, strict=True):
            totals.append(first[0].ndata["y"].sum().item())
            for other in others:
                assert_same_pair(other, first)
    assert len(set(totals)) == len(totals)


def test_a_collate_of_the_callers_gets_transformed_items(store: tp.GraphStore) -> None:
    for source in (store, ITEMS):
        loader = tp.packed_loader(
            source, 8, padded=False, collate_fn=list, transform=dgl.transforms.RemoveSelfLoop(), content="fixed"
        )
        for items, ids in zip(loader, list(loader.sampler), strict=True):
            for (graph, label), i in zip(items, ids, strict=True):
                assert_same_graph(graph, dgl.transforms.RemoveSelfLoop()(store[i][0]))
                assert torch.equal(label, ITEMS[i][1])


def test_ranks_without_graphs_get_transformed_batches_of_no_graphs() -> None:
    given: dict[str, Any] = {"padded": False, "transform": shaken, "num_replicas": 2}
    (first,), (second,) = (list(tp.packed_loader(ITEMS[:1], 4, rank=rank, **given)) for rank in range(2))
    empty, full = sorted((first[0], second[0]), key=lambda graph: graph.batch_size)
    assert (empty.batch_size, full.batch_size) == (0, 1)
    assert empty.ndata.keys() == full.ndata.keys()


def test_settings_that_do_not_go_together_are_refused(store: tp.GraphStore) -> None:
    for name in ("as_stored", "ring", "separate"):
        setting: dict[str, Any] = {name: 2 if name == "ring" else True}
        with refused(InputError, name, "copied from a store", "GraphStore.write"):
            tp.packed_loader(ITEMS, 8, **setting)
        with refused(InputError, name, "copied from a store"):
            tp.packed_loader(store, 8, transform=as_it_is, **setting)
        with refused(InputError, name, "copied from a store"):
            tp.packed_loader(store.with_transform(as_it_is), 8, **setting)
    with refused(InputError, "as_stored", "copied from a store"):
        tp.packed_loader(store, 8, padded=False, as_stored=True, collate_fn=list)
    with refused(InputError, "has a transform already", "Compose"):
        tp.packed_loader(store.with_transform(as_it_is), 8, padded=False, transform=as_it_is)
    with refused(InputError, "sort_edges is about padding"):
        tp.packed_loader(store, 8, padded=False, sort_edges=True)
    assert next(iter(tp.packed_loader(store, 8, padded=False, as_stored=True)))[0].ndata["x"].dtype != torch.int64


def test_a_device_says_where_graphs_are_transformed(store: tp.GraphStore) -> None:
    with refused(TransformError, "one by one", "pre_transform", "batch.to(device)", "whole batches"):
        store.to("cpu").with_transform(as_it_is)


def test_blocks_are_no_graphs_of_a_dataset(store: tp.GraphStore, tmp_path: Path) -> None:
    with refused(SchemaError, "the example is a block (message flow graph)", "block_to_graph"):
        tp.GraphStore.write(tmp_path / "store", [dgl.to_block(ITEMS[0][0])])
    with refused(TransformError, "to_block returned Block(", "for graph 3", "not a block"):
        store.with_transform(dgl.to_block)[3]
