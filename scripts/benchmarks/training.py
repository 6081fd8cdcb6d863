"""Whole training steps: loader, forward, backward and optimiser, of one network in several ways, side by side."""

from __future__ import annotations

import gc
import json
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor, nn

import dgl_tuplepack as tp
from benchmarks.loading import Blocks, SourceOption
from benchmarks.networks import Network, OnDGL, OnPyG, losses_of
from benchmarks.tables import show
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, GraphBlock
from dgl_tuplepack.graphs.build import build_graph

app = typer.Typer()

LIMITS, PACKS = tp.Limits(nodes=222, edges=502), 8
STAGES = ("loader", "forward", "backward", "optimiser")


@app.command()
def training(
    source: SourceOption = None,
    network: Annotated[list[str] | None, typer.Option(help="LAYERSxWIDTH; may be repeated.")] = None,
    threads: Annotated[list[int] | None, typer.Option(min=1, help="Threads of torch; may be repeated.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each through all ways; medians count.")] = 7,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each way in a round.")] = 12,
    graphs: Annotated[int | None, typer.Option(min=512, help="Take so many training graphs; without it, all.")] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all results here.")] = None,
) -> None:
    """Graphs a second of whole training steps (GINE with OGB's encoders, Adam), and the parts of a step.

    All ways have the same mean number of graphs a batch. Ratios are medians over interleaved rounds, to DGL's loader
    and layers and to PyG's, where it is installed.
    """
    names = network or ["2x32", "5x64", "5x300"]
    if wrong := [name for name in names if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", name)]:
        raise typer.BadParameter(f"{wrong[0]!r} is not LAYERSxWIDTH, such as 5x64.", param_hint="--network")
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        store = tp.GraphStore.write(folder, source or _Molecules(32_901), compact=True)
        train = store.subset(store.splits["train"][:graphs])
        data = Data.of(train)
        for number in threads or [1, 2]:
            torch.set_num_threads(number)
            for name in names:
                layers, width = map(int, name.split("x"))
                rows = _compare(data, layers, width, rounds, steps)
                show(f"{name}, {number} threads, {data.size} graphs a batch", rows)
                results += [{"network": name, "threads": number, **row} for row in rows]
    if json_path is not None:
        json_path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


class _Molecules(Blocks):
    """Random graphs of molhiv's sizes, with features that OGB's encoders take."""

    def blocks(self) -> Iterator[GraphBlock]:
        from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

        for block in super().blocks():
            block.node_features[NODE_TYPE]["feat"] %= np.array(get_atom_feature_dims())
            block.edge_features[EDGE_TYPE]["feat"] %= np.array(get_bond_feature_dims())
            yield block


@dataclass(frozen=True)
class Data:
    """The training graphs as each loader wants them, and the number of graphs a batch."""

    store: Any
    items: list[Any]
    size: int

    @classmethod
    def of(cls, train: Any) -> Data:
        """Graphs of a store, of which packs hold so many on average."""
        sampler = tp.PackBatchSampler(train, LIMITS, packs_per_batch=PACKS)
        return cls(train, list(train), round(len(train) / len(sampler)))


# Ways ---------------------------------------------------------------------------------------------------------------

# A batch as the loop of one way gets it, and the loss that it makes of it.
Batches = Iterator[Any]
Loss = Callable[[nn.Module, Any], Tensor]


def _plain_dgl(data: Data) -> tuple[Batches, Loss]:
    from dgl.dataloading import GraphDataLoader

    def loss(model: nn.Module, batch: Any) -> Tensor:
        graph, labels = batch
        return losses_of(model(OnDGL(graph), graph.ndata["feat"], graph.edata["feat"]), labels).mean()

    return _for_ever(lambda _: GraphDataLoader(data.items, batch_size=data.size, shuffle=True)), loss


def _plain_pyg(data: Data) -> tuple[Batches, Loss]:
    from torch_geometric.data import Data as Graph
    from torch_geometric.loader import DataLoader

    graphs = [
        Graph(g.ndata["feat"], torch.stack(g.edges()), g.edata["feat"], label.view(1, -1)) for g, label in data.items
    ]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        structure = OnPyG(batch.edge_index, batch.batch, batch.num_graphs)
        return losses_of(model(structure, batch.x, batch.edge_attr), batch.y).mean()

    return _for_ever(lambda _: DataLoader(graphs, batch_size=data.size, shuffle=True)), loss


def _packed(data: Data, framework: str, real_part: bool) -> tuple[Batches, Loss]:
    """Our batches, padded, or cut to their real part."""
    from dgl.dataloading import GraphDataLoader

    sampler = tp.PackBatchSampler(data.store, LIMITS, packs_per_batch=PACKS)
    view = data.store.padded(sampler.limits, PACKS)
    count = sampler.graphs_per_batch

    def structure_of(batch: tp.PaddedBatch, nodes: int, edges: int, graphs: int) -> OnDGL | OnPyG:
        if framework == "pyg":
            return OnPyG(torch.stack([batch.src[:edges], batch.dst[:edges]]), batch.node_graph_slots[:nodes], graphs)
        if not real_part:
            return OnDGL(batch.graph)
        ends = {EDGE_TYPE: (batch.src[:edges], batch.dst[:edges])}
        graph = build_graph(ends, {NODE_TYPE: nodes}, {NODE_TYPE: {}}, {EDGE_TYPE: {}})
        graph.set_batch_num_nodes(batch.nodes_per_graph[:graphs])
        graph.set_batch_num_edges(batch.edges_per_graph[:graphs])
        return OnDGL(graph)

    def loss(model: nn.Module, batch: tp.PaddedBatch) -> Tensor:
        nodes, edges, graphs = len(batch.node_mask), len(batch.edge_mask), len(batch.graph_mask)
        if real_part:
            nodes, edges, graphs = batch.num_real_nodes, batch.num_real_edges, batch.num_real_graphs
        structure = structure_of(batch, nodes, edges, graphs)
        with tp.nn.masked(None if real_part else batch):
            out = model(structure, batch.node_features["feat"][:nodes], batch.edge_features["feat"][:edges])
        return tp.nn.masked_mean(losses_of(out, batch.labels[:graphs]), batch.graph_mask[:graphs], count=count)

    def epoch(number: int) -> Any:
        sampler.set_epoch(number)
        return GraphDataLoader(view, sampler=sampler, batch_size=None)

    return _for_ever(epoch), loss


def _for_ever(epoch: Callable[[int], Any]) -> Batches:
    for number in range(10**9):
        yield from epoch(number)


class Training:
    """A network in training, one step at a time; seconds of each stage add up."""

    def __init__(self, data: Data, way: str, layers: int, width: int) -> None:
        torch.manual_seed(0)
        framework = "pyg" if "PyG" in way else "dgl"
        self.model: nn.Module = Network(layers, width, framework)
        if way == "DGL":
            self.batches, self.loss = _plain_dgl(data)
        elif way == "PyG":
            self.batches, self.loss = _plain_pyg(data)
        else:
            self.batches, self.loss = _packed(data, framework, "real part" in way)
            tp.nn.convert(self.model, verbose=False)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.seconds = dict.fromkeys(STAGES, 0.0)

    def step(self) -> int:
        """One step; the number of graphs in it."""
        times = [time.perf_counter()]
        batch = next(self.batches)
        times.append(time.perf_counter())
        loss = self.loss(self.model, batch)
        times.append(time.perf_counter())
        self.optimiser.zero_grad()
        loss.backward()
        times.append(time.perf_counter())
        self.optimiser.step()
        times.append(time.perf_counter())
        for stage, begin, end in zip(STAGES, times[:-1], times[1:], strict=True):
            self.seconds[stage] += end - begin
        return _graphs_in(batch)


def _graphs_in(batch: Any) -> int:
    if isinstance(batch, tp.PaddedBatch):
        return batch.num_real_graphs
    return batch[0].batch_size if isinstance(batch, list | tuple) else int(batch.num_graphs)


def _ways() -> list[str]:
    ways = ["DGL", "packs, DGL's layers", "packs, DGL's layers, real part"]
    if find_spec("torch_geometric") is not None:
        ways += ["PyG", "packs, PyG's layers", "packs, PyG's layers, real part"]
    return ways


def _compare(data: Data, layers: int, width: int, rounds: int, steps: int) -> list[dict[str, Any]]:
    """Interleaved rounds of all ways."""
    trainings = {way: Training(data, way, layers, width) for way in _ways()}
    for training in trainings.values():
        for _ in range(3):
            training.step()
        training.seconds = dict.fromkeys(STAGES, 0.0)
    rates: dict[str, list[float]] = {way: [] for way in trainings}
    gc.collect()
    for _ in range(rounds):
        for way, training in trainings.items():
            begin = time.perf_counter()
            number = sum(training.step() for _ in range(steps))
            rates[way].append(number / (time.perf_counter() - begin))

    def ratio(way: str, to: str) -> float:
        if to not in rates:
            return float("nan")
        return statistics.median(own / other for own, other in zip(rates[way], rates[to], strict=True))

    return [
        {
            "way": way,
            "graphs/s": statistics.median(rates[way]),
            "times DGL": f"{ratio(way, 'DGL'):.2f}",
            "times PyG": f"{ratio(way, 'PyG'):.2f}",
            **{f"{stage}_ms": f"{1000 * spent / (rounds * steps):.2f}" for stage, spent in training.seconds.items()},
        }
        for way, training in trainings.items()
    ]
