"""The ways to train that `benchmark.py training` compares: loaders, layers and compilers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

import dgl_tuplepack as tp
from benchmarks.loading import as_pyg
from benchmarks.networks import Network, OnDGL, OnPyG, losses_of

LIMITS, PACKS = tp.Limits(nodes=222, edges=502), 8
# Steps before a measurement; the first one compiles. A model with the two lines compares its results again several
# times until its 64th step, and then in the 256th and 1024th.
_WARM_UP, _WARM_UP_OF_TWO_LINES = 3, 65
STAGES = ("loader", "forward", "backward", "optimiser")

# The batches of a way to train, and its function from a batch to the loss.
Batches = Iterator[Any]
Loss = Callable[[Any], Tensor]
Compile = Callable[[Loss], Loss]


@dataclass(frozen=True)
class Data:
    """The training graphs in the format of each loader, and the number of graphs per batch."""

    store: Any
    items: list[Any]
    size: int

    @classmethod
    def of(cls, train: Any) -> Data:
        """Read the graphs of a store; `size` is the mean number of graphs in a batch of packs."""
        sampler = tp.PackBatchSampler(train, LIMITS, packs_per_batch=PACKS)
        return cls(train, list(train), round(len(train) / len(sampler)))


@dataclass(frozen=True)
class Way:
    """One way to train.

    Attributes
    ----------
    layers
        Framework of the layers: "dgl" or "pyg".
    batches
        "plain": from the framework's own loader; "packed": padded batches of ours; "exact": ordinary batches of ours,
        for a model that pads inside.
    tensors
        Whether the step runs on the tensors of a batch, with DGL's layers on a `TensorGraph`.
    compiler
        "": eager; "torch": `torch.compile`; "ours": `tp.compile`.
    """

    layers: str
    batches: str = "plain"
    tensors: bool = False
    compiler: str = ""


WAYS = {
    "DGL": Way("dgl"),
    "packs, DGL's layers": Way("dgl", "packed"),
    "packs, DGL's layers on TensorGraph": Way("dgl", "packed", tensors=True),
    "packs, DGL's layers on TensorGraph, tp.compile": Way("dgl", "packed", tensors=True, compiler="ours"),
    "PyG": Way("pyg"),
    "PyG, torch.compile(dynamic=True)": Way("pyg", compiler="torch"),
    "PyG, tp.compile(dynamic=True)": Way("pyg", compiler="ours"),
    "packs, PyG's layers": Way("pyg", "packed"),
    "packs, PyG's layers, tp.compile": Way("pyg", "packed", tensors=True, compiler="ours"),
    "two lines, DGL's layers": Way("dgl", "exact", compiler="ours"),
    "two lines, PyG's layers": Way("pyg", "exact", compiler="ours"),
}


def available_ways() -> list[str]:
    """Return the names of the ways to train whose framework is installed."""
    with_pyg = find_spec("torch_geometric") is not None
    return [name for name, way in WAYS.items() if with_pyg or way.layers == "dgl"]


class Training:
    """A network in training, one step at a time; `seconds` accumulates the time of each stage."""

    def __init__(self, data: Data, way: Way, layers: int, width: int, convolution: str = "GINE") -> None:
        torch.manual_seed(0)
        self.model = Network(layers, width, way.layers, convolution)
        compiled = _compilers()[way.compiler](way.batches == "plain")
        if way.batches == "exact":
            self.batches, self.loss = _two_lines(data, way, self.model)
        elif way.batches != "plain":
            tp.nn.convert(self.model, verbose=False)
            self.batches, self.loss = _packed(data, way, self.model, compiled)
        else:
            self.batches, self.loss = (_plain_dgl if way.layers == "dgl" else _plain_pyg)(data, self.model, compiled)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        self.warm_up = _WARM_UP_OF_TWO_LINES if way.batches == "exact" else _WARM_UP
        self.seconds = dict.fromkeys(STAGES, 0.0)

    def step(self) -> int:
        """Train one step; return its number of graphs."""
        times = [time.perf_counter()]
        batch = next(self.batches)
        times.append(time.perf_counter())
        loss = self.loss(batch)
        times.append(time.perf_counter())
        self.optimiser.zero_grad()
        loss.backward()
        times.append(time.perf_counter())
        self.optimiser.step()
        times.append(time.perf_counter())
        for stage, begin, end in zip(STAGES, times[:-1], times[1:], strict=True):
            self.seconds[stage] += end - begin
        return _graphs_in(batch)


def _compilers() -> dict[str, Callable[[bool], Compile]]:
    """Return what compiles a loss, for each compiler, given whether the shapes of batches differ."""
    return {
        "": lambda dynamic: lambda loss: loss,
        "torch": lambda dynamic: lambda loss: torch.compile(loss, dynamic=dynamic),
        "ours": lambda dynamic: lambda loss: tp.compile(loss, dynamic=dynamic, fullgraph=not dynamic),
    }


def _plain_dgl(data: Data, model: nn.Module, compiled: Compile) -> tuple[Batches, Loss]:
    from dgl.dataloading import GraphDataLoader

    def loss(batch: Any) -> Tensor:
        graph, labels = batch
        return losses_of(model(OnDGL(graph), graph.ndata["feat"], graph.edata["feat"]), labels).mean()

    return for_ever(GraphDataLoader(data.items, batch_size=data.size, shuffle=True)), compiled(loss)


def _plain_pyg(data: Data, model: nn.Module, compiled: Compile) -> tuple[Batches, Loss]:
    from torch_geometric.loader import DataLoader

    graphs = [as_pyg(*item) for item in data.items]

    def loss(batch: Any) -> Tensor:
        structure = OnPyG(batch.edge_index, batch.batch, batch.num_graphs)
        return losses_of(model(structure, batch.x, batch.edge_attr), batch.y).mean()

    return for_ever(DataLoader(graphs, batch_size=data.size, shuffle=True)), compiled(loss)


class _OnBatches(nn.Module):
    """The network on ordinary batches, as a user's model."""

    def __init__(self, network: nn.Module, layers: str) -> None:
        super().__init__()
        self.network, self.layers = network, layers

    def forward(self, batch: Any) -> Tensor:
        """Return one output per graph."""
        if self.layers == "pyg":
            structure: OnDGL | OnPyG = OnPyG(batch.edge_index, batch.batch, batch.num_graphs)
            result: Tensor = self.network(structure, batch.x, batch.edge_attr)
        else:
            result = self.network(OnDGL(batch), batch.ndata["feat"], batch.edata["feat"])
        return result


