"""Measure what is in a batch: weights of graphs, numbers of graphs, and how full a stream fills packs."""

from __future__ import annotations

from typing import Any

import numpy as np
import typer

from benchmarks.tables import JsonOption, show, write_json
from dgl_tuplepack import GraphSizes, Limits, PackBatchSampler, StreamPacker, load_example, pack

app = typer.Typer()

EPOCHS = 3
MOLHIV = Limits(222, 502)
# Limits and packs per batch.
SETTINGS = ((MOLHIV, 1), (MOLHIV, 8), (MOLHIV, 32), (Limits(1024, 2200), 1), (Limits(1024, 2200), 8))
# Fewest and most nodes of the graphs whose weights are shown together.
GROUPS = ((10, 19), (30, 49), (100, 10**6))


@app.command()
def batches(json_path: JsonOption = None) -> None:
    """Measure weights of graphs, numbers of graphs in a batch, and node slots that streams use, for ogbg-molhiv."""
    histogram = load_example("ogbg-molhiv")
    sizes = GraphSizes(np.repeat(histogram.sizes, histogram.counts, axis=0))
    weights, counts = [], []
    for limits, packs_per_batch in SETTINGS:
        epochs = _batches(sizes, limits, packs_per_batch)
        setting = {"limits": f"{limits.nodes}/{limits.edges}", "packs a batch": str(packs_per_batch)}
        counts.append(setting | _counts(epochs))
        if limits == MOLHIV:
            weights.append(setting | _weights(sizes, epochs))
    shuffled, streams = [_shuffled(sizes)], _streams(sizes)
    show("Weights of graphs if each batch divides by its own number of graphs", weights)
    show(f"Graphs in a batch, over {EPOCHS} epochs", counts)
    show("Nodes of a batch of 70 shuffled graphs, one epoch", shuffled)
    show("Node slots used in packs of 222/502", streams)
    write_json(json_path, weights + counts + shuffled + streams)


def _batches(sizes: GraphSizes, limits: Limits, packs_per_batch: int) -> list[list[list[int]]]:
    """Return the batches of each epoch, as ids of graphs."""
    sampler = PackBatchSampler(sizes, limits, packs_per_batch=packs_per_batch, num_replicas=1, rank=0)
    epochs = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        epochs.append([list(ids) for ids in sampler])
    return epochs


def _weights(sizes: GraphSizes, epochs: list[list[list[int]]]) -> dict[str, float]:
    """Return the mean weight of the graphs of each group; 1 is the weight in batches with equal numbers of graphs."""
    weights = np.zeros(len(sizes))
    for each in epochs:
        for ids in each:
            weights[ids] += len(sizes) / (len(each) * len(ids) * len(epochs))
    nodes = sizes.array[:, 0]
    return {
        f"{fewest} to {most} nodes" if most < 10**6 else f"{fewest} nodes or more": float(
            weights[(nodes >= fewest) & (nodes <= most)].mean()
        )
        for fewest, most in GROUPS
    }


def _counts(epochs: list[list[list[int]]]) -> dict[str, Any]:
    """Return the mean, relative spread, minimum and maximum of the number of graphs in a batch."""
    counts = np.array([len(ids) for each in epochs for ids in each])
    return {
        "mean": f"{counts.mean():.1f}", "spread": counts.std() / counts.mean(),
        "fewest": int(counts.min()), "most": int(counts.max()),
    }  # fmt: skip


def _shuffled(sizes: GraphSizes, graphs: int = 70) -> dict[str, Any]:
    """Return the fewest and most nodes of shuffled batches with equal numbers of graphs."""
    nodes = np.random.default_rng(0).permutation(sizes.array[:, 0])[: len(sizes) // graphs * graphs]
    of_batches = nodes.reshape(-1, graphs).sum(axis=1)
    return {"fewest": int(of_batches.min()), "most": int(of_batches.max())}


def _streams(sizes: GraphSizes) -> list[dict[str, Any]]:
    """Return the share of node slots that each method uses for graphs in random order."""
    order = [tuple(size) for size in np.random.default_rng(0).permutation(sizes.array).tolist()]
    stream = StreamPacker(order, MOLHIV, size_of=lambda size: size, shard=False)
    packs = {
        "next fit": pack(sizes, MOLHIV, method="next_fit").num_packs,
        "StreamPacker, look-ahead of 1,000 graphs": sum(1 for _ in stream),
        "plan of all sizes": pack(sizes, MOLHIV).num_packs,
    }
    nodes = int(sizes.array[:, 0].sum())
    return [
        {"method": name, "packs": number, "used": nodes / (number * MOLHIV.nodes)} for name, number in packs.items()
    ]
