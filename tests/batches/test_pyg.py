"""PyG's graphs in and out: levels, refusals, PyG's guide to mini-batches, and loaders."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError, SchemaError, SizesError, TransformError
from tests.support.messages import refused
from tests.support.pyg import InMemory, assert_same, batch_of, molecule, ring

from torch_geometric.data import Batch, Data, HeteroData, OnDiskDataset  # isort: skip
from torch_geometric.loader import DataLoader  # isort: skip

LIMITS = tp.Limits(nodes=12, edges=14, graphs=4)


@pytest.fixture
def molecules() -> list[Any]:
    return [molecule(n, e, i) for i, (n, e) in enumerate([(3, 4), (5, 2), (1, 1), (4, 6), (2, 0), (6, 7)])]


@pytest.mark.parametrize("gather", [list, InMemory, iter], ids=["list", "in memory", "iterator"])
def test_a_label_of_one_number_is_one_beside_a_graph_of_one_node(gather: Any, tmp_path: Path) -> None:
    # Item by item, PyG takes y of the first graph for a node attribute, and w of the second for an edge attribute.
    graphs = [ring(1, y=torch.tensor([5]), w=torch.tensor([1.0])), ring(3, y=torch.tensor([6]), w=torch.ones(3))]
    graphs.append(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2, y=torch.tensor([7]), w=torch.ones(2)))
    assert graphs[0].is_node_attr("y")
    store = tp.GraphStore.write(tmp_path / "store", gather(graphs))
    assert list(store.schema.labels) == [""]
    assert list(store.schema.node_features["_N"]) == ["w"]
    assert store.padded(LIMITS)[[0, 1, 2]].labels.tolist()[:3] == [5, 6, 7]


@pytest.mark.parametrize("gather", [list, InMemory, iter], ids=["list", "in memory", "iterator"])
def test_what_stays_ambiguous_is_refused_until_levels_say_it(gather: Any, tmp_path: Path) -> None:
    graphs = [ring(n, w=torch.rand(n)) for n in (3, 4)]
    with refused(SchemaError, "the attribute 'w'", 'levels={"w": "node"}', "2 graphs"):
        tp.GraphStore.write(tmp_path / "store", gather(graphs))
    store = tp.GraphStore.write(tmp_path / "store", gather(graphs), levels={"w": "edge"})
    assert list(store.schema.edge_features["_N", "_E", "_N"]) == ["w"]
    with refused(SchemaError, "levels"):
        tp.PaddedCollate(LIMITS, graphs[0])
    batch = tp.PaddedCollate(LIMITS, graphs[0], levels={"w": "edge"})(graphs)
    assert_same(batch.pyg, store.padded(LIMITS)[[0, 1]].pyg, {"graph_ids"})


def test_names_with_node_or_edge_tell_the_level_of_graphs_with_as_many_of_both(tmp_path: Path) -> None:
    graphs = [ring(n, x=torch.rand(n, 1), edge_w=torch.rand(n), node_v=torch.rand(n)) for n in (3, 4)]
    schema = tp.GraphStore.write(tmp_path / "store", graphs).schema
    assert sorted(schema.node_features["_N"]) == ["node_v", "x"]
    assert list(schema.edge_features["_N", "_E", "_N"]) == ["edge_w"]


def test_several_attributes_of_graphs_are_labels_by_name(tmp_path: Path) -> None:
    graphs = [ring(n, y=torch.tensor([n]), u=torch.rand(1, 2), z=0.5 * n, flag=True) for n in (3, 4)]
    store = tp.GraphStore.write(tmp_path / "store", graphs)
    assert {name: str(spec) for name, spec in store.schema.labels.items()} == {
        "flag": "bool []", "u": "float32 [2]", "y": "int64 []", "z": "float32 []"
    }  # fmt: skip
    found = store.batched(framework="pyg")[[0, 1]]
    assert_same(found, batch_of(graphs))


def test_text_is_left_out_loudly_and_what_else_is_not_a_tensor_is_refused(tmp_path: Path) -> None:
    graphs = [ring(n, smiles="C" * n, y=torch.tensor([n])) for n in (3, 4)]
    with pytest.warns(UserWarning, match=r"'smiles' is text.*left out.*levels=\{\"smiles\": None\}"):
        store = tp.GraphStore.write(tmp_path / "store", graphs)
    assert list(store.schema.labels) == [""]
    silent = tp.GraphStore.write(tmp_path / "silent", InMemory(graphs), levels={"smiles": None})
    assert silent.schema == store.schema
    for value in (np.ones(3), {"a": torch.ones(1)}, [torch.ones(1)], torch.eye(3).to_sparse()):
        graphs = [ring(n, thing=value) for n in (3, 4)]
        with refused(SchemaError, "'thing' of item 0", "dense tensor", "levels={name: None}"):
            tp.GraphStore.write(tmp_path / "other", graphs)
        assert not (tmp_path / "other").exists()
        assert len(tp.GraphStore.write(tmp_path / "left", graphs, levels={"thing": None}, overwrite=True)) == 2


@pytest.mark.dgl
def test_an_item_that_is_no_graph_of_any_kind_is_named(molecules: list[Any], tmp_path: Path) -> None:
    for gather in (list, iter):
        with refused(SchemaError, "is NoneType", "a PyG Data or HeteroData"):
            tp.GraphStore.write(tmp_path / "store", gather([None, molecules[0]]))


def test_bad_graphs_are_refused_with_a_remedy(molecules: list[Any], tmp_path: Path) -> None:
    def refuses(graphs: Any, *parts: str, **settings: Any) -> None:
        for gather in (list, iter):
            with refused(SchemaError, *parts):
                tp.GraphStore.write(tmp_path / "store", gather(graphs), **settings)
            assert not (tmp_path / "store").exists()

    good = molecules[0]
    adjacent = Data(x=torch.ones(2, 1), adj_t=torch.eye(2).to_sparse())
    refuses([adjacent], "'adj_t' of item 0", "torch.stack(adj_t.coo()[:2][::-1])")
    bare, whole = Data(x=torch.ones(2, 1)), Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]))
    for items, wrong in (([bare], 0), ([bare, whole], 0), ([whole, bare], 1)):
        refuses(items, f"item {wrong} has no edge_index", "torch.empty(2, 0")
    refuses([Data(x=torch.ones(2, 1), edge_index=torch.ones(2, 3))], "float32 [2, 3]", "[2, E]")
    wrong = molecules[1].clone()
    wrong.edge_index[1, 0] = 5
    refuses([good, wrong], "item 1 has an edge at node 5", "only 5 nodes")
    other = molecules[1].clone()
    other.extra = torch.ones(5)
    refuses([good, other], "item 1 has the attributes", "same attributes: delete extra in", "levels={'extra': None}")
    short = molecules[1].clone()
    short.y = torch.ones(1, 3)
    refuses([good, short], "item 1", "found y float32 [3]", "give 'y' the shape [2] in the dataset or by a transform")
    refuses([good, batch_of(molecules)], "item 1 is a batch", "to_data_list")
    refuses([good], "levels have entries for ['w']", levels={"w": "edge"})
    refuses([good], "levels map the attribute 'y' to 'graphs'", levels={"y": "graphs"})
    counted = Data(x=torch.ones(2, 1), edge_index=good.edge_index[:, :0], num_nodes=3)
    refuses([counted], "'x' has 2 rows", "3 nodes")
    refuses([Data(x=good.x, edge_index=good.edge_index, y=torch.eye(3).to_sparse())], "'y' of item 0", "dense")
    points = HeteroData()
    refuses([points, points], "item 0 has no edge types")
    points["s"].x = torch.ones(2, 1)
    refuses([points, points], "item 0 has no edge types", "torch.empty(2, 0")


@pytest.mark.parametrize("gather", [list, InMemory, iter], ids=["list", "in memory", "iterator"])
def test_a_label_of_no_rows_is_kept(gather: Any, tmp_path: Path) -> None:
    graphs = [molecule(2, 1), molecule(4, 3)]
    for graph in graphs:
        graph.y = torch.ones(0, 2)
    store = tp.GraphStore.write(tmp_path / "store", gather(graphs))
    assert store.schema.labels[""].shape == (0, 2)
    assert_same(store.batched(framework="pyg")[[1, 0]], batch_of(graphs[::-1]))


def test_a_padded_batch_has_masks_and_real_graphs_alone(molecules: list[Any], tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path / "store", molecules)
    batch = store.padded(LIMITS)[[1, 0]].pyg
    assert isinstance(batch, Batch)
    assert isinstance(batch, Data)
    assert (batch.num_graphs, batch.batch_size, len(batch), batch.num_nodes) == (5, 5, 2, 13)
    assert (int(batch.node_mask.sum()), int(batch.edge_mask.sum()), int(batch.graph_mask.sum())) == (8, 6, 2)
    assert batch.graph_ids.tolist() == [1, 0, -1, -1, -1]
    assert_same(batch[-1], molecules[0])
    assert [g.num_nodes for g in batch[:2]] == [g.num_nodes for g in batch[torch.tensor([0, 1])]] == [5, 3]
    for wrong in (2, -3, 7):
        with pytest.raises(IndexError, match="2 real graphs"):
            batch[wrong]
    assert store.padded(LIMITS)[[]].pyg.to_data_list() == []


@pytest.mark.parametrize("edges", [13, 14, 16])
@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
def test_batches_of_a_store_become_those_of_pyg_without_a_copy(
    molecules: list[Any], idtype: torch.dtype, edges: int, tmp_path: Path
) -> None:
    store = tp.GraphStore.write(tmp_path / "store", molecules)
    padded = store.padded(tp.Limits(nodes=12, edges=edges, graphs=4), idtype=idtype)[[1, 0]]
    batch = padded.pyg
    assert batch.x.data_ptr() == padded.node_features["x"].data_ptr()
    assert batch.edge_index.data_ptr() == padded.src.data_ptr()
    assert (batch.edge_index.is_contiguous(), batch.edge_index.dtype) == (True, idtype)
    assert torch.equal(batch.edge_index, torch.stack([padded.src, padded.dst]))
    # A step may change endpoints on their own; then they do not lie together any more.
    padded.src_by_type = {t: src.clone() for t, src in padded.src_by_type.items()}
    assert torch.equal(padded.pyg.edge_index, batch.edge_index)


def test_each_batch_of_pyg_has_storages_of_its_own(molecules: list[Any], tmp_path: Path) -> None:
    pair = HeteroData()
    pair["s"].x, pair["t"].x = torch.rand(2, 1), torch.rand(3, 1)
    pair["s", "to", "t"].edge_index = torch.tensor([[0, 1], [2, 0]])
    for number, graphs in enumerate((molecules, [pair, pair])):
        store = tp.GraphStore.write(tmp_path / str(number), graphs)
        limits = tp.Limits.from_components(dict.fromkeys(store.sizes.components, 15), graphs=2)
        view = store.batched(framework="pyg")
        made = [store.padded(limits)[[1]].pyg, store.padded(limits)[[1]].pyg, view[[1]], view[[1]]]
        made += [*map(copy.copy, made), *map(copy.deepcopy, made)]
        for batch in made:
            assert isinstance(batch, Batch)
            assert isinstance(batch, type(graphs[0]))
            assert all(storage._parent() is batch for storage in batch.stores)
            assert_same(batch[0], graphs[1])
            for storage in batch.stores:
                storage.added = 1
            assert not any("added" in storage for other in made if other is not batch for storage in other.stores)
            for storage in batch.stores:
                del storage.added


def test_batches_of_pyg_travel_and_move(molecules: list[Any], tmp_path: Path) -> None:
    padded = tp.GraphStore.write(tmp_path / "store", molecules).padded(LIMITS, sort_edges=True)[[3, 5]]
    sent = pickle.loads(pickle.dumps(padded.pyg))
    for batch in (sent, padded.pyg.clone(), padded.to("cpu").pyg.to("cpu"), padded.pyg.contiguous()):
        assert_same(batch, padded.pyg)
        for found, expected in zip(batch.to_data_list(), (molecules[3], molecules[5]), strict=True):
            assert_same(found, expected)


def test_loaders_of_pyg_take_the_sampler_and_the_views_of_a_store(molecules: list[Any], tmp_path: Path) -> None:
    limits = tp.Limits(nodes=12, edges=14)
    sampler = tp.PackBatchSampler(molecules, limits, seed=1, content="fixed")
    batches = [list(ids) for ids in sampler]
    for given in (molecules, InMemory(molecules)):
        for batch, ids in zip(DataLoader(given, batch_sampler=sampler), batches, strict=True):
            assert_same(batch, batch_of([molecules[i] for i in ids]))
    store = tp.GraphStore.write(tmp_path / "store", molecules, splits={"train": [0, 2]})
    graphs = store.batched(framework="pyg")
    assert len(graphs) == 6
    for found, expected in zip(graphs, molecules, strict=True):
        assert_same(found, expected)
    assert_same(graphs[-6], molecules[0])
    with refused(SizesError, "id -7"):
        graphs[-7]
    for batch, ids in zip(tp.pyg.DataLoader(store, batch_sampler=sampler), batches, strict=True):
        assert_same(batch, batch_of([molecules[i] for i in ids]))
    with refused(InputError, "unknown framework"):
        store.batched(framework="jax")


def test_datasets_on_disk_with_transforms_or_methods_of_their_own_are_read_item_by_item(
    molecules: list[Any], tmp_path: Path
) -> None:
    expected = tp.GraphStore.write(tmp_path / "store", molecules)

    class Own(InMemory):
        def get(self, idx: int) -> Any:
            return super().get(len(molecules) - 1 - idx)

    own = tp.GraphStore.write(tmp_path / "own", Own(molecules))
    assert own.sizes.array.tolist() == expected.sizes.array.tolist()[::-1]
    transformed = InMemory(molecules)
    transformed.transform = lambda data: doubled(data.clone())
    found = tp.GraphStore.write(tmp_path / "transformed", transformed).batched(framework="pyg")[[0, 1]]
    assert torch.equal(found.x, 2 * torch.cat([molecules[0].x, molecules[1].x]))
    on_disk = OnDiskDataset(str(tmp_path / "disk"))
    on_disk.extend(molecules)
    assert tp.GraphStore.write(tmp_path / "disks", on_disk).sizes.array.tolist() == expected.sizes.array.tolist()
    on_disk.close()
    with refused(SizesError, "no graphs"):
        tp.GraphStore.write(tmp_path / "none", InMemory(molecules)[[]])


def test_transforms_of_pyg_are_applied_to_graphs_of_pyg(molecules: list[Any], tmp_path: Path) -> None:
    def first_half(data: Any) -> Any:
        return data.subgraph(torch.arange((data.num_nodes + 1) // 2))

    expected = [first_half(data) for data in molecules]
    for gather in (list, InMemory):
        store = tp.GraphStore.write(tmp_path / gather.__name__, gather(molecules), pre_transform=first_half)
        assert_same(store.batched(framework="pyg")[range(6)], batch_of(expected))
        with refused(TransformError, "must return a PyG Data or HeteroData"):
            tp.GraphStore.write(
                tmp_path / "other", gather(molecules), pre_transform=lambda data: data.x, transform_name="x"
            )
    x = molecules[1].x.clone()
    collate = tp.PaddedCollate(LIMITS, molecules[0], transform=doubled)
    assert torch.equal(collate([molecules[1]]).pyg[0].x, 2 * x)
    assert torch.equal(molecules[1].x, x)

    def larger(data: Any) -> Any:
        data.x = torch.cat([data.x, data.x])
        return data

    with refused(TransformError, "10 nodes", "instead of 5"):
        tp.PaddedCollate(LIMITS, molecules[1], transform=larger)
    with refused(SchemaError, "'w'"):
        rings = [ring(n, w=torch.rand(n)) for n in (3, 4)]
        tp.GraphStore.write(tmp_path / "rings", rings, pre_transform=copy.copy)
    store = tp.GraphStore.write(tmp_path / "rings", rings, pre_transform=copy.copy, levels={"w": "edge"})
    assert list(store.schema.edge_features["_N", "_E", "_N"]) == ["w"]


def doubled(data: Any) -> Any:
    data.x *= 2
    return data
