"""Graphs go from DGL to PyG and back: names, mixtures, named graphs, indices, buckets, loaders and stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, InputError, SchemaError
from tests.support.graphs import Content, split_item
from tests.support.graphs import contents as dgl_contents
from tests.support.messages import refused
from tests.support.named import Named, as_dict, graphs_of, named_contents
from tests.support.pyg import LISTS, PAIR, InMemory, NewAxis, Pair, assert_same, batch_of, few, molecule, ring, stored
from tests.support.stores import rewrite_metadata

from torch_geometric.data import Data  # isort: skip

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


# --- properties


def arrays_of(store: tp.GraphStore, names: dict[Any, str]) -> dict[Any, str]:
    """Checksums of the arrays; features and labels under the names that PyG has for them."""
    entries = store.segments[0].metadata.arrays
    return {
        (e.content, e.type, names.get((e.content, e.type, e.name), e.name)): e.sha256
        for e in entries
        # Its columns are in the order of the types, which is another one.
        if e.content != "size_classes"
    }


@few
@given(dgl_contents(min_graphs=1), st.booleans())
def test_graphs_of_dgl_go_through_pyg_unharmed(content: Content, compact: bool) -> None:
    first = stored([content.example, *content.items], compact=compact)
    batch = first.batched(framework="pyg")[range(len(first))]
    levels = {"node_feature": "node", "edge_feature": "edge", "label": "graph"}
    columns = batch._origin.names.columns
    is_plain = content.node_types == ["_N"]
    given = {key: levels[column[0]] for column, _, key in columns} if is_plain else None
    second = stored(batch.to_data_list(), levels=given, compact=compact)
    # A single label is `y` in PyG, so that a dict of `y` alone becomes one.
    single = {("label", None, "y"): ""} if set(second.schema.labels) == {""} else {}
    named = {column: key for column, _, key in columns} | {("label", None, ""): ""} | single
    if "" not in second.schema.labels:
        named.pop(("label", None, ""))
    assert arrays_of(second, {}) == arrays_of(first, named)
    for i, item in enumerate([content.example, *content.items]):
        graph, label = split_item(item) if content.has_labels else (item, None)
        data = batch[i]
        assert data.num_nodes == graph.num_nodes()
        assert data.num_edges == graph.num_edges()
        if label is not None and not isinstance(label, dict):
            assert torch.equal(data.y[0], torch.as_tensor(label))


@few
@given(LISTS)
def test_graphs_of_pyg_come_out_of_a_store_as_those_of_dgl(graphs: list[Any]) -> None:
    store = stored(graphs)
    labels = store.schema.labels
    for found, data in zip(store, graphs, strict=True):
        graph, label = split_item(found) if labels else (found, None)
        plain = isinstance(data, Data)
        for t in store.schema.edge_types:
            ends = data.edge_index if plain else data[t].edge_index
            assert torch.equal(torch.stack(graph.edges(etype=t)), ends)
            for name in store.schema.edge_features[t]:
                assert torch.equal(graph.edges[t].data[name], data[name] if plain else data[t][name])
        for t in store.schema.node_types:
            assert graph.num_nodes(t) == (data.num_nodes if plain else data[t].num_nodes)
            for name in store.schema.node_features[t]:
                assert torch.equal(graph.nodes[t].data[name], data[name] if plain else data[t][name])
        for name in labels:
            assert torch.equal(label[name] if name else label, data[name or "y"][0])


def assert_holds(data: Any, item: Any) -> None:
    """A graph of PyG holds the named graphs of an item, and its labels."""
    labels = as_dict(item[1] if isinstance(item, tuple) else None)
    for name, label in labels.items():
        assert torch.equal(data[name or "y"][0], torch.as_tensor(label)), name
    for name, graph in graphs_of(item).items():
        plain = graph.ntypes == ["_N"]
        for t in graph.ntypes:
            found = data[name if plain else f"{name}/{t}"]
            assert found.num_nodes == graph.num_nodes(t)
            for feature, value in graph.nodes[t].data.items():
                assert torch.equal(found[feature], value), feature
        for source, e, target in graph.canonical_etypes:
            found = data[(name, e, name) if plain else (f"{name}/{source}", e, f"{name}/{target}")]
            assert torch.equal(
                found.edge_index, torch.stack(graph.edges(etype=(source, e, target))).to(found.edge_index)
            )
            for feature, value in graph.edges[source, e, target].data.items():
                assert torch.equal(found[feature], value), feature


@few
@given(named_contents(), st.booleans(), st.booleans())
def test_named_graphs_are_graphs_of_pyg_with_a_type_for_each(content: Named, sort_edges: bool, cover: bool) -> None:
    settings: Any = {"packs_per_batch": content.packs, "sort_edges": sort_edges, "cover_padding": cover}
    every = [content.example, *content.items]
    store = stored(every, **content.declared)
    padded = store.padded(content.limits, **settings)[range(1, len(every))]
    collate = tp.PaddedCollate(content.limits, content.example, **settings, **content.declared)
    for batch in (padded.pyg, collate(content.items).pyg):
        assert batch.num_graphs == len(padded.graph_mask)
        for data, item in zip(batch.to_data_list(), content.items, strict=True):
            assert_holds(data, item)
    graphs = store.batched(framework="pyg")[range(len(every))].to_data_list()
    for data, item in zip(graphs, every, strict=True):
        assert_holds(data, item)
    # What came out goes in again, with the same ties and indices.
    called = {"edges:atoms": "edges:atoms:_E:atoms", "nodes": "nodes:atoms"}
    if store.schema.graph_names == ("atoms",):
        called = {"edges:atoms": "edges", "nodes:atoms": "nodes"}
    declared: Any = {w: {k: called.get(v, v) for k, v in told.items()} for w, told in content.declared.items()}
    again = stored(graphs, **declared)
    assert dict(again.schema.tied) == dict(store.schema.tied)
    for data, item in zip(again.batched(framework="pyg")[range(len(every))].to_data_list(), every, strict=True):
        assert_holds(data, item)
