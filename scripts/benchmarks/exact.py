"""Measure batches of exactly B graphs: padding, time, how many graphs stay, and how often large graphs meet."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import shapes
from benchmarks.distinct import materials
from benchmarks.tables import JsonOption, show, write_json
from dgl_tuplepack import GraphSizes, Limits, SizeHistogram, StaticBatchSampler, load_example
from dgl_tuplepack.planning.sizes import IntArray

app = typer.Typer()

# Name of a dataset, and batch sizes.
SETS: Mapping[str, tuple[int, ...]] = {
    "ogbg-molhiv": (16, 32, 64, 256),
    "200 of molhiv": (16, 64),
    "300 of molhiv": (16, 64),
    "2,000 of molhiv": (16, 64),
    "100,000 materials": (32, 64),
    "ogbg-ppa-shaped": (32,),
    "ogbg-code2-shaped": (1024,),
    "1,000,000 materials": (64,),
    "pcqm4mv2-shaped": (64,),
}
# Larger sets are measured over fewer epochs.
GRAPHS_IN_ALL = 7_000_000
# Limits that no batch reaches: batches are then just shuffled.
FREE = Limits(nodes=2**30, edges=2**30)


def _every_graph(histogram: SizeHistogram) -> IntArray:
    return np.repeat(histogram.sizes, histogram.counts, axis=0)


def _some_of_molhiv(number: int) -> IntArray:
    sizes = _every_graph(load_example("ogbg-molhiv"))
    return sizes[np.random.default_rng(0).permutation(len(sizes))[:number]]


SIZES: Mapping[str, Callable[[], IntArray]] = {
    "ogbg-molhiv": lambda: _every_graph(load_example("ogbg-molhiv")),
    "200 of molhiv": lambda: _some_of_molhiv(200),
    "300 of molhiv": lambda: _some_of_molhiv(300),
    "2,000 of molhiv": lambda: _some_of_molhiv(2000),
    "100,000 materials": lambda: materials(100_000).array,
    "ogbg-ppa-shaped": lambda: _every_graph(shapes.ppa()),
    "ogbg-code2-shaped": lambda: _every_graph(shapes.code2()),
    "1,000,000 materials": lambda: materials(1_000_000).array,
    "pcqm4mv2-shaped": lambda: _every_graph(shapes.pcqm4mv2()),
}


@app.command()
def exact(
    epochs: Annotated[int, typer.Option(min=1, help="Most epochs of a dataset.")] = 200,
    only: Annotated[str, typer.Option(help="Only datasets whose names contain this.")] = "",
    slack: Annotated[float | None, typer.Option(help="Slack of the shape; by default, it is chosen.")] = None,
    json_path: JsonOption = None,
) -> None:
    """Measure shapes and epochs of `StaticBatchSampler`."""
    # Compile the kernels.
    list(StaticBatchSampler(_some_of_molhiv(100), 8))
    results = []
    for name, batch_sizes in SETS.items():
        if only not in name:
            continue
        sizes = GraphSizes(SIZES[name]())
        number = max(2, min(epochs, GRAPHS_IN_ALL // len(sizes)))
        for batch_size in batch_sizes:
            results.append({"dataset": name, "B": str(batch_size)} | _measured(sizes, batch_size, slack, number))
            show("So far", results[-1:])
    show("Batches of exactly B graphs", results)
    write_json(json_path, results)


def _measured(sizes: GraphSizes, batch_size: int, slack: float | None, epochs: int) -> dict[str, Any]:
    """Return what one dataset and one batch size give."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = StaticBatchSampler(sizes, batch_size, slack=slack, num_replicas=1, rank=0)
    made = time.process_time() - start
    free = StaticBatchSampler(sizes, batch_size, shape=FREE, num_replicas=1, rank=0)
    above = sampler.limits.array / (batch_size * sizes.array.mean(axis=0)) - 1
    seconds, stay, met = [], [], []
    # The largest 1 % of the graphs.
    large = np.zeros(len(sizes), dtype=bool)
    large[np.argsort(-sizes.array.sum(axis=1), kind="stable")[: max(2, len(sizes) // 100)]] = True
    for epoch in range(epochs):
        start = time.process_time()
        batch = _batch_of_each_graph(sampler, epoch)
        seconds.append(time.process_time() - start)
        stay.append((batch == _batch_of_each_graph(free, epoch)).mean())
        met.append(_pairs(batch[large]))
    batches = np.diff(np.append(np.arange(0, len(sizes), batch_size), len(sizes)))
    by_chance = (batches * (batches - 1)).sum() / (len(sizes) * (len(sizes) - 1))
    pairs = large.sum() * (large.sum() - 1) / 2
    return {
        "nodes above mean used": float(above[0]), "edges above mean used": float(above[1]),
        "stay used": float(np.mean(stay)), "large pairs, by chance 1": float(np.mean(met) / (pairs * by_chance)),
        "fallbacks": f"{sampler.fallbacks} of {epochs}", "made_s": made, "epoch_s": float(np.median(seconds)),
    }  # fmt: skip


def _batch_of_each_graph(sampler: StaticBatchSampler, epoch: int) -> IntArray:
    """Return the number of the batch of each graph in an epoch."""
    sampler.set_epoch(epoch)
    batch = np.empty(sum(map(len, batches := list(sampler))), dtype=np.int64)
    batch[np.concatenate(batches)] = np.repeat(np.arange(len(batches)), [len(ids) for ids in batches])
    return batch


def _pairs(batch: IntArray) -> float:
    """Return how many pairs of graphs share a batch, given the batch of each graph."""
    counts = np.unique(batch, return_counts=True)[1]
    return float((counts * (counts - 1)).sum() / 2)
