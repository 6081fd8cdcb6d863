"""Picture of what graphs weigh if a loss divides by the graphs of its own batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgl_tuplepack._checks import UINT64_MAX, whole_number
from dgl_tuplepack.errors import PlanError
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.plots import _drawing as drawing
from dgl_tuplepack.sizes import FloatArray, IntArray

# Most intervals of sizes; each of them holds at least this share of the graphs, so that chance does not show.
_MOST_INTERVALS = 24
_LEAST_SHARE = 1e-3
# Random orders of the packs over which batches of several packs are averaged; of more packs, a sample.
_ORDERS = 32
_MOST_PACKS = 100_000


def plot_weights(
    plan: PackPlan,
    component: str = "nodes",
    packs_per_batch: int | Sequence[int] | None = None,
    ax: Any = None,
    *,
    seed: int = 0,
) -> Any:
    """Draw what a graph weighs, by its size, if each batch divides its loss by its own number of graphs.

    The mean weight of all graphs is 1. Dividing by ``sampler.graphs_per_batch`` gives every graph the weight 1.

    Parameters
    ----------
    plan
        Its packs are dealt to batches in random orders.
    component
        The component whose sizes are drawn; graphs of neighbouring sizes share a mean.
    packs_per_batch
        A line for each; None: 1 and 8, or as many packs as the plan has.
    seed
        Seed of the orders.

    Raises
    ------
    PlanError
        A number of packs is not in 1 to the packs of the plan, or there is none.
    SizesError
        The plan does not have the component.
    """
    column = drawing.column_of(plan.histogram.components, component, "the plan")
    given = sorted({1, min(8, plan.num_packs)}) if packs_per_batch is None else packs_per_batch
    given, seed = [given] if isinstance(given, int) else given, whole_number("seed", seed, 0, UINT64_MAX)
    numbers = [whole_number("packs_per_batch", packs, 1, plan.num_packs, PlanError) for packs in given]
    if not numbers:
        raise PlanError("a picture of weights needs a number of packs a batch, but got none; give (1, 8), say.")
    ax = drawing.axes_or_new(ax)
    sizes, counts = plan.histogram.sizes[:, column], plan.histogram.counts
    edges = _intervals(sizes, counts)
    # The last edge is a float, which very large sizes can exceed.
    interval = np.minimum(np.searchsorted(edges, sizes, side="right"), len(edges) - 1) - 1
    graphs = np.bincount(interval, weights=counts, minlength=len(edges) - 1)
    for number, packs in enumerate(numbers):
        weights = class_weights(plan, packs, seed)
        means = np.bincount(interval, weights=weights * counts, minlength=len(edges) - 1) / graphs
        text = f"{packs:,} pack{'s' * (packs > 1)} a batch: {means.min():.2f} to {means.max():.2f}"
        style = drawing.line_style(number)
        del style["marker"]
        ax.stairs(means, edges, baseline=None, label=text, linewidth=1.8, **style)
    ax.axhline(1, color="0.5", linewidth=0.9, zorder=0.9)
    ax.set(xlabel=f"{drawing.label(component)} of a graph", ylabel="mean weight in an epoch")
    if drawing.log_axes(["auto"], [sizes], counts, [int(sizes.max())])[0]:
        drawing.set_log(ax, "x", int(sizes.min()), int(sizes.max()))
    ax.legend(**drawing.LEGEND_ABOVE)
    ax.grid(alpha=0.25)
    return ax


def class_weights(plan: PackPlan, packs_per_batch: int, seed: int = 0) -> FloatArray:
    """Return the mean weight of the graphs of each size class, float64 ``[C]``.

    A graph in a batch of g graphs weighs (mean graphs of a batch) / g. With several packs a batch, g is a sum over
    packs that meet by chance; the mean is taken over batches of random orders of the packs, or of a sample of them.
    """
    of_patterns = _pack_weights(plan, packs_per_batch, seed) * plan.repeats
    entries = np.repeat(of_patterns, np.diff(plan.offsets)) * plan.multiplicities
    return np.asarray(np.bincount(plan.classes, weights=entries) / plan.histogram.counts)


def _pack_weights(plan: PackPlan, packs_per_batch: int, seed: int) -> FloatArray:
    """Return the mean weight of a graph in each pattern, float64 ``[Q]``: only the graphs of its pack matter."""
    mean = plan.histogram.num_graphs / plan.num_packs * packs_per_batch
    if packs_per_batch == 1:
        return np.asarray(mean / plan.pattern_graphs)
    random, repeats = np.random.default_rng(seed), plan.repeats
    if plan.num_packs > _MOST_PACKS:
        repeats = random.multinomial(_MOST_PACKS, plan.repeats / plan.num_packs)
    packs = np.repeat(plan.pattern_graphs, repeats)
    sizes, member = np.unique(plan.pattern_graphs, return_inverse=True)
    totals, times = np.zeros(len(sizes)), np.zeros(len(sizes))
    for _ in range(_ORDERS):
        batches = random.permutation(packs)[: len(packs) - len(packs) % packs_per_batch].reshape(-1, packs_per_batch)
        row = np.searchsorted(sizes, batches).reshape(-1)
        totals += np.bincount(row, np.repeat(mean / batches.sum(axis=1), packs_per_batch), len(sizes))
        times += np.bincount(row, minlength=len(sizes))
    # A number of graphs that came in no batch, beside packs of the mean.
    beside = mean / (sizes + mean * (packs_per_batch - 1) / packs_per_batch)
    return np.asarray(np.where(times > 0, totals / np.maximum(times, 1), beside)[member.reshape(-1)])


def _intervals(sizes: IntArray, counts: IntArray) -> FloatArray:
    """Return edges of intervals of sizes, of about equal width on a logarithmic scale, none with too few graphs."""
    low, high = int(sizes.min()), int(sizes.max()) + 1
    wanted = np.unique(np.round(np.geomspace(max(low, 1), high, _MOST_INTERVALS + 1)))
    edges, least = [float(high)], _LEAST_SHARE * counts.sum()
    for edge in wanted[::-1][1:-1]:
        if counts[(sizes >= edge) & (sizes < edges[-1])].sum() >= least and counts[sizes < edge].sum() >= least:
            edges.append(float(edge))
    return np.array([float(low), *edges[::-1]])
