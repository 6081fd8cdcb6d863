"""Loaders of DGL, PyG and torch with only `batch_sampler=` changed train on batches of exactly B graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import pytest
import torch
from dgl.dataloading import GraphDataLoader
from torch import nn

import dgl_tuplepack as tp
from tests.support.graphs import generator, ring_with_chords

pytestmark = [
    # torchdata 0.11 calls what torch 2.13 deprecates.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore::pytorch_lightning.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),
]

GRAPHS, SIZE = 90, 8


def dataset() -> list[tuple[dgl.DGLGraph, torch.Tensor]]:
    """Rings of 4 to 15 nodes, labelled by their number of nodes."""
    gen = generator(0)
    nodes = [4 + 7 * i % 12 for i in range(GRAPHS)]
    return [(ring_with_chords(gen, n, n % 3), torch.tensor([n / 16])) for n in nodes]


class Dgl(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.readout = dgl.nn.GraphConv(3, 8), nn.Linear(8, 1)

    def forward(self, graph: dgl.DGLGraph) -> torch.Tensor:
        with graph.local_scope():
            graph.ndata["h"] = torch.relu(self.layer(graph, graph.ndata["x"].float()))
            return self.readout(dgl.sum_nodes(graph, "h"))


def trained(loader: Any, model: nn.Module, loss_of: Any, counts_of: Any) -> None:
    """Train as a plain script does; check that each batch is exact and within the shape, and that the loss falls."""
    limits = loader.batch_sampler.limits
    optimiser, losses = torch.optim.Adam(model.parameters(), 0.01), []
    for epoch in range(12):
        loader.batch_sampler.set_epoch(epoch)
        total = 0.0
        for step, batch in enumerate(loader):
            nodes, edges, graphs = counts_of(batch)
            assert graphs == (SIZE if step < GRAPHS // SIZE else GRAPHS % SIZE)
            assert nodes <= limits.nodes
            assert edges <= limits.edges
            loss = loss_of(batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item()
        losses.append(total)
    assert losses[-1] < losses[0] / 5


def test_a_plain_dgl_script_trains() -> None:
    data, model = dataset(), Dgl()
    trained(
        GraphDataLoader(data, batch_sampler=tp.StaticBatchSampler(data, SIZE)),
        model,
        lambda batch: nn.functional.mse_loss(model(batch[0]), batch[1]),
        lambda batch: (batch[0].num_nodes(), batch[0].num_edges(), batch[0].batch_size),
    )


@pytest.mark.parametrize("from_store", [False, True])
def test_padded_batches_have_one_shape(tmp_path: Path, from_store: bool) -> None:
    data: Any = tp.with_ids(dataset())
    sampler = tp.StaticBatchSampler(data, SIZE)
    if from_store:
        view = tp.GraphStore.write(tmp_path / "store", dataset()).padded(sampler.limits)
        loader: Any = GraphDataLoader(view, sampler=sampler, batch_size=None)
    else:
        collate = tp.PaddedCollate(sampler.limits, example=data[0])
        loader = GraphDataLoader(data, batch_sampler=sampler, collate_fn=collate)
    shapes, seen = set(), []
    for batch, ids in zip(loader, list(tp.StaticBatchSampler(data, SIZE)), strict=True):
        shapes.add((len(batch.node_mask), len(batch.edge_mask), len(batch.graph_mask)))
        assert batch.graph_ids[batch.graph_mask].tolist() == ids
        seen += ids
    assert len(shapes) == 1
    assert sorted(seen) == list(range(GRAPHS))
