"""Pictures of histograms and plans; every function draws into an Axes and returns it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.sizes import IntArray

_COLOURS = "viridis"
_MOST_CELLS = 120


def plot_sizes(histogram: SizeHistogram, limits: Limits | None = None, ax: Any = None) -> Any:
    """Draw the 2-D histogram of sizes, with both marginals, and the limits where given.

    Parameters
    ----------
    histogram
        Two components, such as ("nodes", "edges").
    limits
        Drawn as lines.
    ax
        matplotlib Axes; a new figure's if None.

    Returns
    -------
    matplotlib.axes.Axes
        The central one; the marginals stand beside it in the same figure.

    Raises
    ------
    SizesError
        The histogram does not have exactly two components.
    """
    if len(histogram.components) != 2:
        raise SizesError(f"this picture shows two components, but the histogram has {list(histogram.components)}.")
    colors = load("matplotlib.colors")
    ax = _axes(ax)
    edges: Any = [_cells(histogram.sizes[:, column]) for column in range(2)]
    cells = np.histogramdd(histogram.sizes, bins=edges, weights=histogram.counts)[0]
    mesh = ax.pcolormesh(*edges, np.where(cells > 0, cells, np.nan).T, norm=colors.LogNorm(), cmap=_COLOURS)
    ax.set(xlabel=f"{histogram.components[0]} per graph", ylabel=f"{histogram.components[1]} per graph")
    divider = load("mpl_toolkits.axes_grid1").make_axes_locatable(ax)
    top = divider.append_axes("top", "18%", pad=0.08, sharex=ax)
    right = divider.append_axes("right", "18%", pad=0.08, sharey=ax)
    top.stairs(cells.sum(axis=1), edges[0], fill=True, color="0.45")
    right.stairs(cells.sum(axis=0), edges[1], fill=True, color="0.45", orientation="horizontal")
    top.set(yscale="log", ylabel="graphs")
    right.set(xscale="log", xlabel="graphs")
    top.tick_params(labelbottom=False)
    right.tick_params(labelleft=False)
    if limits is not None:
        for value, lines in zip(limits.values, ((ax.axvline, top.axvline), (ax.axhline, right.axhline)), strict=True):
            for line in lines:
                line(value, color="crimson", linestyle="--", linewidth=1.2)
        ax.plot([], [], color="crimson", linestyle="--", label=", ".join(f"{v} {n}" for n, v in limits.maxima.items()))
        ax.legend(loc="lower right", title="limits of a pack")
    bar = ax.inset_axes((0.03, 0.93, 0.3, 0.025))
    ax.figure.colorbar(mesh, cax=bar, orientation="horizontal").set_label("graphs of this size", fontsize="small")
    ax.grid(alpha=0.25)
    return ax


def plot_fill(plan: PackPlan, ax: Any = None) -> Any:
    """Draw how full packs are: each dot is a pattern, its area the number of packs that follow it.

    Parameters
    ----------
    plan
        Two components, such as ("nodes", "edges").
    ax
        matplotlib Axes; a new figure's if None.

    Raises
    ------
    SizesError
        The plan does not have exactly two components.
    """
    if len(plan.histogram.components) != 2:
        raise SizesError(f"this picture shows two components, but the plan has {list(plan.histogram.components)}.")
    colors = load("matplotlib.colors")
    ax = _axes(ax)
    fill = plan.pattern_contents / plan.limits.array
    # Patterns of equal content are one dot, so that its area counts all their packs.
    places, members = np.unique(fill, axis=0, return_inverse=True)
    packs = np.bincount(members.reshape(-1), weights=plan.repeats)
    scale = colors.LogNorm(1, max(2, packs.max()))
    area = 14 + 500 * packs / plan.num_packs
    shown = ax.scatter(
        *places.T, s=area, c=packs, norm=scale, cmap=_COLOURS, edgecolor="black", linewidth=0.3, alpha=0.8
    )
    ax.figure.colorbar(shown, ax=ax, label="packs in this place", fraction=0.045)
    means = zip(plan.efficiency.items(), (ax.axvline, ax.axhline), ("--", ":"), strict=True)
    for (name, value), line, style in means:
        line(value, color="crimson", linestyle=style, linewidth=1.5, label=f"mean of {name}: {value:.2%}")
    first, second = plan.histogram.components
    ax.set(xlabel=f"{first}: content / limit", ylabel=f"{second}: content / limit")
    ax.set(xlim=(min(0.5, places[:, 0].min() - 0.02), 1.015), ylim=(min(0.5, places[:, 1].min() - 0.02), 1.015))
    ax.legend(loc="upper left")
    ax.grid(alpha=0.25)
    return ax


def plot_sorted_fill(plans: Mapping[str, PackPlan], component: str = "nodes", ax: Any = None) -> Any:
    """Draw, for each plan, the fill of its packs from the fullest to the emptiest.

    Parameters
    ----------
    plans
        Name in the legend -> plan.
    component
        The component whose content / limit is drawn.
    ax
        matplotlib Axes; a new figure's if None.
    """
    ax = _axes(ax)
    styles = ("-", "--", "-.", ":")
    for number, (name, plan) in enumerate(plans.items()):
        components = plan.histogram.components
        if component not in components:
            raise SizesError(f"the plan has no component {component!r}; choose one of {', '.join(components)}.")
        column = components.index(component)
        fill = plan.pattern_contents[:, column] / plan.limits.values[column]
        order = np.argsort(-fill)
        packs = np.concatenate([[0], np.cumsum(plan.repeats[order])])
        label = f"{name}: {plan.num_packs:,} packs"
        ax.stairs(fill[order], packs, baseline=None, label=label, linestyle=styles[number % 4], linewidth=1.8)
    ax.set(xlabel="packs, fullest first", ylabel=f"{component}: content / limit", ylim=(0, 1.03), xlim=(0, None))
    ax.legend(loc="lower left")
    ax.grid(alpha=0.25)
    return ax


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    # A Figure of its own keeps pyplot's global state, and any display, out of it.
    figure = load("matplotlib.figure").Figure(figsize=(7, 6), layout="constrained")
    return figure.add_subplot()


def _cells(values: IntArray) -> Any:
    """Edges of cells centred on whole numbers, about `_MOST_CELLS` of them."""
    low, high = int(values.min()), int(values.max())
    width = max(1, -(-(high - low + 1) // _MOST_CELLS))
    number = (high - low) // width + 1
    return low - 0.5 + width * np.arange(number + 1)
