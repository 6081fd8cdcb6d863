"""Items of several named graphs: names, limits, declarations, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, InputError, LimitsError, SchemaError, ShardsError, TransformError
from tests.support.command import Run
from tests.support.graphs import assert_same_batch, assert_same_graph
from tests.support.messages import refused
from tests.support.named import assert_same_named
from tests.support.stores import data_of, rewrite_metadata

TIES = {"nodes:bonds": "edges:atoms"}
LIMITS = tp.Limits({"atoms": 12, "bonds": 20}, {"atoms": 20, "bonds": 50}, graphs=4)


def path_graph(nodes: int) -> Any:
    """A path with features."""
    graph = dgl.graph((torch.arange(nodes - 1), torch.arange(1, nodes)), num_nodes=nodes)
    graph.ndata["x"], graph.edata["r"] = torch.arange(nodes) + 1.0, torch.arange(nodes - 1) + 10.0
    return graph


def item(nodes: int = 4) -> dict[str, Any]:
    """A path and its line graph."""
    graph = path_graph(nodes)
    return {"atoms": graph, "bonds": dgl.line_graph(graph, shared=True)}


def molecule(*counts: int) -> Any:
    """A heterograph of two types."""
    graph = dgl.heterograph({("C", "bond", "N"): ([0], [0])}, {"C": counts[0], "N": counts[1]})
    graph.nodes["C"].data["x"] = torch.ones(counts[0])
    return graph


def test_components_and_limits_are_called_as_the_graphs() -> None:
    sizes = tp.sizes_of([item(3), (item(4), 1)])
    assert sizes.components == ("nodes:atoms", "nodes:bonds", "edges:atoms", "edges:bonds")
    assert sizes.array.tolist() == [[3, 2, 2, 1], [4, 3, 3, 2]]
    assert LIMITS.nodes == {"atoms": 12, "bonds": 20}
    assert LIMITS.edges == {"atoms": 20, "bonds": 50}
    plan = tp.pack(sizes, LIMITS)
    assert plan.num_packs == 1
    of_mol = tp.sizes_of([{"mol": molecule(2, 3), "atoms": path_graph(2)}])
    assert of_mol.components == (
        "nodes:atoms", "nodes:mol/C", "nodes:mol/N", "edges:atoms", "edges:mol/C:bond:mol/N",
    )  # fmt: skip
    limits = tp.Limits({"atoms": 3, "mol/C": 3, "mol/N": 3}, {"atoms": 3, "bond": 4})
    assert limits.aligned(of_mol.components).values == (3, 3, 3, 3, 4)


def test_keys_of_a_batch_are_the_names_and_the_types_of_heterographs() -> None:
    given = {"mol": molecule(2, 3), "atoms": path_graph(2)}
    limits = tp.Limits({"atoms": 3, "mol/C": 3, "mol/N": 4}, {"atoms": 3, "bond": 4}, graphs=2)
    batch = tp.PaddedCollate(limits, given)([given])
    assert list(batch.node_features) == list(batch.tensors.node_mask) == ["atoms", "mol/C", "mol/N"]
    assert list(batch.src) == ["atoms", ("mol/C", "bond", "mol/N")]
    assert batch.graphs["mol"].ntypes == ["C", "N"]
    assert batch.graphs["mol"].canonical_etypes == [("C", "bond", "N")]
    assert batch.graphs["atoms"].ntypes == ["_N"]
    graphs = batch.tensors.graphs
    assert graphs["mol"].num_nodes("C") == batch.graphs["mol"].num_nodes("C")
    assert graphs["atoms"].ndata["x"] is batch.node_features["atoms"]["x"]
    assert batch.graphs["atoms"].ndata["x"] is batch.node_features["atoms"]["x"]
    moved = batch.to("cpu")
    assert_same_batch(moved, batch)
    graphs, labels = moved
    assert labels is None
    assert set(graphs) == {"atoms", "mol"}


def test_one_named_graph_is_another_thing_than_a_graph() -> None:
    one = {"atoms": path_graph(3)}
    assert tp.sizes_of([one]).components == ("nodes:atoms", "edges:atoms")
    batch = tp.PaddedCollate(tp.Limits({"atoms": 5}, {"atoms": 5}, 2), one)([one])
    assert batch.node_mask["atoms"].tolist() == [True] * 3 + [False] * 3
    with refused(SchemaError, "named graphs ['atoms']", "batch.graphs['atoms']"):
        batch.graph  # noqa: B018
    with refused(SchemaError, "named graphs ['atoms']", "tensors.graphs['atoms']"):
        batch.tensors.graph  # noqa: B018
    plain = tp.PaddedCollate(tp.Limits(5, 5, 2), path_graph(3))([path_graph(3)])
    with refused(SchemaError, "no names", "batch.graph"):
        plain.graphs  # noqa: B018
    with refused(SchemaError, "without names", "tensors.graph"):
        plain.tensors.graphs  # noqa: B018
    with refused(LimitsError, "nodes:atoms"):
        tp.PaddedCollate(tp.Limits(5, 5, 2), one)


@pytest.mark.parametrize(
    ("wrong", "parts"),
    [
        ({}, ["empty dict", "at least one"]),
        ({"atoms": path_graph(2), "y": 3}, ["has 3 under 'y'", "put labels after it"]),
        ({"a/b": path_graph(2)}, ["called 'a/b'", "'/'"]),
        ({"a:b": path_graph(2)}, ["called 'a:b'", "':'"]),
        ({"": path_graph(2)}, ["called ''", "not empty"]),
        ({3: path_graph(2)}, ["called 3", "strings"]),
        ({"y": 3}, ["is dict", "dict of named graphs"]),
        (({"y": 3}, 1), ["begins with dict", "dict of named graphs"]),
        ({"atoms": path_graph(2), "bonds": path_graph(2).int()}, ["'bonds'", "index type", "torch.int32"]),
        ({"atoms": path_graph(2), "bonds": dgl.batch([path_graph(2)] * 2)}, ["'bonds'", "number of graphs", "2"]),
    ],
)
def test_dicts_that_are_not_named_graphs_are_refused(wrong: Any, parts: list[str], tmp_path: Path) -> None:
    for place, call in (
        ("the example", lambda: tp.PaddedCollate(LIMITS, wrong)),
        ("item 1", lambda: tp.PaddedCollate(LIMITS, item())([item(), wrong])),
        ("item 1", lambda: tp.GraphStore.write(tmp_path / "store", [item(), wrong])),
    ):
        known = parts if wrong or place == "the example" else parts[:1]
        with pytest.raises(SchemaError) as caught:
            call()
        message = str(caught.value)
        assert place in message
        # Before its index type, an item is told to have other graphs than the example.
        assert all(part in message for part in known), message
    assert not (tmp_path / "store" / "metadata.json").exists()


@pytest.mark.parametrize(
    ("other", "parts"),
    [
        ({"atoms": path_graph(2)}, ["['atoms']", "['atoms', 'bonds']", "same named graphs"]),
        (path_graph(2), ["one graph without a name", "['atoms', 'bonds']"]),
        ({"atoms": path_graph(2), "bonds": molecule(2, 2)}, ["bonds/C", "same types"]),
        ({"atoms": path_graph(2), "bonds": dgl.graph(([0], [0]))}, ["features", "found none"]),
    ],
)
def test_items_that_differ_are_named(other: Any, parts: list[str], tmp_path: Path) -> None:
    items = [item(), other]
    with refused(SchemaError, "item 1", *parts):
        tp.PaddedCollate(LIMITS, items[0])(items)
    with refused(SchemaError, "item 1", *parts):
        tp.GraphStore.write(tmp_path / "store", items)
    if "features" not in parts:
        with refused(SchemaError, "item 1", *parts):
            tp.sizes_of(items)
    with pytest.raises(SchemaError):
        tp.PaddedCollate(LIMITS, item())([(item(), 1)])


@pytest.mark.parametrize(
    ("ties", "parts"),
    [
        ({"nodes:angles": "edges:atoms"}, ["'nodes:angles'", "none of them", "nodes:atoms, nodes:bonds"]),
        ({"edges:atoms": "nodes:bonds"}, ["nodes to edges", "nodes first"]),
        ({"nodes:bonds": "nodes:atoms"}, ["nodes to edges"]),
        ({"nodes:bonds": "edges:atoms", "nodes:atoms": "edges:atoms"}, ["twice"]),
        ({"nodes": "edges:atoms"}, ["may be nodes:atoms or nodes:bonds"]),
        ({"nodes:bonds": 3}, ["dict of strings"]),
        ([("bonds", "atoms")], ["dict of strings"]),
        ("bonds", ["dict of strings"]),
    ],
)
def test_ties_that_mean_nothing_are_refused(ties: Any, parts: list[str], tmp_path: Path) -> None:
    with refused(SchemaError, *parts):
        tp.PaddedCollate(LIMITS, item(), ties=ties)
    with refused(SchemaError, *parts):
        tp.GraphStore.write(tmp_path / "store", [item()], ties=ties)
    assert not (tmp_path / "store" / "metadata.json").exists()


def test_ties_that_do_not_hold_name_the_item_and_both_counts(tmp_path: Path) -> None:
    wrong = {**item(4), "bonds": dgl.line_graph(path_graph(3), shared=True)}
    with refused(SchemaError, "item 1", "2 nodes:bonds", "3 edges:atoms", "tied"):
        tp.PaddedCollate(LIMITS, item(), ties=TIES)([item(), wrong])
    with refused(SchemaError, "graph 7", "7", "2 nodes:bonds"):
        dataset = tp.with_ids([item()] * 7 + [wrong])
        tp.PaddedCollate(LIMITS, dataset[0], ties=TIES)([dataset[7]])
    with refused(SchemaError, "graph 2", "2 nodes:bonds", "3 edges:atoms"):
        tp.GraphStore.write(tmp_path / "store", [item(), item(), wrong], ties=TIES)
    assert not (tmp_path / "store" / "metadata.json").exists()
    tp.GraphStore.write(tmp_path / "untied", [item(), wrong])
    with refused(SchemaError, "graph 1", "tied"):
        tp.GraphStore.write(tmp_path / "store", tmp_path / "untied", ties=TIES)
    dropped = dgl.transforms.DropEdge(1.0)
    store = tp.GraphStore.write(tmp_path / "store", [item(), item()], ties=TIES)
    with refused(SchemaError, "edges:atoms", "tied"):
        store.padded(LIMITS, transform=lambda graphs: {**graphs, "atoms": dropped(graphs["atoms"])})[[0]]


def test_a_transform_that_breaks_a_tie_is_refused(tmp_path: Path) -> None:
    def shorten(graphs: Any) -> Any:
        atoms = graphs["atoms"]
        return {**graphs, "atoms": dgl.remove_edges(atoms, [0]) if atoms.num_nodes() > 3 else atoms}

    store = tp.GraphStore.write(tmp_path / "store", [item(3), item(4)], ties=TIES)
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
    items = [(item(n), {"root": 1}) for n in (4, 5)]

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
    plain = [(path_graph(4), 2)]
    without = dgl.transforms.DropNode(1.0)
    pad = tp.PaddedCollate(tp.Limits(9, 9, 2), tp.with_ids(plain)[0], transform=without, indices={"": "nodes"})
    with refused(TransformError, "left 0 of 4 nodes of graph 0", "the label indexes them"):
        pad([tp.with_ids(plain)[0]])


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
    graphs = item(5)
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
        ({"root": "nodes:angles"}, ["'nodes:angles'", "none of them"]),
        ({"root": "nodes"}, ["may be nodes:atoms or nodes:bonds"]),
        ({"root": 3}, ["dict of strings"]),
        (["root"], ["dict of strings"]),
    ],
)
def test_indices_that_mean_nothing_are_refused(indices: Any, parts: list[str], tmp_path: Path) -> None:
    example = item(), {"root": 1}
    with refused(SchemaError, *parts):
        tp.PaddedCollate(LIMITS, example, indices=indices)
    with refused(SchemaError, *parts):
        tp.GraphStore.write(tmp_path / "store", [example], indices=indices)


@pytest.mark.parametrize("content", ["ndata", "edata"])
def test_indices_share_their_name_with_nothing_else(content: str, tmp_path: Path) -> None:
    """A flag of nodes that is called as a label of indices would be shifted too."""
    graph = path_graph(4)
    getattr(graph, content)["root"] = torch.arange(len(getattr(graph, content)["x" if content == "ndata" else "r"])) % 2
    example, indices = (graph, {"root": 3}), {"root": "nodes"}
    kind = "node" if content == "ndata" else "edge"
    with refused(SchemaError, "'root'", f"the {kind} feature 'root' and the label 'root'", "rename"):
        tp.PaddedCollate(tp.Limits(9, 9, 2), example, indices=indices)
    with refused(SchemaError, "'root'", "rename"):
        tp.GraphStore.write(tmp_path / "store", [example], indices=indices)
    # One name in several graphs stands for all of them.
    both = {"a": path_graph(3), "b": path_graph(2)}
    for each in both.values():
        each.ndata["near"] = torch.zeros(each.num_nodes(), dtype=torch.int64)
    limits = tp.Limits({"a": 9, "b": 9}, {"a": 9, "b": 9}, graphs=2)
    batch = tp.PaddedCollate(limits, both, indices={"near": "nodes"})([both, both])
    assert batch.node_features["a"]["near"].tolist() == [0] * 3 + [3] * 3 + [6] * 4
    assert batch.node_features["b"]["near"].tolist() == [0] * 2 + [2] * 2 + [4] * 6


def test_nodes_are_not_masked_in_features_of_indices() -> None:
    """0 would number the first node of the first graph of the batch."""
    graph = path_graph(4)
    graph.ndata["near"] = torch.arange(4)
    mask = tp.transforms.MaskNodes("near", 1.0)
    with refused(TransformError, "'near'", "holds indices", "leave it out"):
        tp.PaddedCollate(tp.Limits(9, 9, 2), graph, indices={"near": "nodes"}, batch_transform=mask)
    assert tp.PaddedCollate(tp.Limits(9, 9, 2), graph, batch_transform=mask)([]).node_features["near"].sum() == 0


@pytest.mark.parametrize(("value", "nodes"), [(-1, 4), (4, 4), (3, 3)])
def test_indices_outside_the_graph_name_item_name_and_value(value: int, nodes: int, tmp_path: Path) -> None:
    items = [(item(), {"root": 0}), (item(nodes), {"root": value})]
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
        lambda chosen: tp.GraphStore.write(tmp_path / "s", chosen, overwrite=True, **declared).batch([0, 1, 2], limits),
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
    example = item(), {"root": 1}
    with refused(SchemaError, "'root'", "point to padding"):
        tp.PaddedCollate(LIMITS, example, indices={"root": "nodes:atoms"}, label_fill={"root": -1})
    batch = tp.PaddedCollate(LIMITS, example, indices={"root": "nodes:atoms"}, label_fill=-1)([example])
    assert batch.labels["root"].tolist() == [1, 4, 4, 4, 4]


def test_a_store_keeps_what_was_declared(tmp_path: Path) -> None:
    items = [(item(n), {"root": n - 1}) for n in (3, 4, 2)]
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


def test_the_command_shows_what_was_declared(tmp_path: Path, run: Run) -> None:
    tp.GraphStore.write(tmp_path / "s", [(item(), {"root": 1})], ties=TIES, indices={"root": "nodes:atoms"})
    document = json.loads(run("info", tmp_path / "s", "--json").out)
    assert (document["ties"], document["indices"]) == (TIES, {"root": "nodes:atoms"})
    assert document["totals"] == {"nodes:atoms": 4, "nodes:bonds": 3, "edges:atoms": 3, "edges:bonds": 2}
    shown = run("info", tmp_path / "s").out
    assert "tied to edges:atoms" in shown
    assert "index root" in shown


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda document: document.update(graph_names=[]), "none of them"),
        (lambda document: document.update(ties={"nodes:bonds": "edges:angles"}), "edges:angles"),
        (lambda document: document.update(indices={"root": "nodes:angles"}), "nodes:angles"),
    ],
)
def test_damaged_declarations_are_refused(change: Any, part: str, tmp_path: Path) -> None:
    tp.GraphStore.write(tmp_path / "s", [(item(), {"root": 1})], ties=TIES, indices={"root": "nodes:atoms"})
    rewrite_metadata(tmp_path / "s", change)
    with refused(FormatError, "metadata.json", part):
        tp.GraphStore(tmp_path / "s")


def test_indices_that_were_damaged_later_are_refused(tmp_path: Path) -> None:
    items = [(item(n), {"root": n - 1}) for n in (3, 4, 2)]
    store = tp.GraphStore.write(tmp_path / "s", items, indices={"root": "nodes:atoms"}, ties=TIES)
    (file,) = data_of(tmp_path / "s").glob("*label_root.npy")
    values = np.load(file, mmap_mode="r+")
    values[1] = 99
    values.flush()
    for read in (
        lambda: store.batch([1], LIMITS),
        lambda: store.batched()[[0, 1]],
        lambda: store.to("cpu"),
        lambda: tp.GraphStore(tmp_path / "s").verify(),
    ):
        with pytest.raises(FormatError, match=r"label_root|label 'root'"):
            read()


def test_shards_agree_in_what_is_declared(tmp_path: Path) -> None:
    shards = {"a": [item(3)], "b": [item(4)]}
    tp.preprocess_shards(shards, tmp_path, limits=LIMITS, workers=1, ties=TIES)
    assert tp.preprocess_shards(shards, tmp_path, limits=LIMITS, workers=1, ties=TIES, overwrite=True).store.schema.ties
    stores = {name: tp.GraphStore.write(tmp_path / "of" / name, graphs) for name, graphs in shards.items()}
    tp.GraphStore.write(tmp_path / "of" / "b", shards["b"], ties=TIES, overwrite=True)
    stores["b"] = tp.GraphStore(tmp_path / "of" / "b")
    with refused(ShardsError, "ties"):
        tp.preprocess_shards(stores, tmp_path / "mixed", limits=LIMITS, workers=1)
    paths = {name: tmp_path / "of" / name for name in stores}
    tp.GraphStore.write(tmp_path / "of" / "b", shards["b"], overwrite=True)
    tp.preprocess_shards(paths, tmp_path / "all", limits=LIMITS, workers=1)
    with refused(ShardsError, "no ties, indices and levels", "overwrite=True"):
        tp.preprocess_shards(paths, tmp_path / "all", limits=LIMITS, workers=1, ties=TIES)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda graphs: graphs["atoms"],
        lambda graphs: {"atoms": graphs["atoms"]},
        lambda graphs: {**graphs, "bonds": 3},
        lambda graphs: {**graphs, 3: graphs["atoms"]},
    ],
)
def test_transforms_that_return_other_graphs_are_refused(wrong: Any) -> None:
    with refused(TransformError, "the example", "['atoms', 'bonds']"):
        tp.PaddedCollate(LIMITS, item(), transform=wrong)
    with refused(TransformError, "the example", "4 nodes of type '_N' of the graph 'bonds'", "instead of 3"):
        tp.PaddedCollate(
            LIMITS, item(), transform=lambda graphs: {**graphs, "bonds": dgl.add_nodes(graphs["bonds"], 1)}
        )


def test_transformed_graphs_are_batched_by_name(tmp_path: Path) -> None:
    """Also where a graph without nodes has lost its features."""

    def bare(graphs: Any) -> Any:
        empty = not graphs["b"].num_nodes()
        return {**graphs, "b": dgl.graph(([], []), num_nodes=0) if empty else graphs["b"]}

    items = []
    for number in (2, 0, 3):
        graphs = {"a": dgl.rand_graph(3, 4), "b": dgl.rand_graph(number, 2 * number)}
        for graph in graphs.values():
            graph.ndata["x"] = torch.arange(graph.num_nodes()).float()
        items.append(graphs)
    store = tp.GraphStore.write(tmp_path / "store", items)
    limits = tp.Limits({"a": 9, "b": 9}, {"a": 12, "b": 12}, graphs=3)
    batch = store.batch([0, 1, 2], limits, transform=bare).graphs
    assert batch["b"].batch_num_nodes()[:3].tolist() == [2, 0, 3]
    assert batch["b"].ndata["x"][:5].tolist() == [0, 1, 0, 1, 2]
    assert batch["a"].ndata["x"][:9].tolist() == [0, 1, 2] * 3
