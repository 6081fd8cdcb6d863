"""Count the pairs of graphs that never share a pack as plans change: `python scripts/pairs.py`."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer
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


@app.command()
def pairs(
    nodes: Annotated[int, typer.Option(help="Maximum nodes per pack.")] = 222,
    edges: Annotated[int, typer.Option(help="Maximum edges per pack.")] = 502,
    every: Annotated[int, typer.Option(help="Epochs per plan.")] = 1,
    epochs: Annotated[int, typer.Option(help="Epochs to count.")] = 9,
    seed: int = 0,
) -> None:
    """Print the share of such pairs in ogbg-molhiv's training graphs after each epoch, with one pack per batch."""
    histogram = tp.load_example("ogbg-molhiv")
    sizes = tp.GraphSizes(np.repeat(histogram.sizes, histogram.counts, axis=0))
    sampler = tp.PackBatchSampler(sizes, tp.Limits(nodes, edges), seed=seed, replan_every=every)
    everyone, large = np.ones(len(histogram), dtype=bool), histogram.sizes[:, 0] >= LARGE
    met = np.zeros((len(histogram), len(histogram)), dtype=bool)
    typer.echo(f"{'epochs':>6} {'all pairs':>10} {f'with a graph of {LARGE}+ nodes':>27}")
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        met |= together(sampler.plan)
        apart, apart_large = (share_apart(met, histogram.counts, chosen) for chosen in (everyone, large))
        typer.echo(f"{epoch + 1:6} {apart:10.1%} {apart_large:27.1%}")


if __name__ == "__main__":
    app()
