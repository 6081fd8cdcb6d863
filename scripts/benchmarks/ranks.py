"""Measure compiled training on several cores: threads of one process, or single-threaded ranks."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import dgl_tuplepack as tp
from benchmarks.loading import SourceOption
from benchmarks.networks import Network
from benchmarks.tables import JsonOption, show, write_json
from benchmarks.training import Molecules, networks_of, ratio
from benchmarks.ways import LIMITS, PACKS, loss_of, packed_batches

app = typer.Typer()

# Steps before the measurement; the first one compiles.
_WARM_UP = 3


@dataclass(frozen=True)
class Way:
    """A way to train: number of processes, threads of each, and packs per batch of each."""

    ranks: int
    threads: int
    packs: int

    def __str__(self) -> str:
        plural = "s" * (self.threads > 1)
        return f"{self.ranks} x {self.threads} thread{plural}, {self.ranks} x {self.packs} packs"


@app.command()
def ranks(
    source: SourceOption = None,
    network: Annotated[list[str] | None, typer.Option(help="LAYERSxWIDTH; may be repeated.")] = None,
    cores: Annotated[int, typer.Option(min=2, help="Threads of the single process, and number of ranks.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with all ways; results are medians.")] = 7,
    steps: Annotated[int, typer.Option(min=1, help="Steps per way and round.")] = 12,
    json_path: JsonOption = None,
) -> None:
    """Measure graphs per second of compiled training: one process with several threads, and single-threaded ranks.

    DGL's layers run on packs, compiled. The ranks have as many packs as the single process, in total or each.
    """
    networks = networks_of(network)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "store"
        tp.GraphStore.write(stored, source or Molecules(32_901), compact=True)
        for name, (layers, width) in networks.items():
            out = Path(folder) / f"{name}.json"
            arguments = cores, stored, layers, width, rounds, steps, out
            torch.multiprocessing.spawn(_process, arguments, cores)  # type: ignore[no-untyped-call]
            rows = json.loads(out.read_text(encoding="utf-8"))
            show(f"GINE {name}, compiled, {PACKS} packs per batch", rows)
            results += [{"network": name, **row} for row in rows]
    write_json(json_path, results)


def _process(rank: int, cores: int, stored: Path, layers: int, width: int, rounds: int, steps: int, out: Path) -> None:
    """Take part in all ways; rank 0 writes the rows."""
    dist.init_process_group("gloo", init_method=f"file://{out}.meeting", rank=rank, world_size=cores)
    store = tp.GraphStore(stored)
    train = store.subset(store.splits["train"])
    ways = [Way(1, 1, PACKS), Way(1, cores, PACKS), Way(cores, 1, -(-PACKS // cores)), Way(cores, 1, PACKS)]
    rates = _measured(train, ways, layers, width, rank, rounds, steps)
    if rank == 0:
        out.write_text(json.dumps(_rows(rates)), encoding="utf-8")
    # All trainings are freed by now; gloo can hang on a gradient bucket that outlives its group.
    dist.destroy_process_group()


def _measured(
    train: Any, ways: list[Way], layers: int, width: int, rank: int, rounds: int, steps: int
) -> dict[Way, list[float]]:
    """Return graphs per second of each way in each interleaved round; other ranks wait while one process trains."""
    trainings = {way: _training(train, way, layers, width, rank) for way in ways if rank < way.ranks}
    rates: dict[Way, list[float]] = {way: [] for way in ways}
    for measured in range(-1, rounds):
        for way in ways:
            dist.barrier()
            begin = time.perf_counter()
            num_steps = steps if measured >= 0 else _WARM_UP
            graphs = torch.tensor(sum(trainings[way]() for _ in range(num_steps)) if way in trainings else 0)
            dist.all_reduce(graphs)
            if measured >= 0:
                rates[way].append(int(graphs) / (time.perf_counter() - begin))
    return rates


def _rows(rates: dict[Way, list[float]]) -> list[dict[str, Any]]:
    first = next(iter(rates))
    return [
        {
            "processes, packs of each": str(way),
            "graphs/s": statistics.median(of_way),
            f"times {first}": f"{ratio(rates, way, first):.2f}",
        }
        for way, of_way in rates.items()
    ]


class _Loss(nn.Module):
    """The loss of a batch as a module, because DistributedDataParallel wraps modules only."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._loss = loss_of("dgl", model)

    def forward(self, t: Any, count: Tensor) -> Tensor:
        return self._loss(t, count)


def _training(train: Any, way: Way, layers: int, width: int, rank: int) -> Callable[[], int]:
    """Return a function that trains one step and returns its number of graphs."""
    torch.manual_seed(0)
    model = Network(layers, width, "dgl", "GINE")
    tp.nn.convert(model, verbose=False)
    sampler = tp.PackBatchSampler(
        train, LIMITS, packs_per_batch=way.packs, num_replicas=way.ranks, rank=rank if way.ranks > 1 else 0
    )
    loss: Any = tp.compile(_Loss(model))
    if way.ranks > 1:
        loss = DistributedDataParallel(loss)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    batches = packed_batches(train, sampler)

    def step() -> int:
        torch.set_num_threads(way.threads)
        batch = next(batches)
        optimiser.zero_grad()
        loss(batch.tensors, sampler.count_tensor).backward()
        optimiser.step()
        return batch.num_real_graphs

    return step
