"""Measure how evenly work is spread over ranks, and how much of a static shape is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.distinct import materials
from benchmarks.tables import JsonOption, show, write_json
from dgl_tuplepack import GraphSizes, Limits, PackBatchSampler, StaticBatchSampler, load_example, pack
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.sampling.epoch_batches import NONE
from dgl_tuplepack.sampling.epoch_sampler import EpochSampler
from dgl_tuplepack.sampling.pack_sampler import Balance, deal

app = typer.Typer()

MOLHIV = Limits(222, 502)
RANKS = (2, 4, 8)
# Ranks, materials in a batch, and epochs of the second table.
MANY, MATERIALS, EPOCHS = (8, 64), 32, 3
KINDS = ("atom", "edge")
# What the batches of all ranks hold in an epoch, ``[steps, ranks, 2]``; and the shape that they all fit.
Epoch = tuple[IntArray, IntArray]


@app.command()
def balance(
    graphs: Annotated[int, typer.Option(min=2048, help="Number of materials in the second table.")] = 100_000,
    json_path: JsonOption = None,
) -> None:
    """Measure how much the ranks of a step differ, for packs of ogbg-molhiv, and for materials in several ways."""
    rows = _packs_of_molhiv()
    show("Work of ranks in a step, ogbg-molhiv at 222/502 (fractions of a batch's mean)", rows)
    of_materials = _materials(materials(graphs))
    title = (
        f"{graphs:,} materials, about {MATERIALS} in a batch; full steps: the slowest rank above the mean of the step"
    )
    show(title, of_materials)
    write_json(json_path, rows + of_materials)


def _packs_of_molhiv() -> list[dict[str, Any]]:
    """Return the spread of real nodes + edges: packs in random order, and as dealt."""
    histogram = load_example("ogbg-molhiv")
    sizes, plan = GraphSizes(np.repeat(histogram.sizes, histogram.counts, axis=0)), pack(histogram, MOLHIV)
    rows = []
    for ranks in RANKS:
        for packs_per_batch in (1, 4):
            settings: dict[str, Any] = {"num_replicas": ranks, "rank": 0, "packs_per_batch": packs_per_batch}
            dealt = PackBatchSampler(sizes, MOLHIV, plan=plan, **settings).balance()
            work = np.repeat(plan.pattern_contents.sum(axis=1, dtype=np.float64), plan.repeats)
            work = np.random.default_rng(0).permutation(work)
            packs_of = deal(work, ranks, packs_per_batch, drop_last=False)
            random = Balance(np.where(packs_of == NONE, 0, work[packs_of]).sum(axis=2))
            for order, found in (("random", random), ("dealt", dealt)):
                rows.append(
                    {
                        "ranks": ranks, "packs a batch": packs_per_batch, "order": order,
                        "mean spread": found.mean_spread, "largest spread": found.largest_spread, "idle": found.idle,
                    }
                )  # fmt: skip
    return rows


def _materials(sizes: GraphSizes) -> list[dict[str, Any]]:
    """Return what each way of making batches gives on many ranks."""
    limits = StaticBatchSampler(sizes, MATERIALS, num_replicas=1, rank=0).limits
    plan = pack(sizes, Limits(limits.nodes, limits.edges))
    ways: Mapping[str, Callable[[int], Iterator[Epoch]]] = {
        "exact": lambda ranks: _of_sampler(StaticBatchSampler(sizes, MATERIALS, num_replicas=ranks, rank=0), sizes),
        "packs": lambda ranks: _of_sampler(
            PackBatchSampler(sizes, plan.limits, plan=plan, num_replicas=ranks, rank=0, drop_last=True), sizes
        ),
        "greedy by atoms": lambda ranks: _greedy(sizes, ranks),
    }
    rows = []
    for ranks in MANY:
        for name, epochs in ways.items():
            used, above = [], []
            for held, shape in epochs(ranks):
                used.append(held.reshape(-1, 2).mean(axis=0) / shape)
                above.append(held.max(axis=1) / held.mean(axis=1) - 1)
            every = np.concatenate(above)
            rows.append(
                {
                    "ranks": ranks, "batches": name, "steps": len(every) // EPOCHS,
                    **{f"{kind} slots used": float(np.mean(used, axis=0)[i]) for i, kind in enumerate(KINDS)},
                    **{f"by {kind}, mean spread": float(every.mean(axis=0)[i]) for i, kind in enumerate(KINDS)},
                    **{f"by {kind}, worst spread": float(every.max(axis=0)[i]) for i, kind in enumerate(KINDS)},
                }
            )  # fmt: skip
    return rows


def _of_sampler(sampler: EpochSampler, sizes: GraphSizes) -> Iterator[Epoch]:
    """Yield the full steps of some epochs of a sampler."""
    limits: Any = sampler.limits  # type: ignore[attr-defined]
    for epoch in range(EPOCHS):
        batches = sampler._batches(epoch)
        held = np.add.reduceat(sizes.array[batches.graphs], batches.offsets[:-1], axis=0)
        counts = np.diff(batches.offsets)[batches.dealt[:, :, 0]]
        full = np.ones(len(counts), dtype=bool)
        if isinstance(sampler, StaticBatchSampler):
            full = (counts == sampler.batch_size).all(axis=1)
        yield held[batches.dealt[full, :, 0]], limits.array


def _greedy(sizes: GraphSizes, ranks: int) -> Iterator[Epoch]:
    """Yield the full steps of shuffled graphs that fill batch after batch, up to a number of atoms."""
    most = int(MATERIALS * sizes.array[:, 0].mean())
    for epoch in range(EPOCHS):
        array = sizes.array[np.random.default_rng(epoch).permutation(len(sizes))]
        firsts, atoms = [0], 0
        for graph, own in enumerate(array[:, 0].tolist()):
            atoms += own
            if atoms > most:
                firsts.append(graph)
                atoms = own
        # The last batch is not full.
        held = np.add.reduceat(array, firsts, axis=0)[:-1]
        shape = np.array([most, held[:, 1].max()])
        yield held[: len(held) // ranks * ranks].reshape(-1, ranks, 2), shape
