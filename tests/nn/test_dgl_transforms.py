"""What docs/reference/padded-layers.md says of the norms and transforms of DGL that padding can change."""

from __future__ import annotations

from typing import Any

import dgl
import dgl.nn
import dgl.transforms
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError
from tests.support.messages import refused
from tests.support.tensors import generator


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


def test_edge_weight_norm_needs_positive_weights_of_padding() -> None:
    layers = {norm: dgl.nn.EdgeWeightNorm(norm) for norm in ("both", "left", "right")}
    zeros = padded()
    with pytest.raises(dgl.DGLError, match="Non-positive edge weight"):
        layers["both"](zeros.graph, zeros.graph.edata["w"])
    for norm in ("left", "right"):
        assert layers[norm](zeros.graph, zeros.graph.edata["w"])[~zeros.edge_mask].isnan().all()
    for size in (ROOMY, TIGHT):
        filled = padded(size, feature_fill={"w": 1.0, "x": 0.0})
        for layer in layers.values():
            found = layer(filled.graph, filled.graph.edata["w"])
            assert found.isfinite().all()
            torch.testing.assert_close(found[filled.edge_mask], layer(plain(), plain().edata["w"]))


def test_transforms_that_add_or_remove_edges_belong_before_sizes_are_read() -> None:
    """The number of edges follows the content, and the masks fit no more."""
    for name in ("AddSelfLoop", "ToSimple", "LineGraph"):
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
