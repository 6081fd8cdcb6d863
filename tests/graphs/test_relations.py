"""Ties and indices of items: what they mean, what stores keep of them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, InputError, SchemaError, ShardsError, TransformError
from tests.support.graphs import assert_same_graph
from tests.support.messages import refused
from tests.support.named import LIMITS, TIES, assert_same_named, path_graph, path_item
from tests.support.stores import data_of, rewrite_metadata


@pytest.mark.parametrize(
    ("ties", "parts"),
    [
        ({"nodes:angles": "edges:atoms"}, ["'nodes:angles'", "no component", "nodes:atoms, nodes:bonds"]),
        ({"edges:atoms": "nodes:bonds"}, ["nodes to edges", "nodes first"]),
        ({"nodes:bonds": "edges:atoms", "nodes:atoms": "edges:atoms"}, ["twice"]),
        ({"nodes": "edges:atoms"}, ["may be nodes:atoms or nodes:bonds"]),
        ({"nodes:bonds": 3}, ["dict of strings"]),
        ([("bonds", "atoms")], ["dict of strings"]),
    ],
)
def test_ties_that_mean_nothing_are_refused(ties: Any, parts: list[str], tmp_path: Path) -> None:
    with refused(SchemaError, *parts):
        tp.PaddedCollate(LIMITS, path_item(), ties=ties)
    with refused(SchemaError, *parts):
        tp.GraphStore.write(tmp_path / "store", [path_item()], ties=ties)
    assert not (tmp_path / "store" / "metadata.json").exists()


def test_ties_that_do_not_hold_name_the_item_and_both_counts(tmp_path: Path) -> None:
    wrong = {**path_item(4), "bonds": dgl.line_graph(path_graph(3), shared=True)}
    with refused(SchemaError, "item 1", "2 nodes:bonds", "3 edges:atoms", "tied"):
        tp.PaddedCollate(LIMITS, path_item(), ties=TIES)([path_item(), wrong])
    with refused(SchemaError, "graph 7", "7", "2 nodes:bonds"):
        dataset = tp.with_ids([path_item()] * 7 + [wrong])
        tp.PaddedCollate(LIMITS, dataset[0], ties=TIES)([dataset[7]])
    with refused(SchemaError, "graph 2", "2 nodes:bonds", "3 edges:atoms"):
        tp.GraphStore.write(tmp_path / "store", [path_item(), path_item(), wrong], ties=TIES)
    assert not (tmp_path / "store" / "metadata.json").exists()
    tp.GraphStore.write(tmp_path / "untied", [path_item(), wrong])
    with refused(SchemaError, "graph 1", "tied"):
        tp.GraphStore.write(tmp_path / "store", tmp_path / "untied", ties=TIES)


def test_a_transform_that_breaks_a_tie_is_refused(tmp_path: Path) -> None:
    def shorten(graphs: Any) -> Any:
        atoms = graphs["atoms"]
        return {**graphs, "atoms": dgl.remove_edges(atoms, [0]) if atoms.num_nodes() > 3 else atoms}

    store = tp.GraphStore.write(tmp_path / "store", [path_item(3), path_item(4)], ties=TIES)
    for view in (
        store.padded(LIMITS, transform=shorten),
        tp.packed_loader(store, limits=LIMITS, transform=shorten).view,
    ):
        with refused(SchemaError, "graph 1 after the transform", "shorten", "3 nodes:bonds", "2 edges:atoms", "tied"):
            view[[0, 1]]
    with refused(SchemaError, "ties and indices of a store", "padded batches"):
        tp.packed_loader(store, limits=LIMITS, padded=False, transform=shorten)


def test_a_transform_that_drops_what_a_label_numbers_is_refused(tmp_path: Path) -> None:
    """Transforms do not get labels, so an index in a label would number another node."""
    declared = {"indices": {"root": "nodes:atoms"}}
    items = [(path_item(n), {"root": 1}) for n in (4, 5)]

    def without_first(graphs: Any) -> Any:
        return {**graphs, "atoms": dgl.remove_nodes(graphs["atoms"], [0])}

    store = tp.GraphStore.write(tmp_path / "store", items, **declared)
    for read in (
        lambda: tp.PaddedCollate(LIMITS, items[0], transform=without_first, **declared)(items),
        lambda: store.padded(LIMITS, transform=without_first)[[0]],
        lambda: next(iter(tp.packed_loader(items, limits=LIMITS, transform=without_first, **declared))),
    ):
        with refused(TransformError, "left", "nodes", "'atoms'", "label 'root' indexes them", "feature"):
            read()
    # Nodes and edges that no label numbers may become fewer.
    fewer: dict[str, Any] = {"transform": lambda graphs: {**graphs, "bonds": dgl.remove_nodes(graphs["bonds"], [0])}}
    assert store.padded(LIMITS, **fewer)[[0, 1]].labels["root"][:2].tolist() == [1, 5]


def test_circles_of_ties_cannot_be_sorted() -> None:
    """A ring has as many nodes as edges; so has a pair of rings whose nodes are the edges of the other."""
    ring = dgl.graph(([0, 1, 2], [1, 2, 0]))
    pair, ties = {"a": ring, "b": ring}, {"nodes:a": "edges:b", "nodes:b": "edges:a"}
    limits = tp.Limits({"a": 5, "b": 5}, {"a": 5, "b": 5}, graphs=2)
    batch = tp.PaddedCollate(limits, pair, ties=ties)([pair])
    assert len(batch.node_mask["a"]) == len(batch.edge_mask["b"]) == 6
    for setting in ({"sort_edges": True}, {"cover_padding": True}):
        with refused(SchemaError, "cycle", "sort_edges"):
            tp.PaddedCollate(limits, pair, ties=ties, **setting)


def test_line_graphs_of_line_graphs_are_tied_twice() -> None:
    graphs = path_item(5)
    graphs["angles"] = dgl.line_graph(graphs["bonds"])
    graphs["angles"].ndata["a"] = torch.arange(graphs["angles"].num_nodes())
    graphs["bonds"].edata["a"] = torch.arange(graphs["angles"].num_nodes())
    ties = {"nodes:angles": "edges:bonds", **TIES}
    limits = tp.Limits(dict.fromkeys(graphs, 20), dict.fromkeys(graphs, 20), graphs=3)
    for settings in ({}, {"sort_edges": True}, {"sort_edges": True, "cover_padding": True}, {"coordinates": ("x",)}):
        batch = tp.PaddedCollate(limits, graphs, ties=ties, **settings)([graphs, graphs])
        assert torch.equal(batch.node_features["angles"]["a"], batch.edge_features["bonds"]["a"])
        assert torch.equal(batch.node_mask["angles"], batch.edge_mask["bonds"])
        for found in tp.unpad(batch):
            assert_same_named(found, graphs)


@pytest.mark.parametrize(
    ("indices", "parts"),
    [
        ({"near": "nodes:atoms"}, ["'near'", "features and labels are", "'root'"]),
        ({"x": "nodes"}, ["float32", "int64 or int32"]),
        ({"root": "nodes:angles"}, ["'nodes:angles'", "no component"]),
        ({"root": "nodes"}, ["may be nodes:atoms or nodes:bonds"]),
        (["root"], ["dict of strings"]),
    ],
)
def test_indices_that_mean_nothing_are_refused(indices: Any, parts: list[str], tmp_path: Path) -> None:
    example = path_item(), {"root": 1}
    with refused(SchemaError, *parts):
        tp.PaddedCollate(LIMITS, example, indices=indices)
    with refused(SchemaError, *parts):
        tp.GraphStore.write(tmp_path / "store", [example], indices=indices)


def test_indices_share_their_name_with_nothing_else(tmp_path: Path) -> None:
    """A flag of nodes that is called as a label of indices would be shifted too."""
    graph = path_graph(4)
    graph.ndata["root"] = torch.arange(4) % 2
    example, indices = (graph, {"root": 3}), {"root": "nodes"}
    with refused(SchemaError, "'root'", "the node feature 'root' and the label 'root'", "rename"):
        tp.PaddedCollate(tp.Limits(9, 9, 2), example, indices=indices)
    with refused(SchemaError, "'root'", "rename"):
        tp.GraphStore.write(tmp_path / "store", [example], indices=indices)


def test_nodes_are_not_masked_in_features_of_indices() -> None:
    """0 would number the first node of the first graph of the batch."""
    graph = path_graph(4)
    graph.ndata["near"] = torch.arange(4)
    mask = tp.transforms.MaskNodes("near", 1.0)
    with refused(TransformError, "'near'", "holds indices", "name another feature"):
        tp.PaddedCollate(tp.Limits(9, 9, 2), graph, indices={"near": "nodes"}, batch_transform=mask)
    assert tp.PaddedCollate(tp.Limits(9, 9, 2), graph, batch_transform=mask)([]).node_features["near"].sum() == 0


@pytest.mark.parametrize(("value", "nodes"), [(-1, 4), (4, 4), (3, 3)])
def test_indices_outside_the_graph_name_item_name_and_value(value: int, nodes: int, tmp_path: Path) -> None:
    items = [(path_item(), {"root": 0}), (path_item(nodes), {"root": value})]
    indices = {"root": "nodes:atoms"}
    with refused(SchemaError, "item 1", f"index {value}", "label 'root'", f"only {nodes} nodes:atoms"):
        tp.PaddedCollate(LIMITS, items[0], indices=indices)(items)
    with refused(SchemaError, "graph 1", f"index {value}", "label 'root'"):
        tp.GraphStore.write(tmp_path / "store", items, indices=indices)
    graph = path_graph(3)
    graph.edata["back"] = torch.tensor([[0, 1], [1, 2]])
    with refused(SchemaError, "item 0", "index 2", "edge feature 'back'", "only 2 edges"):
        tp.PaddedCollate(tp.Limits(9, 9, 2), graph, indices={"back": "edges"})([graph])


def test_indices_of_plain_graphs_and_of_single_labels(tmp_path: Path) -> None:
    graphs = [path_graph(n) for n in (3, 2, 4)]
    for graph in graphs:
        graph.ndata["first"] = torch.zeros(graph.num_nodes(), dtype=torch.int32)
        graph.edata["last"] = torch.full((graph.num_edges(),), graph.num_edges() - 1)
    items = [(graph, graph.num_nodes() - 1) for graph in graphs]
    declared = {"indices": {"first": "nodes", "last": "edges", "": "nodes"}}
    limits = tp.Limits(9, 6, 3)
    for pad in (
        tp.PaddedCollate(limits, items[0], **declared),
        lambda chosen: tp.GraphStore.write(tmp_path / "s", chosen, overwrite=True, **declared).padded(limits)[
            [0, 1, 2]
        ],
    ):
        batch = pad(items)
        assert batch.labels.tolist() == [2, 4, 8, 9]
        assert batch.node_features["first"].tolist() == [0, 0, 0, 3, 3, 5, 5, 5, 5, 9]
        # One edge slot is reserved, which indices of padding point to.
        assert batch.edge_features["last"].tolist() == [1, 1, 2, 5, 5, 5, 6]
        assert batch.node_features["first"].dtype == torch.int32
        found = tp.unpad(batch, with_labels=True)
        assert [int(label) for _, label in found] == [2, 1, 3]
        for (graph, _), right in zip(found, graphs, strict=True):
            assert_same_graph(graph, right)


def test_fills_of_indices_are_refused() -> None:
    example = path_item(), {"root": 1}
    with refused(SchemaError, "'root'", "point to padding"):
        tp.PaddedCollate(LIMITS, example, indices={"root": "nodes:atoms"}, label_fill={"root": -1})
    batch = tp.PaddedCollate(LIMITS, example, indices={"root": "nodes:atoms"}, label_fill=-1)([example])
    assert batch.labels["root"].tolist() == [1, 4, 4, 4, 4]


def test_a_store_keeps_what_was_declared(tmp_path: Path) -> None:
    items = [(path_item(n), {"root": n - 1}) for n in (3, 4, 2)]
    declared = {"ties": TIES, "indices": {"root": "nodes:atoms"}}
    store = tp.GraphStore.write(tmp_path / "store", items, **declared)
    document = json.loads((tmp_path / "store" / "metadata.json").read_text())
    assert document["graph_names"] == ["atoms", "bonds"]
    assert {key: document[key] for key in declared} == declared
    again = tp.GraphStore(tmp_path / "store")
    assert again.schema == store.schema
    assert again.checksum == document["checksum"]
    assert tp.GraphStore.write(tmp_path / "copy", again).schema == store.schema
    loosened = tp.GraphStore.write(tmp_path / "loose", again, ties={}, indices={})
    assert (loosened.schema.ties, loosened.schema.indices) == ({}, {})
    with refused(SchemaError, "written with ties", "leave them out"):
        tp.packed_loader(again, limits=LIMITS, ties={})
    with refused(InputError, "padded=False", "write a store"):
        tp.packed_loader(items, limits=LIMITS, padded=False, indices={"root": "nodes:atoms"})
    with refused(SchemaError, "'root'", "would not shift"):
        tp.PackedDataset(again, LIMITS)


def test_damaged_declarations_are_refused(tmp_path: Path) -> None:
    for name in ("ties", "indices"):
        tp.GraphStore.write(tmp_path / name, [(path_item(), {"root": 1})], ties=TIES, indices={"root": "nodes:atoms"})
        wrong = {"ties": {"nodes:bonds": "edges:angles"}, "indices": {"root": "nodes:angles"}}[name]
        rewrite_metadata(tmp_path / name, lambda document, name=name, wrong=wrong: document.update({name: wrong}))
        with refused(FormatError, "metadata.json", "angles"):
            tp.GraphStore(tmp_path / name)


def test_indices_that_were_damaged_later_are_refused(tmp_path: Path) -> None:
    items = [(path_item(n), {"root": n - 1}) for n in (3, 4, 2)]
    store = tp.GraphStore.write(tmp_path / "s", items, indices={"root": "nodes:atoms"}, ties=TIES)
    (file,) = data_of(tmp_path / "s").glob("*label_root.npy")
    values = np.load(file, mmap_mode="r+")
    values[1] = 99
    values.flush()
    for read in (
        lambda: store.padded(LIMITS)[[1]],
        lambda: store.batched()[[0, 1]],
        lambda: store.to("cpu"),
        lambda: tp.GraphStore(tmp_path / "s").verify(),
    ):
        with pytest.raises(FormatError, match=r"label_root|label 'root'"):
            read()


def test_shards_agree_in_what_is_declared(tmp_path: Path) -> None:
    shards = {"a": [path_item(3)], "b": [path_item(4)]}
    tp.preprocess_shards(shards, tmp_path, limits=LIMITS, workers=1, ties=TIES)
    assert tp.preprocess_shards(shards, tmp_path, limits=LIMITS, workers=1, ties=TIES, overwrite=True).store.schema.ties
    stores = {name: tp.GraphStore.write(tmp_path / "of" / name, graphs) for name, graphs in shards.items()}
    stores["b"] = tp.GraphStore.write(tmp_path / "tied", shards["b"], ties=TIES)
    with refused(ShardsError, "ties"):
        tp.preprocess_shards(stores, tmp_path / "mixed", limits=LIMITS, workers=1)
    paths = {name: tmp_path / "of" / name for name in stores}
    tp.preprocess_shards(paths, tmp_path / "all", limits=LIMITS, workers=1)
    with refused(ShardsError, "was written with ties=None", "overwrite=True"):
        tp.preprocess_shards(paths, tmp_path / "all", limits=LIMITS, workers=1, ties=TIES)
