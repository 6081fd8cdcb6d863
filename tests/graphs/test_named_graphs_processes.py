"""Items of several named graphs in loaders, models and compiled code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import dgl.function as fn
import pytest
import torch
from dgl.dataloading import GraphDataLoader
from torch import Tensor, nn
from torch._dynamo.utils import counters

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


class EdgeGated(nn.Module):
    """Edge-gated graph convolution, as ALIGNN has it (without norms)."""

    def __init__(self) -> None:
        super().__init__()
        names = ("src_gate", "dst_gate", "edge_gate", "src_update", "dst_update")
        self.layers = nn.ModuleDict({name: nn.Linear(WIDTH, WIDTH, dtype=torch.float64) for name in names})

    def forward(self, graph: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with graph.local_scope():
            graph.ndata["src"], graph.ndata["dst"] = self.layers["src_gate"](x), self.layers["dst_gate"](x)
            graph.apply_edges(fn.u_add_v("src", "dst", "sum"))
            m = graph.edata["sum"] + self.layers["edge_gate"](y)
            graph.edata["gate"], graph.ndata["h"] = torch.sigmoid(m), self.layers["dst_update"](x)
            graph.update_all(fn.u_mul_e("h", "gate", "message"), fn.sum("message", "total"))
            graph.update_all(fn.copy_e("gate", "message"), fn.sum("message", "gates"))
            h = self.layers["src_update"](x) + graph.ndata["total"] / (graph.ndata["gates"] + 1e-6)
        return x + nn.functional.silu(h), y + nn.functional.silu(m)


class Alignn(nn.Module):
    """Two ALIGNN layers: bonds learn from angles, then atoms from bonds; and the sum over atoms."""

    def __init__(self) -> None:
        super().__init__()
        self.on_bonds = nn.ModuleList(EdgeGated() for _ in range(2))
        self.on_atoms = nn.ModuleList(EdgeGated() for _ in range(2))
        self.head = nn.Linear(WIDTH, 2, dtype=torch.float64)

    def forward(self, graphs: Any, x: Tensor, r: Tensor, angle: Tensor) -> Tensor:
        for on_bonds, on_atoms in zip(self.on_bonds, self.on_atoms, strict=True):
            # Node features of the line graph are edge features of the graph.
            r, angle = on_bonds(graphs["bonds"], r, angle)
            x, r = on_atoms(graphs["atoms"], x, r)
        atoms = graphs["atoms"]
        with atoms.local_scope():
            atoms.ndata["out"] = x
            return self.head(dgl.sum_nodes(atoms, "out"))


def features_of(graphs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Features of atoms, bonds and angles, as leaves."""
    values = graphs["atoms"].ndata["x"], graphs["atoms"].edata["r"], graphs["bonds"].edata["angle"]
    return tuple(value.detach().clone().requires_grad_() for value in values)  # type: ignore[return-value]


@pytest.mark.parametrize("sort_edges", [False, True])
@pytest.mark.parametrize("form", ["dgl", "tensors", "store"])
def test_alignn_gives_the_same_outputs_and_gradients_as_on_plain_batches(
    sort_edges: bool, form: str, tmp_path: Path
) -> None:
    items, seed = crystals(5), 0
    limits = tp.Limits({"atoms": 40, "bonds": 150}, {"atoms": 150, "bonds": 700}, graphs=7)
    if form == "store":
        store = tp.GraphStore.write(tmp_path / "store", items, ties=TIES)
        batch = store.padded(limits, sort_edges=sort_edges, feature_fill=1e3)[range(5)]
    else:
        pad = tp.PaddedCollate(limits, items[0], ties=TIES, sort_edges=sort_edges, feature_fill=1e3)
        batch = pad(items)
    padded = batch.tensors.graphs if form == "tensors" else batch.graphs
    plain = {name: dgl.batch([graphs[name] for graphs, _ in items]) for name in ("atoms", "bonds")}
    torch.manual_seed(seed)
    model = Alignn()
    results = []
    for graphs in (plain, padded):
        model.zero_grad()
        leaves = features_of(graphs)
        out = model(graphs, *leaves)[: len(items)]
        (out * torch.arange(1.0, 11.0).reshape(5, 2)).sum().backward()
        results.append((out.detach(), [p.grad.clone() for p in model.parameters()], [leaf.grad for leaf in leaves]))
    (right, right_parameters, right_leaves), (found, parameters, leaves) = results
    torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-10)
    for one, other in zip(parameters, right_parameters, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    masks = (batch.node_mask["atoms"], batch.edge_mask["atoms"], batch.edge_mask["bonds"])
    for grad, mask in zip(leaves, masks, strict=True):
        assert not grad[~mask].any()
    # In the order that nodes and edges had in their graphs.
    batch.graphs["atoms"].ndata["x"], batch.graphs["atoms"].edata["r"] = leaves[:2]
    batch.graphs["bonds"].edata["angle"] = leaves[2]
    for i, expected in enumerate(right_leaves):
        grads = [features_of(graphs)[i].detach() for graphs in tp.unpad(batch)]
        torch.testing.assert_close(torch.cat(grads), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_step_on_named_graphs_is_compiled_once(backend: str, tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path / "store", crystals(), ties=TIES)
    limits = tp.Limits({"atoms": 20, "bonds": 60}, {"atoms": 60, "bonds": 300})
    sampler = tp.PackBatchSampler(store, limits, seed=1)
    torch.manual_seed(0)
    model = Alignn()

    def step(t: Any) -> Tensor:
        graphs = t.graphs
        atoms, bonds = graphs["atoms"], graphs["bonds"]
        out = model(graphs, atoms.ndata["x"], atoms.edata["r"], bonds.edata["angle"])
        return (out * t.graph_mask[:, None]).sum()

    counters.clear()
    compiled = torch.compile(step, backend=backend, fullgraph=True, dynamic=False)
    batches = store.padded(sampler.limits, sort_edges=True)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for ids in sampler:
            batch = batches[ids]
            torch.testing.assert_close(compiled(batch.tensors), step(batch.tensors))
            compiled(batch.tensors).backward()
    assert counters["stats"]["unique_graphs"] == 1


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


def test_norms_read_the_masks_of_named_graphs() -> None:
    items = crystals(4)
    limits = tp.Limits({"atoms": 40, "bonds": 150}, {"atoms": 150, "bonds": 700}, graphs=7)
    batch = tp.PaddedCollate(limits, items[0], ties=TIES, feature_fill=5)(items)
    plain = torch.cat([graphs["atoms"].ndata["x"] for graphs, _ in items])
    right = nn.BatchNorm1d(WIDTH, dtype=torch.float64)(plain)
    with tp.nn.masked(batch):
        found = tp.nn.convert(nn.BatchNorm1d(WIDTH, dtype=torch.float64), verbose=False)(
            batch.node_features["atoms"]["x"]
        )
    torch.testing.assert_close(found[batch.node_mask["atoms"]], right)
