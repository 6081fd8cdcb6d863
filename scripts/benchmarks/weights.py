"""Measure batches of exactly 64 graphs by weights: shape against the mean batch, time and memory of an order."""

from __future__ import annotations

import time
import tracemalloc
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.tables import JsonOption, show, write_json
from dgl_tuplepack import GraphSizes, StaticBatchSampler, class_weights, load_example
from dgl_tuplepack.planning.sizes import IntArray

app = typer.Typer()
BATCH_SIZE = 64
# Share of active molecules of ogbg-molhiv.
ACTIVE = 0.035


def _molecules(number: int) -> IntArray:
    """Return sizes of ogbg-molhiv in random order, repeated up to a number of graphs."""
    histogram = load_example("ogbg-molhiv")
    sizes = np.repeat(histogram.sizes, histogram.counts, axis=0)
    return np.resize(np.random.default_rng(0).permutation(sizes), (number, sizes.shape[1]))


@app.command()
def weights(
    graphs: Annotated[list[int] | None, typer.Option(min=1000, help="Numbers of graphs; may be repeated.")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs whose order is made.")] = 3,
    json_path: JsonOption = None,
) -> None:
    """Measure orders of `StaticBatchSampler` with balanced classes, and with weights from a log-normal distribution."""
    # Compile the kernels.
    list(StaticBatchSampler(GraphSizes(_molecules(1000)), BATCH_SIZE, weights=np.ones(1000)))
    results = []
    for number in graphs or [32_901, 3_400_000]:
        sizes, generator = GraphSizes(_molecules(number)), np.random.default_rng(1)
        kinds = {
            "balanced classes": class_weights(generator.random(number) < ACTIVE),
            "log-normal": generator.lognormal(0, 1, number),
        }
        for name, values in kinds.items():
            results.append({"graphs": number, "weights": name} | _measured(sizes, values, epochs))
    show(f"Batches of exactly {BATCH_SIZE} graphs by weights", results)
    write_json(json_path, results)


def _measured(sizes: GraphSizes, values: Any, epochs: int) -> dict[str, Any]:
    """Return what one set of weights gives."""
    mean = BATCH_SIZE * (values[:, None] * sizes.array).sum(0) / values.sum()
    start = time.process_time()
    sampler = StaticBatchSampler(sizes, BATCH_SIZE, weights=values, num_replicas=1, rank=0)
    made, seconds = time.process_time() - start, []
    for epoch in range(epochs):
        start = time.process_time()
        sampler.batches_of(epoch)
        seconds.append(time.process_time() - start)
    tracemalloc.start()
    sampler.batches_of(epochs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    above = sampler.limits.array / mean
    return {
        "nodes / mean batch": f"{above[0]:.4f}", "edges / mean batch": f"{above[1]:.4f}", "made_s": made,
        "epoch_s": float(np.median(seconds)), "epoch_peak_MiB": peak / 2**20,
    }  # fmt: skip
