"""Items of several named graphs in loaders and transforms; `tests/zoo` trains a model of them, compiled too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import pytest
import torch
from dgl.dataloading import GraphDataLoader

import dgl_tuplepack as tp
from tests.support.graphs import generator
from tests.support.named import TIES, assert_same_named

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
