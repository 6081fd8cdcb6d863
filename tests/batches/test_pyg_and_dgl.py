"""Where PyG's graphs meet those of DGL: names, mixtures, named graphs, indices, shape buckets and loaders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, InputError, SchemaError
from tests.support.messages import refused
from tests.support.pyg import PAIR, InMemory, NewAxis, Pair, assert_same, batch_of, molecule, ring
from tests.support.stores import rewrite_metadata

LIMITS = tp.Limits(nodes=12, edges=14, graphs=4)


def test_features_of_dgl_get_the_names_of_pyg(tmp_path: Path) -> None:
    graph = dgl.graph(([0, 1], [1, 2]))
    graph.ndata["feat"], graph.ndata["pos"] = torch.rand(3, 2), torch.rand(3, 3)
    graph.edata["feat"], graph.edata["pos"] = torch.rand(2, 1), torch.rand(2)
    batch = tp.PaddedCollate(LIMITS, (graph, 1))([(graph, 1), (graph, 0)]).pyg
    keys = {"x", "pos", "edge_attr", "edge_pos", "y", "edge_index", "batch", "ptr", "num_nodes"}
    assert set(batch.keys()) == keys | {"node_mask", "edge_mask", "graph_mask"}
    assert torch.equal(batch[0].x, graph.ndata["feat"])
    assert torch.equal(batch[1].edge_pos, graph.edata["pos"])
    assert batch.y.tolist()[:2] == [1, 0]
    graph.ndata["x"] = torch.rand(3)
    both = tp.PaddedCollate(LIMITS, graph)([graph]).pyg
    assert torch.equal(both.feat[:3], graph.ndata["feat"])
    assert torch.equal(both.x[:3], graph.ndata["x"])


def test_graphs_of_both_frameworks_are_not_mixed(tmp_path: Path) -> None:
    good, other = molecule(3, 4), dgl.rand_graph(3, 4)
    for gather in (list, iter):
        with refused(SchemaError, "item 1 is a DGL graph", "are PyG graphs"):
            tp.GraphStore.write(tmp_path / "store", gather([good, other]))
        with refused(SchemaError, "item 1 is a PyG graph", "are DGL graphs"):
            tp.GraphStore.write(tmp_path / "store", gather([other, good]))
        with refused(SchemaError, "levels", "leave levels out"):
            tp.GraphStore.write(tmp_path / "store", gather([other]), levels={"w": "edge"})
    with refused(SchemaError, "item 1 is a DGL graph"):
        tp.PaddedCollate(LIMITS, good)([good, other])
    with refused(SchemaError, "item 0 is a PyG graph"):
        tp.PaddedCollate(LIMITS, other)([good])


def test_a_dict_of_graphs_of_pyg_is_refused(tmp_path: Path) -> None:
    for item in (
        {"atoms": ring(3)},
        ({"atoms": ring(3), "bonds": ring(4)}, 1),
        {"atoms": dgl.rand_graph(2, 1), "b": ring(2)},
    ):
        with refused(SchemaError, "item 0 is a dict", "must be DGLGraphs", "HeteroData"):
            tp.sizes_of([item])
        with refused(SchemaError, "the example is a dict", "HeteroData"):
            tp.PaddedCollate(LIMITS, item)
        with refused(SchemaError, "HeteroData"):
            tp.GraphStore.write(tmp_path / "store", [item])


@pytest.mark.parametrize("gather", [list, InMemory, iter], ids=["list", "in memory", "iterator"])
@pytest.mark.parametrize("sort_edges", [False, True], ids=["as given", "sorted"])
def test_indices_of_graphs_of_pyg_count_the_slots_of_a_batch(gather: Any, sort_edges: bool, tmp_path: Path) -> None:
    graphs = [molecule(n, e, n) for n, e in ((3, 4), (2, 5), (4, 1))]
    for number, graph in enumerate(graphs):
        graph.parent = torch.arange(graph.num_nodes).roll(1)
        graph.twin = torch.arange(graph.num_edges).flip(0)
        graph.root = torch.tensor([graph.num_nodes - 1])
        graph.first = torch.tensor([[number % 2, 0]])
    declared: Any = {
        "indices": {"parent": "nodes", "twin": "edges", "root": "nodes", "first": "nodes"},
        "levels": {"parent": "node", "twin": "edge", "root": "graph"},
    }
    store = tp.GraphStore.write(tmp_path / "store", gather(graphs), **declared)
    assert tp.GraphStore(store.path).schema.indices == declared["indices"]
    collate = tp.PaddedCollate(LIMITS, graphs[0], sort_edges=sort_edges, **declared)
    padded = store.padded(LIMITS, sort_edges=sort_edges)[[0, 1, 2]]
    for batch in (padded.pyg, collate(graphs).pyg):
        assert batch.root.tolist() == [2, 4, 8, 9, 9]  # the last two are padding
        assert batch.parent[:5].tolist() == [2, 0, 1, 4, 3]
        for found, graph in zip(batch.to_data_list(), graphs, strict=True):
            assert_same(found, graph)
    plain = store.batched(framework="pyg")[[2, 0]]
    assert plain.root.tolist() == [3, 6]
    for found, i in zip(plain.to_data_list(), (2, 0), strict=True):
        assert_same(found, graphs[i])
    graphs[1].parent[0] = 2
    with refused(SchemaError, "the index 2 in the node feature 'parent'", "only 2 nodes"):
        tp.GraphStore.write(tmp_path / "other", gather(graphs), **declared)


def test_levels_go_where_graphs_are_read_alone(tmp_path: Path) -> None:
    graphs, levels = [ring(n, w=torch.rand(n)) for n in (3, 4, 2)], {"w": "edge"}
    stores = [
        tp.preprocess(graphs, tmp_path / "store", limits=LIMITS, levels=levels).store,
        tp.preprocess_shards({"a": graphs}, tmp_path / "shards", limits=LIMITS, levels=levels, workers=1).store,
    ]
    for store in stores:
        assert list(store.schema.edge_features["_N", "_E", "_N"]) == ["w"]
        with refused(SchemaError, "levels are declared when a store is written"):
            tp.packed_loader(store, limits=LIMITS, levels=levels)
    (batch,) = tp.packed_loader(graphs, limits=LIMITS, levels=levels, shuffle=False)
    for found, i in zip(batch.pyg.to_data_list(), batch.graph_ids.tolist(), strict=False):
        assert_same(found, graphs[i])
    # Without padding, PyG joins the attribute of unknown level itself.
    (batch,) = tp.packed_loader(graphs, limits=LIMITS, padded=False, shuffle=False, with_ids=True)
    assert_same(batch, batch_of([graphs[i] for i in batch.graph_ids.tolist()]), without={"graph_ids"})
    with refused(InputError, "levels cannot be given with padded=False"):
        tp.packed_loader(graphs, limits=LIMITS, levels=levels, padded=False)


def test_a_damaged_layout_is_refused(tmp_path: Path) -> None:
    ends = torch.tensor([[0, 1], [1, 0]])
    graphs = [NewAxis(edge_index=ends, num_nodes=n, foo=torch.rand(3)) for n in (2, 3)]
    for number, damage in enumerate(({"dims": 3}, {"dims": [["label", None, "none", 1]]}, {"rows": [[1]]}, None)):
        store = tp.GraphStore.write(tmp_path / str(number), graphs)

        def change(document: Any, damage: Any = damage) -> None:
            document["pyg"] = None if damage is None else {**document["pyg"], **damage}

        rewrite_metadata(store.path, change)
        with pytest.raises(FormatError):
            tp.GraphStore(store.path)


def test_stores_of_pairs_have_graphs_of_dgl(tmp_path: Path) -> None:
    ends = torch.tensor([[0, 1], [1, 0]])
    pairs = [Pair(x_s=torch.rand(n, 1), edge_index_s=ends, x_t=torch.rand(2, 1), edge_index_t=ends) for n in (3, 5)]
    graph = tp.GraphStore.write(tmp_path / "store", pairs, levels=PAIR)[1]
    assert (graph.num_nodes("x_s"), graph.num_edges("edge_index_t")) == (5, 2)
    assert torch.equal(graph.nodes["x_s"].data["x_s"], pairs[1].x_s)


def test_packs_of_graphs_of_pyg_are_a_dataset_of_dgl() -> None:
    packed = tp.PackedDataset([molecule(2 + i % 3, 1 + i % 4, i) for i in range(9)], LIMITS, shuffle=False)
    assert sum(int(labels.graph_mask.sum()) for _, labels in packed) == 9
