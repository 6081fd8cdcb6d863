"""Real DGL layers: padding changes neither outputs nor readouts nor gradients of what is real."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dgl
import dgl.nn
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dgl_tuplepack as tp
from dgl_tuplepack.nn import MaskedBatchNorm1d, masked_mean
from tests.support.graphs import generator, ring_with_chords
from tests.support.tensors import seeded

FEATURES, HIDDEN = 3, 4


@dataclass(frozen=True)
class Case:
    """Labelled graphs and a padded batch of them."""

    items: list[Any]
    padded: tp.PaddedBatch
    plain: Any
    seed: int

    def __repr__(self) -> str:
        return f"Case({[g.num_nodes() for g, _ in self.items]} nodes, {self.padded!r}, seed={self.seed})"


@st.composite
def cases(draw: st.DrawFn, *, cover: bool = False) -> Case:
    """1..4 graphs in which every node has an incoming edge; padding nodes have one only where `cover` says so.

    Features of padding are large, so that any leak shows.
    """
    seed = draw(st.integers(0, 2**31))
    gen = generator(seed)
    sizes = draw(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=4))
    items = [
        (ring_with_chords(gen, n, chords), torch.randn(2, generator=gen, dtype=torch.float64)) for n, chords in sizes
    ]
    if sum(n for n, _ in sizes) == 1:
        # BatchNorm in training refuses a single node.
        items.append((ring_with_chords(gen, 2, 0), torch.zeros(2, dtype=torch.float64)))
    nodes = sum(g.num_nodes() for g, _ in items) + draw(st.integers(0, 6))
    edges = sum(g.num_edges() for g, _ in items) + draw(st.integers(0, 9))
    limits = tp.Limits(nodes, edges, len(items) + draw(st.integers(0, 3)))
    fill = draw(st.sampled_from([0.0, 1e4]))
    pad = tp.PaddedCollate(limits, items[0], cover_padding=cover, feature_fill=fill, label_fill=fill)
    return Case(items, pad(items), dgl.batch([g for g, _ in items]), seed)


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


class Gin(nn.Module):
    """Two layers of graph isomorphism convolution with normalisation, and a readout."""

    def __init__(self) -> None:
        super().__init__()
        self.first = dgl.nn.GINConv(nn.Linear(FEATURES, HIDDEN), "sum", learn_eps=True)
        self.norm, self.last = MaskedBatchNorm1d(HIDDEN), MaskedBatchNorm1d(HIDDEN)
        self.second = dgl.nn.GINConv(nn.Linear(HIDDEN, HIDDEN), "mean")
        self.out = nn.Linear(HIDDEN, 2)

    def forward(self, graph: Any, x: Tensor, mask: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(graph, x), mask))
        with graph.local_scope():
            graph.ndata["h"] = self.last(self.second(graph, x), mask)
            return self.out(dgl.mean_nodes(graph, "h"))


LAYERS: dict[str, Callable[[bool], nn.Module]] = {
    "GraphConv": lambda allow: dgl.nn.GraphConv(FEATURES, HIDDEN, allow_zero_in_degree=allow),
    "GATConv": lambda allow: dgl.nn.GATConv(FEATURES, HIDDEN, 2, allow_zero_in_degree=allow),
    "GATv2Conv": lambda allow: dgl.nn.GATv2Conv(FEATURES, HIDDEN, 2, allow_zero_in_degree=allow),
    "GINConv max": lambda allow: dgl.nn.GINConv(nn.Linear(FEATURES, HIDDEN), "max"),
    "weighted sum": lambda allow: WeightedSum(),
}


class WeightedSum(nn.Module):
    """A layer that reads edge features."""

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        with graph.local_scope():
            graph.ndata["h"] = x
            graph.update_all(dgl.function.u_mul_e("h", "w", "m"), dgl.function.sum("m", "h"))
            return graph.ndata["h"]


def readouts(graph: Any, values: Tensor, seed: int) -> dict[str, Tensor]:
    """Every usual readout of node values, ``[G, ...]`` each."""
    pooling = {
        "attention": dgl.nn.GlobalAttentionPooling(seeded(lambda: nn.Linear(values.shape[-1], 1), seed)),
        "average": dgl.nn.AvgPooling(),
    }
    with graph.local_scope():
        graph.ndata["h"], graph.ndata["a"] = values, values.sum(1, keepdim=True)
        found = {op: dgl.readout_nodes(graph, "h", op=op) for op in ("sum", "mean", "max")}
        found["weighted"] = dgl.readout_nodes(graph, "h", "a")
        found["edges"] = dgl.mean_edges(graph, "w")
    return {**found, **{name: pool(graph, values) for name, pool in pooling.items()}}


@pytest.mark.parametrize("layer", LAYERS)
@given(case=cases())
@settings(max_examples=10)
def test_layers_and_readouts(layer: str, case: Case) -> None:
    assert_same_layer(layer, case, allow=True)


@given(case=cases(cover=True))
@settings(max_examples=10)
def test_covered_padding_needs_no_permission(case: Case) -> None:
    """Layers that refuse nodes without an incoming edge accept a covered batch as it is."""
    for layer in ("GraphConv", "GATConv"):
        assert_same_layer(layer, case, allow=False)


def assert_same_layer(layer: str, case: Case, allow: bool) -> None:
    """Node values and all readouts of real graphs agree."""
    model, batch = seeded(lambda: LAYERS[layer](allow), case.seed), case.padded
    with torch.no_grad():
        found = model(batch.graph, batch.node_features["x"])
        expected = model(case.plain, case.plain.ndata["x"])
        assert_close(found[batch.node_mask], expected)
        padded_readouts = readouts(batch.graph, found.flatten(1), case.seed)
        for name, value in readouts(case.plain, expected.flatten(1), case.seed).items():
            assert len(padded_readouts[name]) == len(batch.graph_mask), name
            assert_close(padded_readouts[name][batch.graph_mask], value)


@pytest.mark.parametrize("cover", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_an_empty_batch_trains_nothing(cover: bool, training: bool) -> None:
    """Its loss is 0 and so is each gradient: an optimiser step of a rank without graphs does no harm."""
    example = ring_with_chords(generator(0), 3, 2), torch.zeros(2, dtype=torch.float64)
    pad = tp.PaddedCollate(tp.Limits(6, 7, graphs=3), example, cover_padding=cover, feature_fill=5.0)
    model = seeded(Gin, 0)
    full = pad([example])
    model(full.graph, full.node_features["x"], full.node_mask)
    model.train(training)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = pad([])
    graph, labels = batch
    loss = masked_mean((model(graph, batch.node_features["x"], batch.node_mask) - labels).abs(), batch.graph_mask)
    assert loss.item() == 0.0
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.equal(parameter.grad, torch.zeros_like(parameter)), name
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
