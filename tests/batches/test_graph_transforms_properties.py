"""Transforms of graphs and of batches: the same for any number of workers, and padding stays padding."""

from __future__ import annotations

import copy
import pickle
import random
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from dgl.dataloading import GraphDataLoader
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError, SchemaError
from dgl_tuplepack.graphs.items import EpochIds
from tests.support.graphs import (
    Content,
    assert_same_batch,
    assert_same_dgl_batch,
    assert_same_graph,
    contents,
    generator,
    shapes_of,
)
from tests.support.messages import refused
from tests.support.stores import molecules as labelled
from tests.support.transforms import shaken

LIMITS = tp.Limits(nodes=24, edges=80)


def molecules(number: int = 14) -> list[Any]:
    """Connected undirected graphs with features, positions and labels."""
    items = []
    for i in range(number):
        n = 4 + i % 5
        around = torch.arange(n)
        graph = dgl.to_bidirected(dgl.graph((around, (around + 1) % n)))
        gen = generator(i)
        graph.ndata["x"] = torch.randn(n, 3, generator=gen)
        graph.ndata["pos"] = torch.randn(n, 3, generator=gen)
        graph.edata["w"] = torch.rand(graph.num_edges(), 2, generator=gen)
        items.append((graph, torch.tensor([float(i)])))
    return items


RANDOM = {
    "FeatMask": lambda: dgl.transforms.FeatMask(0.5, ["x"], ["w"]),
    "DropEdge": lambda: dgl.transforms.DropEdge(0.4),
    "DropNode": lambda: dgl.transforms.DropNode(0.3),
    "NodeShuffle": lambda: dgl.transforms.NodeShuffle(),
    "LapPE": lambda: dgl.transforms.LapPE(3, padding=True),
    "SVDPE": lambda: dgl.transforms.SVDPE(2, padding=True),
    "python": lambda: by_python,
}
STEADY = {
    "RandomWalkPE": lambda: dgl.transforms.RandomWalkPE(3),
    "ToSimple": lambda: dgl.transforms.ToSimple(),
    "RemoveSelfLoop": lambda: dgl.transforms.RemoveSelfLoop(),
}


def by_python(graph: Any) -> Any:
    graph.ndata["x"] = graph.ndata["x"] * random.random()
    return graph


def as_it_is(graph: Any) -> Any:
    return graph


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tp.GraphStore:
    return tp.GraphStore.write(tmp_path_factory.mktemp("graphs") / "store", molecules())


def epochs_of(loader: Any, sampler: Any, number: int = 2) -> list[Any]:
    """Batches of several epochs, one after the other."""
    found = []
    for epoch in range(number):
        sampler.set_epoch(epoch)
        found += list(loader)
    return found


