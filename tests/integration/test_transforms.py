"""DGL's norms and transforms on a padded batch: every row of the table in docs/training.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dgl
import dgl.nn
import dgl.transforms
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError
from tests.messages import refused
from tests.tensors import generator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training.md"


def graph(number: int, seed: int) -> Any:
    """Undirected ring with a chord, features and positive weights."""
    gen = generator(seed)
    ends = torch.arange(number)
    made = dgl.graph((torch.cat([ends, torch.tensor([0])]), torch.cat([(ends + 1) % number, torch.tensor([2])])))
    made = dgl.to_bidirected(made)
    made.ndata["x"] = torch.rand(number, 2, generator=gen) + 0.1
    made.edata["w"] = torch.rand(made.num_edges(), generator=gen) + 0.1
    return made


def graphs() -> list[Any]:
    return [graph(number, number) for number in (5, 7, 6)]


def plain() -> Any:
    return dgl.batch(graphs())


# The roomy one has many padding edges, the tight one has none.
ROOMY, TIGHT = (40, 90), (18, int(plain().num_edges()))


def padded(size: tuple[int, int] = ROOMY, **settings: Any) -> tp.PaddedBatch:
    return tp.PaddedCollate(tp.Limits(*size, graphs=5), graphs()[0], **settings)(graphs())


def check_edge_weight_norm() -> None:
    layers = {norm: dgl.nn.EdgeWeightNorm(norm) for norm in ("both", "left", "right")}
    zeros = padded()
    with pytest.raises(dgl.DGLError, match="Non-positive edge weight"):
        layers["both"](zeros.graph, zeros.graph.edata["w"])
    for norm in ("left", "right"):
        assert layers[norm](zeros.graph, zeros.graph.edata["w"])[~zeros.edge_mask].isnan().all()
    for settings in ({}, {"cover_padding": True}):
        for size in (ROOMY, TIGHT):
            filled = padded(size, feature_fill={"w": 1.0, "x": 0.0}, **settings)
            for layer in layers.values():
                found = layer(filled.graph, filled.graph.edata["w"])
                assert found.isfinite().all()
                torch.testing.assert_close(found[filled.edge_mask], layer(plain(), plain().edata["w"]))


def check_gcn_norm() -> None:
    for size in (ROOMY, TIGHT):
        batch = padded(size, cover_padding=True)
        found = dgl.transforms.GCNNorm("n")(batch.graph).edata["n"][batch.edge_mask]
        torch.testing.assert_close(found, dgl.transforms.GCNNorm("n")(plain()).edata["n"])


def check_random_walks() -> None:
    transform = dgl.transforms.RandomWalkPE(3)
    each = torch.cat([transform(one).ndata["PE"] for one in graphs()])
    batch = padded(cover_padding=True)
    torch.testing.assert_close(transform(batch.graph).ndata["PE"][batch.node_mask], each)
    torch.testing.assert_close(dgl.random_walk_pe(batch.graph, 3)[batch.node_mask], each)


def check_laplacian() -> None:
    """Eigenvectors of a batch are not those of its graphs, with padding or without."""
    each = torch.cat([dgl.lap_pe(one, 2) for one in graphs()]).abs()
    for batch in (padded(), padded(TIGHT)):
        assert not torch.allclose(dgl.lap_pe(batch.graph, 2)[batch.node_mask].abs(), each, atol=0.05)
    assert not torch.allclose(dgl.lap_pe(plain(), 2).abs(), each, atol=0.05)
    # Instead: before packing.
    before = graphs()
    for one in before:
        one.ndata["p"] = dgl.lap_pe(one, 2)
    batch = tp.PaddedCollate(tp.Limits(*ROOMY, graphs=5), before[0])(before)
    torch.testing.assert_close(batch.graph.ndata["p"][batch.node_mask].abs(), each)


def check_other_edges() -> None:
    """The number of edges follows the content, and the masks fit no more."""
    for name in ("AddSelfLoop", "RemoveSelfLoop", "AddReverse", "ToSimple", "LineGraph"):
        transform = getattr(dgl.transforms, name)()
        batch = padded()
        found = transform(batch.graph)
        assert found.num_edges() != len(batch.edge_mask) or found.num_nodes() != len(batch.node_mask)
        with refused(SchemaError, "the mask must be bool", "batch.edge_mask"):
            tp.nn.masked_mean(torch.ones(found.num_edges()), batch.edge_mask)
    # A readout has one row, which the mask of the graphs does not fit either.
    looped = dgl.transforms.AddSelfLoop()(padded().graph)
    assert looped.batch_size == 1
    with refused(SchemaError, "the mask must be bool", "batch.graph_mask"):
        tp.nn.masked_mean(dgl.mean_nodes(looped, "x"), padded().graph_mask)
    # Instead: before sizes are read.
    before = [dgl.transforms.AddSelfLoop()(one) for one in graphs()]
    sampler = tp.PackBatchSampler(before, tp.Limits(*ROOMY))
    batch = tp.PaddedCollate(sampler.limits, before[0])(before)
    assert batch.num_real_edges == plain().num_edges() + plain().num_nodes()


def check_dropping() -> None:
    for name in ("DropEdge", "DropNode"):
        torch.manual_seed(0)
        batch = padded()
        assert getattr(dgl.transforms, name)(0.5)(batch.graph).num_edges() != len(batch.edge_mask)
    # Instead: weights that leave edges out, of one shape.
    batch = padded()
    kept = batch.edge_mask & (torch.rand(len(batch.edge_mask), generator=generator(0)) > 0.5)
    layer = dgl.nn.GraphConv(2, 3, norm="none", allow_zero_in_degree=True)
    found = layer(batch.graph, batch.graph.ndata["x"], edge_weight=kept.to(torch.float32))
    less = dgl.remove_edges(plain(), (~kept[: plain().num_edges()]).nonzero().flatten())
    torch.testing.assert_close(found[batch.node_mask], layer(less, less.ndata["x"]))


def check_features() -> None:
    batch = padded()
    torch.manual_seed(0)
    real = batch.graph.ndata["x"][batch.node_mask].clone()
    found = dgl.transforms.FeatMask(0.5, ["x"])(batch.graph).ndata["x"]
    assert found.shape == batch.graph.ndata["x"].shape
    assert ((found[batch.node_mask] == real) | (found[batch.node_mask] == 0)).all()


def check_shuffling() -> None:
    """Features move between graphs, and into padding."""
    torch.manual_seed(0)
    batch = padded()
    assert (dgl.transforms.NodeShuffle()(batch.graph).ndata["x"][~batch.node_mask] != 0).any()
    mixed = dgl.transforms.NodeShuffle()(plain())
    assert not torch.allclose(dgl.sum_nodes(mixed, "x"), dgl.sum_nodes(plain(), "x"))


CHECKS: dict[str, Callable[[], None]] = {
    "EdgeWeightNorm": check_edge_weight_norm,
    "GCNNorm": check_gcn_norm,
    "random_walk_pe": check_random_walks,
    "lap_pe": check_laplacian,
    "AddSelfLoop": check_other_edges,
    "DropEdge": check_dropping,
    "FeatMask": check_features,
    "NodeShuffle": check_shuffling,
}


@pytest.mark.parametrize("name", CHECKS)
def test_what_the_page_says_of_it_is_so(name: str) -> None:
    CHECKS[name]()


def test_the_page_tells_what_is_checked() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## DGL's transforms and norms")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == list(CHECKS)
