"""Loaders of DGL, PyG and torch with only `batch_sampler=` changed train on batches of exactly B graphs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import pytorch_lightning as lightning
import torch
import torch_geometric
from dgl.dataloading import GraphDataLoader
from torch import nn
from torch_geometric.loader import DataLoader as PygLoader
from torchdata.stateful_dataloader import StatefulDataLoader

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


def as_pyg(graph: dgl.DGLGraph, label: torch.Tensor) -> torch_geometric.data.Data:
    return torch_geometric.data.Data(x=graph.ndata["x"], edge_index=torch.stack(graph.edges()), y=label)


class Dgl(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.readout = dgl.nn.GraphConv(3, 8), nn.Linear(8, 1)

    def forward(self, graph: dgl.DGLGraph) -> torch.Tensor:
        with graph.local_scope():
            graph.ndata["h"] = torch.relu(self.layer(graph, graph.ndata["x"].float()))
            return self.readout(dgl.sum_nodes(graph, "h"))


class Pyg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.readout = torch_geometric.nn.GCNConv(3, 8), nn.Linear(8, 1)

    def forward(self, data: Any) -> torch.Tensor:
        h = torch.relu(self.layer(data.x.float(), data.edge_index))
        return self.readout(torch_geometric.nn.global_add_pool(h, data.batch))


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


def test_a_plain_pyg_script_trains() -> None:
    data: Any = [as_pyg(*item) for item in dataset()]
    model = Pyg()
    trained(
        PygLoader(data, batch_sampler=tp.StaticBatchSampler(data, SIZE)),
        model,
        lambda batch: nn.functional.mse_loss(model(batch), batch.y[:, None]),
        lambda batch: (batch.num_nodes, batch.num_edges, batch.num_graphs),
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


@pytest.mark.processes
@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata_resumes_in_mid_epoch(workers: int) -> None:
    def made() -> Any:
        sampler = tp.StaticBatchSampler(dataset(), SIZE, seed=4)
        sampler.set_epoch(1)
        return StatefulDataLoader(range(GRAPHS), batch_sampler=sampler, collate_fn=list, num_workers=workers)  # type: ignore[arg-type]

    whole = list(made().batch_sampler)
    for batches in (0, 5, len(whole)):
        first = made()
        iterator = iter(first)
        assert [next(iterator) for _ in range(batches)] == whole[:batches]
        second = made()
        second.load_state_dict(copy.deepcopy(first.state_dict()))
        assert list(second) == whole[batches:]


@pytest.mark.processes
def test_lightning_sets_the_epoch(tmp_path: Path) -> None:
    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.seen = Dgl(), list[list[list[int]]]()

        def on_train_epoch_start(self) -> None:
            self.seen.append([])

        def training_step(self, batch: Any, _: int) -> Any:
            graph, labels, ids = batch
            self.seen[-1].append(ids.tolist())
            return nn.functional.mse_loss(self.model(graph), labels)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 1e-3)

    def collate(items: list[Any]) -> Any:
        graphs, labels, ids = zip(*items, strict=True)
        return dgl.batch(graphs), torch.stack(labels), torch.tensor(ids)

    sampler = tp.StaticBatchSampler(dataset(), SIZE, seed=9)
    data: Any = [(*item, i) for i, item in enumerate(dataset())]
    loader: Any = torch.utils.data.DataLoader(data, batch_sampler=sampler, collate_fn=collate)  # type: ignore[arg-type]
    trainer = lightning.Trainer(
        default_root_dir=tmp_path, max_epochs=3, logger=False, accelerator="cpu", enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    model = Model()
    trainer.fit(model, loader)
    other = tp.StaticBatchSampler(dataset(), SIZE, seed=9)
    for epoch, seen in enumerate(model.seen):
        other.set_epoch(epoch)
        assert seen == list(other)
    assert len(model.seen) == 3
    assert np.ndim(model.seen[0][0]) == 1
