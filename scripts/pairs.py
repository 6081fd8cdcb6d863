"""Count the pairs of graphs that never share a pack, and those that meet again: `python scripts/pairs.py`."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import numpy as np
import typer
from benchmarks.distinct import materials, materials_limits
from numpy.typing import NDArray

import dgl_tuplepack as tp

LARGE = 50

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def together(plan: tp.PackPlan) -> NDArray[np.bool_]:
    """Return which size classes share a pack of the plan, ``[C, C]``; the diagonal: two graphs of a class share one."""
    met = np.zeros((len(plan.histogram), len(plan.histogram)), dtype=bool)
    for begin, end in zip(plan.offsets[:-1], plan.offsets[1:], strict=True):
        classes, twice = plan.classes[begin:end], plan.multiplicities[begin:end] > 1
        met[np.ix_(classes, classes)] |= ~np.eye(len(classes), dtype=bool) | np.diag(twice)
    return met


def share_apart(met: NDArray[np.bool_], counts: NDArray[np.int64], chosen: NDArray[np.bool_]) -> float:
    """Return the share of pairs (a chosen graph, any other graph) whose size classes never share a pack."""
    pairs = counts[:, None].astype(float) * counts
    np.fill_diagonal(pairs, counts * (counts - 1.0))
    return float((pairs * ~met)[chosen].sum() / max(pairs[chosen].sum(), 1.0))


def pairs_of(packs: list[list[int]], number: int) -> NDArray[np.int64]:
    """Return the pairs of graphs that share a pack, each as one number; there are `number` graphs."""
    found = []
    for pack in packs:
        ids = np.sort(pack)
        rows, columns = np.triu_indices(len(ids), 1)
        found.append(ids[rows] * number + ids[columns])
    return np.concatenate(found)


def meeting_again(sampler: tp.PackBatchSampler, number: int, epochs: int) -> tuple[float, float]:
    """Return the share of the pairs in a pack that share a pack in the next epoch again, and that share by chance."""
    of_epochs = []
    for epoch in range(epochs + 1):
        sampler.set_epoch(epoch)
        of_epochs.append(pairs_of(list(sampler), number))
    again = [len(np.intersect1d(one, after)) / len(one) for one, after in pairwise(of_epochs)]
    return float(np.mean(again)), float(np.mean([len(each) for each in of_epochs])) / (number * (number - 1) / 2)


@app.command()
def pairs(
    nodes: Annotated[int, typer.Option(help="Maximum nodes per pack of ogbg-molhiv.")] = 222,
    edges: Annotated[int, typer.Option(help="Maximum edges per pack of ogbg-molhiv.")] = 502,
    graphs: Annotated[int, typer.Option(help="Number of synthetic materials.")] = 5000,
    epochs: Annotated[int, typer.Option(help="Epochs to count.")] = 20,
    seed: int = 0,
) -> None:
    """Print the pairs that cannot meet in ogbg-molhiv, and the pairs that meet again in ogbg-molhiv and in materials.

    A batch is one pack.
    """
    histogram = tp.load_example("ogbg-molhiv")
    molhiv = tp.GraphSizes(np.repeat(histogram.sizes, histogram.counts, axis=0)), tp.Limits(nodes, edges)
    everyone, large = np.ones(len(histogram), dtype=bool), histogram.sizes[:, 0] >= LARGE
    met = together(tp.pack(histogram, molhiv[1], seed=seed))
    apart, apart_large = (share_apart(met, histogram.counts, chosen) for chosen in (everyone, large))
    typer.echo(f"cannot meet with resample: {apart:.1%} of all pairs, {apart_large:.1%} with a graph of {LARGE}+ nodes")
    typer.echo(f"{'graphs':>30} {'content':>9} {'meet again':>11} {'by chance':>10}")
    others = materials(graphs, seed)
    for name, (sizes, limits) in (
        ("ogbg-molhiv", molhiv),
        (f"{graphs} materials", (others, materials_limits(others, 1024))),
    ):
        plan = tp.pack(sizes, limits, seed=seed)
        for content in ("resample", "exchange"):
            sampler = tp.PackBatchSampler(sizes, limits, plan=plan, content=content, seed=seed)
            again, chance = meeting_again(sampler, len(sizes), epochs)
            typer.echo(f"{name:>30} {content:>9} {again:11.3%} {chance:10.3%}")


if __name__ == "__main__":
    app()
