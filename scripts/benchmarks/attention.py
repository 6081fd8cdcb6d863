"""Measure training steps of a small GraphGPS: PyG's dense attention, and ours, uncompiled and by two lines."""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import dgl_tuplepack as tp
from benchmarks.loading import SourceOption, as_pyg
from benchmarks.networks import losses_of
from benchmarks.tables import JsonOption, show, write_json
from benchmarks.training import Molecules
from benchmarks.ways import for_ever

app = typer.Typer()

WIDTH, HEADS = 64, 4
# Steps before the measurement: the first ones compile, and calls 4, 16 and 64 compare results.
_WARM_UP = 70


@app.command()
def attention(
    source: SourceOption = None,
    layers: Annotated[list[int] | None, typer.Option(min=1, help="Layers; may be repeated.")] = None,
    batch_size: Annotated[list[int] | None, typer.Option(min=2, help="Graphs a batch; may be repeated.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with all ways.")] = 9,
    steps: Annotated[int, typer.Option(min=1, help="Steps per way and round.")] = 15,
    graphs: Annotated[int, typer.Option(min=512, help="Number of training graphs.")] = 8192,
    json_path: JsonOption = None,
) -> None:
    """Measure milliseconds of whole training steps of a GIN with attention: loader, forward, backward and Adam.

    They are CPU time of one thread, because the machine may be busy. Rounds are interleaved. Each ratio to PyG compares
    the medians, or the means, of all steps.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        store = tp.GraphStore.write(folder, source or Molecules(graphs))
        data = [as_pyg(*item) for item in store.subset(store.splits["train"][:graphs])]
    results: list[dict[str, Any]] = []
    for number in layers or [3, 5]:
        for size in batch_size or [32, 64]:
            trainings = {name: _Training(data, size, number, *way) for name, way in WAYS.items()}
            for training in trainings.values():
                training.seconds_of(_WARM_UP)
            seconds: dict[str, list[float]] = {name: [] for name in WAYS}
            gc.collect()
            for _ in range(rounds):
                for name, training in trainings.items():
                    seconds[name] += training.seconds_of(steps)
            rows = _rows(seconds)
            show(f"{number} layers, {WIDTH} wide, {HEADS} heads, {size} graphs a batch", rows)
            results += [{"layers": number, "graphs a batch": size, **row} for row in rows]
            torch.compiler.reset()
    write_json(json_path, results)


def _rows(seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Return medians and means of each way, and their ratios to the first way."""
    first = seconds[next(iter(seconds))]
    return [
        {
            "way": name,
            "median ms": 1000 * statistics.median(taken),
            "mean ms": 1000 * statistics.fmean(taken),
            "times PyG, medians": f"{statistics.median(first) / statistics.median(taken):.2f}",
            "times PyG, means": f"{statistics.fmean(first) / statistics.fmean(taken):.2f}",
        }
        for name, taken in seconds.items()
    ]


# Attention


def _of_pyg(q: Tensor, k: Tensor, v: Tensor, data: Any) -> Tensor:
    """Attend in a dense tensor with as many slots as the largest graph of the batch has nodes."""
    from torch_geometric.utils import to_dense_batch

    dense, mask = to_dense_batch(torch.stack([q, k, v], dim=1), data.batch, batch_size=data.num_graphs)
    found = scaled_dot_product_attention(*dense.permute(2, 0, 3, 1, 4), mask[:, None, None])
    return found.transpose(1, 2)[mask]


# Whether the way uses our two lines, and its attention.
WAYS: dict[str, tuple[bool, Callable[..., Tensor]]] = {
    "PyG, to_dense_batch": (False, _of_pyg),
    "PyG, tp.nn.attention": (False, tp.nn.attention),
    "two lines, tp.nn.attention": (True, tp.nn.attention),
    "two lines, values instead of attention": (True, lambda q, k, v, data: v + 0 * (q + k)),
}


class _Layer(nn.Module):
    """A convolution and attention in parallel, then a small network."""

    def __init__(self, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        from torch_geometric.nn import GINEConv

        def network(width: int) -> nn.Module:
            return nn.Sequential(nn.Linear(WIDTH, width), nn.ReLU(), nn.Linear(width, WIDTH))

        self.conv, self.mlp, self.attend = GINEConv(network(WIDTH)), network(2 * WIDTH), attend
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in range(3))

    def forward(self, x: Tensor, edges: Tensor, data: Any) -> Tensor:
        """Return the new rows of the nodes."""
        q, k, v = self.qkv(x).view(len(x), 3, HEADS, -1).unbind(1)
        attended = self.norms[0](x + self.out(self.attend(q, k, v, data).flatten(1)))
        x = self.norms[1](x + self.conv(x, data.edge_index, edges)) + attended
        result: Tensor = self.norms[2](x + self.mlp(x))
        return result


class GraphGPS(nn.Module):
    """OGB's encoders, layers, and a mean over nodes."""

    def __init__(self, layers: int, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        from ogb.graphproppred.mol_encoder import AtomEncoder, BondEncoder

        self.nodes, self.edges, self.head = AtomEncoder(WIDTH), BondEncoder(WIDTH), nn.Linear(WIDTH, 1)
        self.layers = nn.ModuleList(_Layer(attend) for _ in range(layers))

    def forward(self, data: Any) -> Tensor:
        """Return one output for each graph."""
        from torch_geometric.nn import global_mean_pool

        x, edges = self.nodes(data.x), self.edges(data.edge_attr)
        for layer in self.layers:
            x = layer(x, edges, data)
        result: Tensor = self.head(global_mean_pool(x, data.batch, data.num_graphs))
        return result


class _Training:
    """A model in training."""

    def __init__(
        self, data: list[Any], batch_size: int, layers: int, two_lines: bool, attend: Callable[..., Tensor]
    ) -> None:
        from torch_geometric.loader import DataLoader

        torch.manual_seed(0)
        self.model: nn.Module = GraphGPS(layers, attend)
        # The rest of an epoch has fewer graphs.
        loader: Any = DataLoader(data, batch_size=batch_size, shuffle=True, drop_last=True)
        if two_lines:
            loader = tp.packed_loader(data, batch_size=batch_size, drop_last=True)
            self.model = tp.compile(self.model, loader)
        self.batches: Iterator[Any] = for_ever(loader)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)

    def seconds_of(self, steps: int) -> list[float]:
        """Train; return the seconds of each step."""
        taken = []
        for _ in range(steps):
            begin = time.process_time()
            batch = next(self.batches)
            loss = losses_of(self.model(batch), batch.y).mean()
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            taken.append(time.process_time() - begin)
        return taken
