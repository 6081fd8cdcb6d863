"""Items of several named graphs: names, limits, refusals, loaders; `tests/zoo` trains a model of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import pytest
import torch
from dgl.dataloading import GraphDataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.errors import LimitsError, SchemaError, TransformError
from tests.support.graphs import generator
from tests.support.messages import refused
from tests.support.named import LIMITS, TIES, assert_same_named, path_graph, path_item


def molecule(*counts: int) -> Any:
    """A heterograph of two types."""
    graph = dgl.heterograph({("C", "bond", "N"): ([0], [0])}, {"C": counts[0], "N": counts[1]})
    graph.nodes["C"].data["x"] = torch.ones(counts[0])
    return graph


def test_components_and_limits_are_called_as_the_graphs() -> None:
    sizes = tp.sizes_of([path_item(3), (path_item(4), 1)])
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
    graphs, labels = batch
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
        ({3: path_graph(2)}, ["called 3", "strings"]),
        ({"y": 3}, ["is dict", "dict of named graphs"]),
        ({"atoms": path_graph(2), "bonds": path_graph(2).int()}, ["'bonds'", "index type", "torch.int32"]),
        ({"atoms": path_graph(2), "bonds": dgl.batch([path_graph(2)] * 2)}, ["'bonds'", "batch size", "2"]),
    ],
)
def test_dicts_that_are_not_named_graphs_are_refused(wrong: Any, parts: list[str], tmp_path: Path) -> None:
    with refused(SchemaError, "the example", *parts):
        tp.PaddedCollate(LIMITS, wrong)
    # An empty dict has other graphs than the example.
    known = parts if wrong else parts[:1]
    for call in (tp.PaddedCollate(LIMITS, path_item()), lambda items: tp.GraphStore.write(tmp_path / "store", items)):
        with refused(SchemaError, "item 1", *known):
            call([path_item(), wrong])
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
    items = [path_item(), other]
    calls: list[Any] = [tp.PaddedCollate(LIMITS, items[0]), lambda items: tp.GraphStore.write(tmp_path / "s", items)]
    for call in calls if "features" in parts else [*calls, tp.sizes_of]:
        with refused(SchemaError, "item 1", *parts):
            call(items)


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
        tp.PaddedCollate(LIMITS, path_item(), transform=wrong)
    with refused(TransformError, "the example", "4 nodes of type '_N' of the graph 'bonds'", "instead of 3"):
        tp.PaddedCollate(
            LIMITS, path_item(), transform=lambda graphs: {**graphs, "bonds": dgl.add_nodes(graphs["bonds"], 1)}
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
    batch = store.padded(limits, transform=bare)[[0, 1, 2]].graphs
    assert batch["b"].batch_num_nodes()[:3].tolist() == [2, 0, 3]
    assert batch["b"].ndata["x"][:5].tolist() == [0, 1, 0, 1, 2]
    assert batch["a"].ndata["x"][:9].tolist() == [0, 1, 2] * 3


# --- in loaders and transforms

WIDTH = 4


def crystal(gen: torch.Generator, nodes: int) -> dict[str, Any]:
    """A ring with chords in both directions, and its line graph; edges of the one are nodes of the other."""
    around = torch.arange(nodes)
    chords = torch.randint(0, nodes, (2, nodes // 2), generator=gen)
    src = torch.cat([around, chords[0], (around + 1) % nodes])
    dst = torch.cat([(around + 1) % nodes, chords[1], around])
    # Neither in the order of sources nor of destinations.
    order = torch.randperm(len(src), generator=gen)
    atoms = dgl.graph((src[order], dst[order]), num_nodes=nodes)
    atoms.ndata["x"] = torch.randn(nodes, WIDTH, generator=gen, dtype=torch.float64)
    atoms.edata["r"] = torch.randn(len(src), WIDTH, generator=gen, dtype=torch.float64)
    bonds = dgl.line_graph(atoms, backtracking=False, shared=True)
    bonds.edata["angle"] = torch.randn(bonds.num_edges(), WIDTH, generator=gen, dtype=torch.float64)
    return {"atoms": atoms, "bonds": bonds}


def crystals(number: int = 12) -> list[Any]:
    """Labelled items of 3 to 8 atoms."""
    gen = generator(3)
    return [(crystal(gen, 3 + i % 6), torch.randn(2, generator=gen, dtype=torch.float64)) for i in range(number)]


@pytest.mark.parametrize("kind", ["list", "store"])
def test_one_call_makes_a_loader(kind: str, tmp_path: Path) -> None:
    items = crystals(30)
    source = items if kind == "list" else tp.GraphStore.write(tmp_path / "store", items, ties=TIES)
    loader = tp.packed_loader(source, graphs_per_batch=8, ties=TIES, sort_edges=True)
    shapes, seen = set(), []
    for batch in loader:
        shapes.add(tuple(number for g in batch.graphs.values() for number in (g.num_nodes(), g.num_edges())))
        seen += batch.graph_ids[batch.graph_mask].tolist()
        assert torch.equal(batch.graphs["bonds"].ndata["r"], batch.graphs["atoms"].edata["r"])
    assert len(shapes) == 1
    assert sorted(seen) == list(range(30))
    plain = tp.packed_loader(source, graphs_per_batch=8, padded=False)
    totals = [(graphs["atoms"].num_edges(), graphs["bonds"].num_nodes()) for graphs, _ in plain]
    assert all(one == other for one, other in totals)
    assert sum(one for one, _ in totals) == sum(graphs["atoms"].num_edges() for graphs, _ in items)


def test_packs_as_a_dataset_go_through_the_collate_of_dgl(tmp_path: Path) -> None:
    items = crystals()
    store = tp.GraphStore.write(tmp_path / "store", items, ties=TIES)
    limits = tp.Limits({"atoms": 20, "bonds": 60}, {"atoms": 60, "bonds": 300})
    packed = tp.PackedDataset(store, limits, multiple_of=2, feature_fill=9)
    seen, shapes = [], set()
    for graphs, labels in GraphDataLoader(packed, batch_size=2):
        packs = tp.flatten_packs(graphs, labels)
        shapes.add((graphs["atoms"].num_nodes(), graphs["bonds"].num_edges()))
        assert torch.equal(packs.node_mask["bonds"], packs.edge_mask["atoms"])
        assert torch.equal(graphs["bonds"].ndata["r"], graphs["atoms"].edata["r"])
        assert list(packs.row_masks()) == [*store.schema.components, "graphs"]
        seen += packs.graph_ids[packs.graph_mask].tolist()
    assert sorted(seen) == list(range(len(items)))
    assert shapes == {(2 * 21, 2 * 300)}


def test_a_pre_transform_makes_line_graphs(tmp_path: Path) -> None:
    """One graph becomes two before sizes are taken; a tie that it declares is checked."""

    def with_bonds(graph: Any) -> dict[str, Any]:
        return {"atoms": graph, "bonds": dgl.line_graph(graph, shared=True)}

    plain = [(graphs["atoms"], label) for graphs, label in crystals(4)]
    store = tp.GraphStore.write(tmp_path / "store", plain, pre_transform=with_bonds, ties=TIES)
    for (graphs, label), (graph, right) in zip(store, plain, strict=True):
        assert_same_named((graphs, label), (with_bonds(graph), right))
    made = tp.preprocess(plain, tmp_path / "made", pre_transform=with_bonds, ties=TIES)
    assert made.store.schema.ties == TIES
    assert made.store.schema.graph_names == ("atoms", "bonds")


def test_a_transform_of_batches_leaves_padding_and_indices_alone(tmp_path: Path) -> None:
    items = crystals(4)
    for graphs, _ in items:
        graphs["atoms"].ndata["next"] = torch.arange(graphs["atoms"].num_nodes()).flip(0)
    store = tp.GraphStore.write(tmp_path / "store", items, ties=TIES, indices={"next": "nodes"})
    limits = tp.Limits({"atoms": 40, "bonds": 150}, {"atoms": 150, "bonds": 700}, graphs=7)
    noise = tp.transforms.AddNoise("x", 0.1)
    before, batch = (
        store.padded(limits, sort_edges=True, batch_transform=transform)[[0, 1, 2, 3]] for transform in (None, noise)
    )
    real = batch.node_mask["atoms"]
    assert torch.equal(batch.node_features["atoms"]["x"][~real], before.node_features["atoms"]["x"][~real])
    assert not torch.equal(batch.node_features["atoms"]["x"][real], before.node_features["atoms"]["x"][real])
    assert torch.equal(batch.node_features["atoms"]["next"], before.node_features["atoms"]["next"])
    # Features that are written into a graph are those of the batch.
    batch.graphs["bonds"].ndata["h"] = torch.ones(len(batch.node_mask["bonds"]))
    assert batch.tensors.node_features["bonds"]["h"].sum() == len(batch.node_mask["bonds"])
    assert all("h" in graphs["bonds"].ndata for graphs in tp.unpad(batch))
