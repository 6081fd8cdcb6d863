"""Train one run of the study."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dgl
import torch
from benchmarks.networks import Network, OnDGL, losses_of
from dgl.dataloading import GraphDataLoader
from torch import Tensor, nn

import dgl_tuplepack as tp
from study.runs import Arm, Run

LIMITS = tp.Limits(nodes=222, edges=502)
LAYERS, WIDTH, LEARNING_RATE = 2, 64, 1e-3
_BATCH_IN_EVALUATION = 512


@dataclass(frozen=True)
class Data:
    """The splits of ogbg-molhiv."""

    train: Any
    items: list[Any]
    evaluation: dict[str, list[Any]]

    @classmethod
    def of(cls, store: Any) -> Data:
        """Read the splits of a store; the training graphs as a store and as a list."""
        splits = {name: store.subset(ids) for name, ids in store.splits.items()}
        return cls(splits["train"], list(splits["train"]), {name: list(splits[name]) for name in ("valid", "test")})


def train(data: Data, arm: Arm, seed: int, epochs: int) -> Iterator[tuple[int, Run | None]]:
    """Train; after each epoch yield its number, and with the last epoch the run."""
    torch.manual_seed(seed)
    model = tp.nn.convert(Network(LAYERS, WIDTH, "dgl"), verbose=False)
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    batches = _Plain(data, arm, seed) if arm.batches == "plain" else _Padded(data, arm, seed)
    losses, scores = [], []
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for batch in batches.epoch(epoch):
            loss, summed = batches.loss(model, batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += summed.item()
        losses.append(total / len(data.items))
        scores.append({name: _roc_auc(model, items) for name, items in data.evaluation.items()})
        if epoch + 1 < epochs:
            yield epoch, None
    best = max(range(epochs), key=lambda epoch: scores[epoch]["valid"])
    graphs = len(data.items) / batches.steps
    results = (scores[best]["valid"], scores[best]["test"], scores[-1]["test"])
    valids = tuple(score["valid"] for score in scores)
    yield epochs - 1, Run(arm, seed, epochs, graphs, batches.steps, best, *results, tuple(losses), valids)


class _Padded:
    """Padded packs or exact batches.

    The loss of packs is divided by the mean number of graphs per batch, or by the batch's own number. The loss of exact
    batches is a plain mean.
    """

    def __init__(self, data: Data, arm: Arm, seed: int) -> None:
        packs = tp.PackBatchSampler(
            data.train, LIMITS, packs_per_batch=arm.packs, content=arm.content or None, seed=seed
        )
        self.sampler: Any = packs
        self.view = data.train.padded(packs.limits, arm.packs)
        self.biased = arm.loss == "biased"
        if arm.batches == "exact":
            self.sampler = tp.StaticBatchSampler(data.train, round(len(data.items) / len(packs)), seed=seed)
            self.view, self.biased = data.train.padded(self.sampler.limits), True

    @property
    def steps(self) -> int:
        return len(self.sampler)

    def epoch(self, number: int) -> Any:
        self.sampler.set_epoch(number)
        return GraphDataLoader(self.view, sampler=self.sampler, batch_size=None)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        with tp.nn.masked(batch):
            out = model(OnDGL(batch.graph), batch.node_features["feat"], batch.edge_features["feat"])
        losses = losses_of(out, batch.labels)
        count = None if self.biased else self.sampler.graphs_per_batch
        summed = losses.detach()[batch.graph_mask].sum()
        return tp.nn.masked_mean(losses, batch.graph_mask, count=count), summed


class _Plain:
    """Shuffled batches of equally many graphs; the last batch of an epoch is smaller, as in other loaders."""

    def __init__(self, data: Data, arm: Arm, seed: int) -> None:
        steps = len(tp.PackBatchSampler(data.train, LIMITS, packs_per_batch=arm.packs))
        self.items, self.size = data.items, round(len(data.items) / steps)
        self.generator = torch.Generator().manual_seed(seed)

    @property
    def steps(self) -> int:
        return -(-len(self.items) // self.size)

    def epoch(self, number: int) -> Any:
        del number
        return GraphDataLoader(self.items, batch_size=self.size, shuffle=True, generator=self.generator)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        graph, labels = batch
        with tp.nn.masked(None):
            losses = losses_of(model(OnDGL(graph), graph.ndata["feat"], graph.edata["feat"]), labels)
        return losses.mean(), losses.detach().sum()


def _roc_auc(model: nn.Module, items: list[Any]) -> float:
    from ogb.graphproppred import Evaluator

    model.eval()
    found, true = [], []
    with torch.no_grad(), tp.nn.masked(None):
        for first in range(0, len(items), _BATCH_IN_EVALUATION):
            graphs, labels = zip(*items[first : first + _BATCH_IN_EVALUATION], strict=True)
            graph = dgl.batch(graphs)
            found.append(model(OnDGL(graph), graph.ndata["feat"], graph.edata["feat"]))
            true.append(torch.stack(labels))
    score = Evaluator("ogbg-molhiv").eval({"y_true": torch.cat(true), "y_pred": torch.cat(found)})
    return float(score["rocauc"])