def assert_same_batches(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert_same_batch(one, other)


@pytest.mark.parametrize("name", [*RANDOM, *STEADY])
def test_batches_are_equal_for_any_number_of_workers_from_a_dataset_and_from_a_store(
    name: str, store: tp.GraphStore
) -> None:
    transform = {**RANDOM, **STEADY}[name]()
    dataset = tp.with_ids(molecules())
    sampler = tp.PackBatchSampler(store, LIMITS, seed=3)
    collate = tp.PaddedCollate(sampler.limits, dataset[0], transform=transform, transform_seed=5)
    view = store.padded(sampler.limits, transform=transform, transform_seed=5)
    plain = epochs_of(GraphDataLoader(dataset, batch_sampler=sampler, collate_fn=collate), sampler)
    assert len({str(shapes_of(batch)) for batch in plain}) == 1
    ways = [GraphDataLoader(pickle.loads(pickle.dumps(view)), sampler=sampler, batch_size=None)]
    if name in ("DropEdge", "python"):
        ways += [
            GraphDataLoader(view, sampler=sampler, batch_size=None, num_workers=2, persistent_workers=True),
            GraphDataLoader(dataset, batch_sampler=sampler, collate_fn=collate, num_workers=2),
        ]
    for loader in ways:
        assert_same_batches(epochs_of(loader, sampler), plain)


@pytest.mark.parametrize("name", RANDOM)
def test_draws_depend_on_seed_epoch_and_graph_and_not_on_what_is_read_before(name: str, store: tp.GraphStore) -> None:
    def drawn(seed: int, epoch: int, ids: list[int], of: int) -> Any:
        view = store.padded(tp.Limits(40, 80, graphs=4), transform=RANDOM[name](), transform_seed=seed)
        graph = tp.unpad(view[EpochIds(ids, epoch)])[ids.index(of)]
        return graph, torch.cat([data[name].double().flatten() for data in (graph.ndata, graph.edata) for name in data])

    graph, first = drawn(1, 4, [7], 7)
    assert_same_graph(graph, drawn(1, 4, [2, 7, 1], 7)[0])
    others = [drawn(2, 4, [7], 7)[1], *(drawn(1, epoch, [7], 7)[1] for epoch in range(5, 15))]
    assert any(len(other) != len(first) or not torch.equal(other, first) for other in others)


@pytest.mark.parametrize("name", RANDOM)
def test_the_generators_of_the_caller_go_on_as_if_nothing_was_drawn(name: str, store: tp.GraphStore) -> None:
    def drawn() -> Any:
        return torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()  # noqa: NPY002

    def seed() -> None:
        torch.manual_seed(9)
        np.random.seed(9)  # noqa: NPY002
        random.seed(9)

    seed()
    expected = drawn()
    seed()
    noise = tp.transforms.AddNoise("pos", 1.0)
    store.padded(tp.Limits(40, 80, graphs=3), transform=RANDOM[name](), batch_transform=noise)[[1, 2, 3]]
    assert drawn() == expected


def test_a_transform_never_writes_into_the_graphs_of_the_dataset() -> None:
    dataset, untouched = molecules(), molecules()
    transform = dgl.transforms.Compose([dgl.transforms.FeatMask(0.9, ["x"], ["w"]), dgl.transforms.DropNode(0.5)])
    collate = tp.PaddedCollate(tp.Limits(200, 400, graphs=14), tp.with_ids(dataset)[0], transform=transform)
    collate([tp.with_ids(dataset)[i] for i in range(len(dataset))])
    for (found, _), (expected, _) in zip(dataset, untouched, strict=True):
        assert_same_graph(found, expected)


def anything(batch: tp.PaddedBatch) -> tp.PaddedBatch:
    """Write into every row of every feature and label, in place and by new tensors, and make new columns."""
    for features, mask in [(f, batch.masks_by_type[t]) for t, f in batch.features_by_type.items()]:
        for i, name in enumerate(list(features)):
            if i % 2:
                features[name] = torch.full_like(features[name], 1)
            else:
                features[name].fill_(1)
        features["new"] = torch.full((len(mask), 2), 0.5)
    for label in batch.labels_by_name().values():
        label.fill_(1)
    return batch


def padding_of(batch: tp.PaddedBatch) -> dict[Any, torch.Tensor]:
    masks: dict[Any, torch.Tensor] = {**batch.masks_by_type, None: batch.graph_mask}
    return {column: values[~masks[column[1]]] for column, values in batch.columns().items()}


@given(contents(), st.booleans(), st.booleans())
def test_padding_stays_padding_whatever_a_transform_of_a_batch_writes(
    content: Content, sort_edges: bool, build_graph: bool
) -> None:
    def transform(batch: tp.PaddedBatch) -> tp.PaddedBatch:
        if build_graph:
            _ = batch.graph
        return anything(batch)

    settings: dict[str, Any] = {"sort_edges": sort_edges}
    plain = tp.PaddedCollate(content.limits, content.example, content.packs_per_batch, **settings)(content.items)
    changing = tp.PaddedCollate(
        content.limits, content.example, content.packs_per_batch, batch_transform=transform, **settings
    )
    found = changing(content.items)
    assert shapes_of(found) == shapes_of(changing([]))
    before, after = padding_of(plain), padding_of(found)
    for key, rows in after.items():
        expected = before.get(key, torch.zeros_like(rows))
        assert rows.contiguous().flatten().view(torch.uint8).tolist() == (
            expected.contiguous().flatten().view(torch.uint8).tolist()
        )
    for name in ("src_by_type", "dst_by_type", "masks_by_type"):
        for t, value in getattr(found, name).items():
            assert torch.equal(value, getattr(plain, name)[t])


@given(contents(), st.data())
def test_pad_to_limits_pads_any_batched_graph_as_the_collate_does(content: Content, data: st.DataObject) -> None:
    extra = {"cover_padding": data.draw(st.booleans()), "sort_edges": data.draw(st.booleans())}
    if not content.graphs:
        return
    example = content.example[0] if content.has_labels else content.example
    # Graphs without nodes of a type may lack its features; the joined graph has those of the others.
    joined = tp.unpad(tp.PaddedCollate(content.limits, example, content.packs_per_batch)(content.graphs))
    batch = dgl.batch(joined)
    untouched = [graph.clone() for graph in joined]
    expected = tp.PaddedCollate(content.limits, joined[0], content.packs_per_batch, idtype=batch.idtype, **extra)(
        joined
    )
    found = tp.transforms.PadToLimits(content.limits, content.packs_per_batch, **extra)(batch)
    for t in found.ntypes:
        assert torch.equal(found.nodes[t].data.pop("node_mask"), expected.masks_by_type[t])
    for t in found.canonical_etypes:
        assert torch.equal(found.edges[t].data.pop("edge_mask"), expected.masks_by_type[t])
    assert_same_dgl_batch(found, expected.graph)
    for graph, same in zip(dgl.unbatch(batch), untouched, strict=True):
        assert_same_graph(graph, same)
    real = dgl.unbatch(found)[: len(joined)]
    if not extra["sort_edges"]:
        for graph, same in zip(real, joined, strict=True):
            assert_same_graph(graph, same)


PRE = {
    "AddSelfLoop": lambda: dgl.transforms.AddSelfLoop(),
    "AddReverse": lambda: dgl.transforms.AddReverse(copy_edata=True),
    "LineGraph": lambda: dgl.transforms.LineGraph(),
    **RANDOM,
    **STEADY,
}


@pytest.mark.parametrize("name", PRE)
def test_a_store_of_transformed_graphs_is_the_store_of_a_dataset_of_them(name: str, tmp_path: Path) -> None:
    """From a list, and from a store, which is read in blocks; sizes are those after the transform."""
    first = tp.GraphStore.write(tmp_path / "list", molecules(), pre_transform=PRE[name](), transform_seed=4)
    plain = tp.GraphStore.write(tmp_path / "plain", molecules())
    second = tp.GraphStore.write(tmp_path / "store", tmp_path / "plain", pre_transform=PRE[name](), transform_seed=4)
    subset = tp.GraphStore.write(
        tmp_path / "subset", plain.subset(range(14)), pre_transform=PRE[name](), transform_seed=4
    )
    for store in (second, subset):
        for found, expected in zip(store, first, strict=True):
            assert_same_graph(found[0], expected[0])
            assert torch.equal(found[1], expected[1])
    assert np.array_equal(first.sizes.array, tp.sizes_of([graph for graph, _ in first]).array)
    if name in (*STEADY, "AddSelfLoop", "AddReverse", "LineGraph"):
        for (found, _), (graph, _) in zip(first, molecules(), strict=True):
            assert_same_graph(found, PRE[name]()(graph))
    # What is drawn once is drawn as a view draws it at epoch 0.
    elif name != "LineGraph":
        view = plain.padded(tp.Limits(200, 400, graphs=14), transform=PRE[name](), transform_seed=4)
        for found, expected in zip(first, tp.unpad(view[range(14)]), strict=True):
            assert_same_graph(found[0], expected)


def test_the_epoch_that_is_set_reaches_persistent_workers(store: tp.GraphStore) -> None:
    """With a sampler whose ids carry no epoch."""
    items = tp.with_ids(molecules())
    collate = tp.PaddedCollate(tp.Limits(60, 120, graphs=7), items[0], transform=dgl.transforms.DropEdge(0.5))
    loader = GraphDataLoader(items, batch_size=7, collate_fn=collate, num_workers=2, persistent_workers=True)
    found = []
    for epoch in (3, 4):
        collate.set_epoch(epoch)
        found.append(list(loader))
    for batches, epoch in zip(found, (3, 4), strict=True):
        collate.set_epoch(epoch)
        assert_same_batches(batches, [collate([items[i + j] for j in range(7)]) for i in (0, 7)])
    assert not torch.equal(found[0][0].src, found[1][0].src)


@pytest.mark.parametrize("workers", [0, 2])
def test_packed_loader_transforms_graphs_without_padding(workers: int, tmp_path: Path) -> None:
    """A list, one with ids, and a store give the same batches: those of DGL's collate, each epoch others."""
    items = labelled(30)
    store = tp.GraphStore.write(tmp_path / "store", items, compact=True)
    settings: dict[str, Any] = {"padded": False, "num_workers": workers, "seed": 2}
    settings |= {"transform": shaken, "transform_seed": 5}
    own_ids = [(*item, i) for i, item in enumerate(items)]
    subsets = [torch.utils.data.Subset(each, range(30)) for each in (items, tp.with_ids(items))]
    sources = [store, items, tp.with_ids(items), own_ids, *subsets]
    loaders = [tp.packed_loader(each, 8, **settings) for each in sources]
    totals = []
    for epoch in (0, 1):
        for loader in loaders:
            loader.set_epoch(epoch)
        ids = list(copy.deepcopy(loaders[0].sampler))
        for (first, *others), chosen in zip(zip(*loaders, strict=True), ids, strict=True):
            assert first[0].batch_num_nodes().tolist() == [items[i][0].num_nodes() for i in chosen]
            assert torch.equal(first[1], torch.stack([items[i][1] for i in chosen]))
            totals.append(first[0].ndata["y"].sum().item())
            for other in others:
                assert_same_dgl_batch(other[0], first[0])
                assert torch.equal(other[1], first[1])
    assert len(set(totals)) == len(totals)


def test_a_collate_of_the_callers_gets_transformed_items(tmp_path: Path) -> None:
    items = labelled(30)
    for source in (tp.GraphStore.write(tmp_path / "store", items), items):
        loader = tp.packed_loader(
            source, 8, padded=False, collate_fn=list, transform=dgl.transforms.RemoveSelfLoop(), content="fixed"
        )
        for found, ids in zip(loader, list(loader.sampler), strict=True):
            for (graph, label), i in zip(found, ids, strict=True):
                assert_same_graph(graph, dgl.transforms.RemoveSelfLoop()(items[i][0]))
                assert torch.equal(label, items[i][1])


def test_settings_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    items = labelled(30)
    store = tp.GraphStore.write(tmp_path / "store", items, compact=True)
    settings: list[dict[str, Any]] = [{"as_stored": True}, {"separate": True}]
    for setting in settings:
        for call in (
            lambda setting: tp.packed_loader(items, 8, in_memory=False, **setting),
            lambda setting: tp.packed_loader(store, 8, transform=as_it_is, **setting),
            lambda setting: store.padded(LIMITS, transform=as_it_is, **setting),
        ):
            with refused(InputError, *setting, "copied from a store", "GraphStore.write"):
                call(setting)
    with refused(InputError, "as_stored", "copied from a store"):
        tp.packed_loader(store, 8, padded=False, as_stored=True, collate_fn=list)
    with refused(InputError, "sort_edges applies only to padded batches"):
        tp.packed_loader(store, 8, padded=False, sort_edges=True)
    assert next(iter(tp.packed_loader(store, 8, padded=False, as_stored=True)))[0].ndata["x"].dtype != torch.int64
    indexed = tp.GraphStore.write(tmp_path / "indexed", [(item[0], {"y": 0}) for item in items], indices={"y": "nodes"})
    with refused(SchemaError, "ties and indices", "pre_transform"):
        tp.packed_loader(indexed, 8, padded=False, transform=as_it_is)