def _two_lines(data: Data, way: Way, model: nn.Module) -> tuple[Batches, Loss]:
    """Return our loader of ordinary batches, and the loss of a script, which calls the model that pads inside."""
    graphs = data.store if way.layers == "dgl" else [as_pyg(*item) for item in data.items]
    loader = tp.packed_loader(graphs, batch_size=data.size)
    model = tp.compile(_OnBatches(model, way.layers), loader)

    def loss(batch: Any) -> Tensor:
        graph, labels = batch if way.layers == "dgl" else (batch, batch.y)
        return losses_of(model(graph), labels).mean()

    return for_ever(loader), loss


def _packed(data: Data, way: Way, model: nn.Module, compiled: Compile) -> tuple[Batches, Loss]:
    """Return our batches and the loss of a batch, or of its tensors."""
    sampler = tp.PackBatchSampler(data.store, LIMITS, packs_per_batch=PACKS)
    step, count = compiled(loss_of(way.layers, model)), sampler.count_tensor
    loss = (lambda batch: step(batch.tensors, count)) if way.tensors else lambda batch: step(batch, count)
    return packed_batches(data.store, sampler), loss


def packed_batches(store: Any, sampler: tp.PackBatchSampler) -> Batches:
    """Yield padded batches of a store, epoch after epoch."""
    from dgl.dataloading import GraphDataLoader

    view = store.padded(sampler.limits, sampler.packs_per_batch)
    return for_ever(GraphDataLoader(view, sampler=sampler, batch_size=None), sampler.set_epoch)


def loss_of(layers: str, model: nn.Module) -> Callable[[Any, Tensor], Tensor]:
    """Return a function that computes the loss of a batch or of its tensors, divided by a count of graphs."""

    def loss(t: Any, count: Tensor) -> Tensor:
        if layers == "dgl":
            structure: OnDGL | OnPyG = OnDGL(t.graph)
        else:
            structure = OnPyG(torch.stack([t.src, t.dst]), t.node_graph_slots, t.graph_mask.shape[0])
        with tp.nn.masked(t):
            out = model(structure, t.node_features["feat"], t.edge_features["feat"])
        return tp.nn.masked_mean(losses_of(out, t.labels), t.graph_mask, count=count)

    return loss


def for_ever(loader: Iterable[Any], set_epoch: Callable[[int], None] | None = None) -> Batches:
    """Yield the batches of all epochs without end; call `set_epoch` with the number of each epoch."""
    for number in itertools.count():
        if set_epoch is not None:
            set_epoch(number)
        yield from loader


def _graphs_in(batch: Any) -> int:
    if isinstance(batch, tp.PaddedBatch):
        return batch.num_real_graphs
    return batch[0].batch_size if isinstance(batch, list | tuple) else int(batch.num_graphs)
