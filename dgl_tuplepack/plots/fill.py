"""Pictures of plans: how full their packs are, and how many graphs they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import PlanError
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.plots import _drawing as drawing

# Axes of fill begin here, or lower if a pack is emptier.
_FULL = 0.9
# So many dots are drawn one by one in vector files; more of them as one raster image.
_MOST_DOTS = 2000
# More bars than this have no outlines.
_MOST_OUTLINED = 60
# Dots form one column or row if so large a share of so many packs is equally full.
_ALIKE, _MANY_PACKS = 0.9, 20
# Steps of fill: the share of the packs that may be left out, and the colour of the second component.
_LEFT_OUT, _SECOND = 0.005, "#0072b2"
# Axes of sorted fill begin at 0, unless nearly all packs are above this.
_ZOOMED = 0.8
# A cap on graphs is drawn where packs come this close to it.
_NEAR_CAP = 0.8


def plot_fill(plan: PackPlan, ax: Any = None, *, components: Sequence[str] | None = None) -> Any:
    """Draw how full packs are: each dot is a content, its area and colour the number of packs that have it.

    If nearly all packs are equally full in one component, the dots would form one column or row; then steps show how
    many packs have which content of each component.

    Parameters
    ----------
    plan
        The picture shows two of its components.
    components
        Names of the two shown, across and up; needed unless the plan has exactly two.

    Raises
    ------
    SizesError
        Two components are not chosen, or one does not exist.
    """
    columns = list(drawing.two_components(plan.histogram.components, components, "the plan"))
    fill = plan.pattern_contents[:, columns] / plan.limits.array[columns]
    # Patterns of equal content are one dot, so that its area counts all their packs.
    places, packs = drawing.tally(fill, plan.repeats)
    if plan.num_packs >= _MANY_PACKS and max(_commonest(places[:, column], packs) for column in (0, 1)) >= _ALIKE:
        return _steps_of_fill(plan, columns, ax)
    # The dots of many packs lie on top.
    order = np.argsort(packs, kind="stable")
    places, packs = places[order], packs[order]
    ax = drawing.axes_or_new(ax, 5.8, 4.8)
    norm = load("matplotlib.colors").LogNorm(1, max(2, packs.max()))
    shown = ax.scatter(
        *places.T, s=14 + 500 * packs / plan.num_packs, c=packs, norm=norm, cmap=drawing.count_colours(),
        edgecolor="black", linewidth=0.3, alpha=0.85, rasterized=len(packs) > _MOST_DOTS,
    )  # fmt: skip
    ax.figure.colorbar(shown, ax=ax, label="packs of this content")
    axes = ((ax.axvline, "--", ax.set_xlabel, ax.set_xlim), (ax.axhline, ":", ax.set_ylabel, ax.set_ylim))
    for column, fills, (line, style, set_label, set_limits) in zip(columns, places.T, axes, strict=True):
        component = plan.histogram.components[column]
        name, mean = drawing.label(component), plan.efficiency[component]
        line(mean, color=drawing.ACCENT, linestyle=style, linewidth=1.5, label=f"mean of {name}: {mean:.2%}")
        set_label(f"{name}: content / limit")
        low = min(_FULL, fills.min())
        set_limits(low - 0.04 * (1 - low), 1 + 0.04 * (1 - low))
    ax.legend(loc="best", fontsize="small")
    ax.grid(alpha=0.25)
    return ax


def _commonest(values: Any, packs: Any) -> float:
    """Return the share of packs that have the commonest of some values."""
    return float(drawing.tally(values, packs)[1].max() / packs.sum())


def _steps_of_fill(plan: PackPlan, columns: list[int], ax: Any) -> Any:
    ax = drawing.axes_or_new(ax, 5.8, 4.8)
    # A few very empty packs would leave no room for the rest; they are only counted.
    fills = [plan.pattern_contents[:, column] / plan.limits.values[column] for column in columns]
    low = np.floor(20 * min(_FULL, *(_quantile(fill, plan.repeats, _LEFT_OUT) for fill in fills))) / 20
    styles = ({"fill": True, "color": "0.7"}, {"color": _SECOND, "linewidth": 1.6})
    ends = []
    for column, fill, style in zip(columns, fills, styles, strict=True):
        name, inside = plan.histogram.components[column], fill >= low
        edges = drawing.whole_cells(plan.pattern_contents[inside, column])
        packs = np.histogram(plan.pattern_contents[inside, column], bins=edges, weights=plan.repeats[inside])[0]
        full, less = plan.repeats[fill >= 1].sum() / plan.num_packs, plan.repeats[~inside].sum()
        text = f"{drawing.label(name)}: mean {plan.efficiency[name]:.2%}, {full:.1%} of the packs full"
        text += f", {less:,} below {low:.0%}" if less else ""
        ax.stairs(packs, edges / plan.limits.values[column], label=text, **style)
        ends.append(edges[-1] / plan.limits.values[column])
    ax.set(xlabel="content / limit", ylabel="packs", yscale="log", ylim=(0.5, None), xlim=(low, max(ends)))
    ax.legend(**drawing.LEGEND_ABOVE)
    ax.grid(alpha=0.25)
    return ax


def _quantile(values: Any, packs: Any, share: float) -> float:
    """Return the least value that more than a share of the packs do not exceed."""
    order = np.argsort(values, kind="stable")
    return float(values[order][np.searchsorted(np.cumsum(packs[order]), share * packs.sum(), side="right")])


def plot_sorted_fill(plans: Mapping[str, PackPlan], component: str = "nodes", ax: Any = None) -> Any:
    """Draw, for each plan, the fill of its packs from the fullest to the emptiest.

    Parameters
    ----------
    plans
        Name in the legend -> plan.
    component
        The component whose content / limit is drawn.

    Raises
    ------
    PlanError
        No plan is given.
    SizesError
        A plan does not have the component.
    """
    if not plans:
        raise PlanError("a picture of sorted fill needs at least one plan, but got none; give {name: plan}.")
    ax, low = drawing.axes_or_new(ax), 1.0
    for number, (name, plan) in enumerate(plans.items()):
        column = drawing.column_of(plan.histogram.components, component, "the plan")
        fill = plan.pattern_contents[:, column] / plan.limits.values[column]
        order = np.argsort(-fill, kind="stable")
        ends = np.cumsum(plan.repeats[order])
        low = min(low, _quantile(fill, plan.repeats, 2 * _LEFT_OUT))
        # One corner for each change of the fill; most patterns of a good plan are equally full.
        last = np.flatnonzero(np.append(np.diff(fill[order]) != 0, True))
        packs, heights = np.append(0, ends[last]), fill[order][last]
        style = drawing.line_style(number)
        label = f"{drawing.label(name)}: {plan.num_packs:,} packs, mean {plan.efficiency[component]:.2%}"
        ax.plot(
            packs, np.append(heights, heights[-1]), drawstyle="steps-post", label=label, linewidth=1.6,
            markevery=[len(packs) - 1], markersize=6, **style,
        )  # fmt: skip
    ax.set(xlabel="packs, fullest first", ylabel=f"{drawing.label(component)}: content / limit")
    bottom = 0.0 if low < _ZOOMED else np.floor(20 * low - 1) / 20
    ax.set(ylim=(bottom, 1 + 0.03 * (1 - bottom)), xlim=(0, None))
    drawing.set_whole(ax.xaxis)
    ax.legend(**drawing.LEGEND_ABOVE)
    ax.grid(alpha=0.25)
    return ax


def plot_graphs_per_pack(plan: PackPlan, ax: Any = None) -> Any:
    """Draw how many packs hold how many graphs, with the mean, and the cap on graphs if packs come near it."""
    ax = drawing.axes_or_new(ax)
    edges = drawing.whole_cells(plan.pattern_graphs)
    # The last bar ends at the fullest pack.
    edges[-1] = plan.max_graphs + 0.5
    packs = np.histogram(plan.pattern_graphs, bins=edges, weights=plan.repeats)[0]
    outline = 0.6 if len(packs) <= _MOST_OUTLINED else 0
    ax.bar(edges[:-1], packs, width=np.diff(edges), align="edge", color="0.65", edgecolor="0.2", linewidth=outline)
    mean = plan.histogram.num_graphs / plan.num_packs
    ax.axvline(mean, color="black", linestyle="--", linewidth=1.4, label=f"mean: {mean:,.2f}")
    cap = plan.limits.graphs
    if cap is not None and plan.max_graphs >= _NEAR_CAP * cap:
        # The line lies behind the bars: the bar at the limit is often the highest, and narrow.
        style = {"color": drawing.ACCENT, "linestyle": ":", "linewidth": 1.8, "zorder": 0.9}
        ax.axvline(cap + 0.5, label=f"limit: {cap:,} graphs", **style)
    ax.set(xlabel="graphs in a pack", ylabel="packs")
    for axis in (ax.xaxis, ax.yaxis):
        drawing.set_whole(axis)
    ax.legend(fontsize="small")
    ax.grid(axis="y", alpha=0.25)
    return ax
