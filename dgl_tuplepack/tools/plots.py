"""Pictures of histograms, plans and searches.

Every `plot_` function draws into the matplotlib Axes `ax` and returns `ax`; if `ax` is None, the function makes
a new figure and returns its Axes.

Errors: SizesError for unknown components or a wrong number of components; LimitsError for limits whose
components differ from those of the histogram; SearchError for a search for shape buckets; PlanError for plans of
different histograms; InputError for an unknown scale.

All pictures are readable in greyscale: colour maps are perceptually uniform, and lines also differ in style and marker.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX, real_number, shown
from dgl_tuplepack._core.files import write_bytes
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, InputError, PlanError, SearchError
from dgl_tuplepack.planning.buckets import all_of
from dgl_tuplepack.planning.histogram import SizeHistogram, quantiles
from dgl_tuplepack.planning.limits import Limits, as_limits
from dgl_tuplepack.planning.packing import pack
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.search import LimitsSearch
from dgl_tuplepack.tools import drawing

if TYPE_CHECKING:
    # This import loads torch.
    from dgl_tuplepack.sampling.description import Description

__all__ = [
    "plot_batches",
    "plot_distributions",
    "plot_fill",
    "plot_methods",
    "plot_search",
    "plot_sizes",
    "save_picture",
]

# Fraction of each axis that stays free at each end: about the width of one cell.
_MARGIN = 0.012
# A limit beyond this multiple of the largest size is only named in the legend: the picture would be mostly empty.
_FAR = 3


def plot_sizes(
    histogram: SizeHistogram,
    limits: Limits | None = None,
    ax: Any = None,
    *,
    components: Sequence[str] | None = None,
    scale: str = "auto",
) -> Any:
    """Draw the 2-D histogram of sizes with both marginals and, if given, the limits.

    The marginals and the colour bar are next to the returned Axes, in the same figure.

    Parameters
    ----------
    limits
        Drawn as lines. A limit far beyond the largest size is only named in the legend.
    components
        Names of the components for x and y; needed unless the histogram has exactly two.
    scale
        "linear", "log" or "auto" (logarithmic if half of the graphs would share a small section of the axis).
    """
    columns = drawing.two_components(histogram.components, components, "the histogram")
    names = [drawing.label(histogram.components[column]) for column in columns]
    sizes = histogram.sizes[:, columns]
    maxima = None if limits is None else as_limits(limits).aligned(histogram.components).array[list(columns)]
    largest = sizes.max(axis=0)
    if maxima is not None:
        largest = np.where(maxima <= _FAR * largest, np.maximum(largest, maxima), largest)
    logs = drawing.log_axes([scale] * 2, list(sizes.T), histogram.counts, largest.tolist())
    edges: Any = [drawing.whole_cells(sizes[:, i], logs[i]) for i in range(2)]
    # cells[i, j]: number of graphs in the cell of column i, from the left, and row j, from below.
    cells = np.histogramdd(sizes, bins=edges, weights=histogram.counts)[0]

    ax = drawing.axes_or_new(ax, 6.4, 5.6)
    norm = load("matplotlib.colors").LogNorm(1, max(2, cells.max()))
    shown = np.where(cells > 0, cells, np.nan).T
    # In vector files, draw all cells as one raster image: separate cells would show hairlines between them.
    mesh = ax.pcolormesh(*edges, shown, norm=norm, cmap=drawing.count_colours(), rasterized=True)
    # Without a margin, the frame would hide the outermost cells.
    mesh.sticky_edges.x.clear()
    mesh.sticky_edges.y.clear()
    ax.margins(_MARGIN)
    ax.set(xlabel=f"{names[0]} per graph", ylabel=f"{names[1]} per graph")
    top, right = _marginals(ax, cells, edges, mesh)
    for column, which in enumerate("xy"):
        if logs[column]:
            drawing.set_log(ax, which, int(sizes[:, column].min()), int(largest[column]))
        else:
            drawing.set_whole(getattr(ax, f"{which}axis"))
    if maxima is not None:
        _draw_limits(ax, (top, right), names, maxima, maxima <= largest)
    ax.grid(alpha=0.25)
    return ax


def plot_distributions(
    histogram: SizeHistogram,
    limits: Limits | None = None,
    ax: Any = None,
    *,
    components: Sequence[str] | None = None,
    scale: str = "auto",
) -> Any:
    """Draw the cumulative distribution of each component: the share of graphs up to each size, without binning.

    Parameters
    ----------
    histogram
        It may have any number of components.
    limits
        Drawn as vertical lines in the style of their component.
    components
        Names of the components to show; None: all.
    scale
        "linear", "log" or "auto", as in `plot_sizes`.
    """
    columns = drawing.columns_of(histogram.components, components, "the histogram")
    names = [histogram.components[column] for column in columns]
    maxima = None if limits is None else as_limits(limits).aligned(histogram.components).array
    largest = max(int(histogram.sizes[:, columns].max()), 0 if maxima is None else int(maxima[columns].max()))
    values = [histogram.sizes[:, column] for column in columns]
    log = any(drawing.log_axes([scale] * len(values), values, histogram.counts, [largest] * len(values)))
    ax = drawing.axes_or_new(ax)
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        distinct, members = np.unique(histogram.sizes[:, column], return_inverse=True)
        share = np.cumsum(np.bincount(members, weights=histogram.counts)) / histogram.num_graphs
        mean = histogram.totals()[name] / histogram.num_graphs
        style = drawing.line_style(number)
        label = f"{drawing.label(name)}: mean {mean:,.1f}, largest {distinct[-1]:,}"
        if maxima is not None:
            label += f", limit {maxima[column]:,}"
        # The + 1 skips the first point of the line, at share 0.
        marks = np.unique(np.searchsorted(share, (0.25, 0.5, 0.75, 0.99)) + 1).tolist()
        steps = np.concatenate([distinct[:1], distinct]), np.concatenate([[0.0], share])
        ax.plot(*steps, drawstyle="steps-post", label=label, markevery=marks, markersize=6, **style)
        if maxima is not None:
            ax.axvline(int(maxima[column]), color=style["color"], linestyle=style["linestyle"], linewidth=1)
    ax.set(xlabel="size of a graph", ylabel="share of graphs up to this size", ylim=(0, 1.02))
    ax.yaxis.set_major_formatter(load("matplotlib.ticker").PercentFormatter(1.0))
    smallest = int(histogram.sizes[:, columns].min())
    if log:
        drawing.set_log(ax, "x", smallest, largest)
        ax.set_xlim(left=0.9 * smallest)
    else:
        drawing.set_whole(ax.xaxis)
    ax.legend(**drawing.LEGEND_ABOVE)
    ax.grid(alpha=0.25)
    return ax


def _marginals(ax: Any, cells: Any, edges: Any, mesh: Any) -> tuple[Any, Any]:
    """Draw the marginals and the colour bar; return the Axes of the marginals."""
    top, right, bar = _axes_next_to(ax)
    ax.figure.colorbar(mesh, cax=bar, label="graphs in a cell")
    top.stairs(cells.sum(axis=1), edges[0], fill=True, color="0.45")
    right.stairs(cells.sum(axis=0), edges[1], fill=True, color="0.45", orientation="horizontal")
    top.margins(x=_MARGIN)
    right.margins(y=_MARGIN)
    top.set(yscale="log", ylabel="graphs", ylim=(0.5, 3 * cells.sum(axis=1).max()))
    right.set(xscale="log", xlabel="graphs", xlim=(0.5, 3 * cells.sum(axis=0).max()))
    top.tick_params(labelbottom=False)
    right.tick_params(labelleft=False)
    # A tick at 1 would touch the last label of the central picture.
    decades = int(np.log10(cells.sum(axis=0).max()))
    right.set_xticks([10.0, 10.0**decades] if decades > 2 else [10.0**decades])
    right.xaxis.set_minor_locator(load("matplotlib.ticker").NullLocator())
    top.yaxis.set_minor_formatter(load("matplotlib.ticker").NullFormatter())
    return top, right


def _axes_next_to(ax: Any) -> tuple[Any, Any, Any]:
    """Return new Axes above `ax`, to its right, and further to its right."""
    spec = ax.get_subplotspec()
    if spec is None:
        # (left, bottom, width, height) as fractions of `ax`.
        positions: Any = ((0, 1.03, 1, 0.22), (1.03, 0, 0.22, 1), (1.29, 0, 0.04, 1))
        make = ax.inset_axes
    else:
        ratios = {"width_ratios": (1, 0.22, 0.04), "height_ratios": (0.22, 1)}
        grid = spec.subgridspec(2, 3, wspace=0.05, hspace=0.05, **ratios)
        ax.set_subplotspec(grid[1, 0])
        positions, make = (grid[0, 0], grid[1, 1], grid[1, 2]), ax.figure.add_subplot
    return make(positions[0], sharex=ax), make(positions[1], sharey=ax), make(positions[2])


def _draw_limits(ax: Any, marginals: tuple[Any, Any], names: Sequence[str], maxima: Any, shown: Any) -> None:
    """Draw the limits as lines, and a legend above. ``shown[i]`` is whether limit i is inside the picture."""
    lines = ((ax.axvline, marginals[0].axvline), (ax.axhline, marginals[1].axhline))
    for value, name, inside, draws in zip(maxima.tolist(), names, shown.tolist(), lines, strict=True):
        style = {"color": drawing.ACCENT, "linestyle": "--" if inside else "none", "linewidth": 1.3}
        for draw in draws if inside else ():
            draw(value, **style)
        marginals[0].plot([], [], label=f"limit: {value:,} {name}{'' if inside else ' (beyond the picture)'}", **style)
    marginals[0].legend(**drawing.LEGEND_ABOVE)


# In `plot_fill`: the highest start of the axis, and the largest fraction of packs below the start.
_FULL, _LEFT_OUT = 0.9, 0.005


def plot_fill(plan: PackPlan, ax: Any = None, *, components: Sequence[str] | None = None) -> Any:
    """Draw, for each component, a histogram of the contents of packs as fractions of the limit.

    Parameters
    ----------
    plan
        It may have any number of components.
    components
        Names of the components to show; None: all.
    """
    columns = drawing.columns_of(plan.histogram.components, components, "the plan")
    ax = drawing.axes_or_new(ax, 5.8, 4.8)
    contents, limits = plan.pattern_contents, plan.limits.values
    # A few very empty packs, which would make the axis long, are only counted in the legend.
    lowest = [quantiles(contents[:, column], plan.repeats, [_LEFT_OUT])[0] / limits[column] for column in columns]
    start = np.floor(20 * min(_FULL, *lowest)) / 20
    ends = []
    for number, column in enumerate(columns):
        fill = contents[:, column] / limits[column]
        shown = fill >= start
        borders = drawing.whole_cells(contents[shown, column])
        packs, _ = np.histogram(contents[shown, column], bins=borders, weights=plan.repeats[shown])
        borders_of_fill = borders / limits[column]
        name, full = plan.histogram.components[column], plan.repeats[fill >= 1].sum() / plan.num_packs
        label = f"{drawing.label(name)}: mean {plan.efficiency[name]:.2%}, {full:.1%} of the packs full"
        if below := plan.repeats[~shown].sum():
            label += f", {below:,} below {start:.0%}"
        # A grey area for the first component, lines for the others.
        colour, dashes, _ = drawing.line_style(number - 1).values()
        style = {"color": colour, "linestyle": dashes, "linewidth": 1.6} if number else {"fill": True, "color": "0.7"}
        ax.stairs(packs, borders_of_fill, label=label, **style)
        ends.append(borders_of_fill[-1])
    ax.set(xlabel="content / limit", ylabel="packs", yscale="log", ylim=(0.5, None), xlim=(start, max(ends)))
    ax.legend(**drawing.LEGEND_ABOVE)
    ax.grid(alpha=0.25)
    return ax


# In `plot_methods`, the axis is linear up to this many per cent above the lower bound.
_LINEAR = 1.0


def plan_by(
    methods: Mapping[str, tuple[str, ...]], histogram: SizeHistogram, limits: Limits, seed: int
) -> dict[str, PackPlan]:
    """Return the plans of several methods, by their labels; a method is its name, or its name and a heuristic."""
    return {
        label: pack(histogram, limits, method, heuristic=heuristic[0] if heuristic else "product", seed=seed)
        for label, (method, *heuristic) in methods.items()
    }


def plot_methods(plans: Mapping[str, PackPlan], ax: Any = None) -> Any:
    """Draw how many per cent each plan is above the lower bound, and label the plan with its number of packs.

    Parameters
    ----------
    plans
        Label on the axis -> plan, from top to bottom; all of one histogram. A plan has an open marker if another plan
        has a tighter limit or a tighter cap on graphs, as plans of the method "node_only" do.
    """
    histograms = [plan.histogram for plan in plans.values()]
    if not histograms or any(histogram != histograms[0] for histogram in histograms[1:]):
        got = f"{len(plans)} plans of different histograms" if plans else "no plans"
        raise PlanError(f"a comparison needs plans of one histogram, but got {got}; pack one histogram by each method.")
    # A lower bound for looser limits also holds for tighter limits, so the largest bound holds for the tightest limits.
    bound = max(plan.lower_bound for plan in plans.values())
    per_cent_above = np.array([100 * (plan.num_packs / bound - 1) for plan in plans.values()])
    maxima = np.array([[*plan.limits.values, plan.limits.graphs or INT64_MAX] for plan in plans.values()])
    is_tightest = (maxima == maxima.min(axis=0)).all(axis=1)
    rows = np.arange(len(plans))

    ax = drawing.axes_or_new(ax, 6.4, 1.3 + 0.34 * len(plans))
    ax.hlines(rows, 0, per_cent_above, color="0.6", linewidth=1.2, zorder=1)
    ax.axvline(0, color="black", linestyle="--", linewidth=1.2, label=f"lower bound: {bound:,} packs", zorder=1)
    for which, face, label in ((is_tightest, "black", "within the limits"), (~is_tightest, "white", "ignores a limit")):
        if which.any():
            ax.scatter(per_cent_above[which], rows[which], s=42, color=face, edgecolor="black", zorder=2, label=label)
    for row, (plan, above) in enumerate(zip(plans.values(), per_cent_above, strict=True)):
        is_optimal = plan.num_packs == bound and is_tightest[row]
        note = "optimal" if is_optimal else _difference(plan.num_packs - bound, above)
        ax.annotate(
            f"{plan.num_packs:,} ({note})", (max(above, 0), row), (9, 0), textcoords="offset points", va="center",
            fontsize="small", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
        )  # fmt: skip
    _scale(ax, per_cent_above)
    ax.set_yticks(rows, [drawing.label(name) for name in plans])
    ax.set(xlabel="packs above the lower bound, %", ylim=(len(plans) - 0.4, -0.6))
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.grid(axis="x", alpha=0.25)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize="small")
    return ax


def _difference(packs: int, per_cent: float) -> str:
    if 0 < per_cent < 0.01:
        return f"+{packs:,} packs"
    if abs(per_cent) < 1:
        return f"{per_cent:+.2g} %"
    return f"{per_cent:+.1f} %" if abs(per_cent) < 100 else f"{per_cent:+,.0f} %"


def _scale(ax: Any, above: Any) -> None:
    """Set the range of the axis, with room for text on the right; `above` is in per cent."""
    ticker = load("matplotlib.ticker")
    if above.max() > 10 * _LINEAR:
        ax.set_xscale("symlog", linthresh=_LINEAR, linscale=0.6)
        ax.xaxis.set_major_locator(ticker.SymmetricalLogLocator(base=10, linthresh=_LINEAR))
        ax.set_xlim(min(-0.15, 2 * above.min()), 12 * above.max())
    else:
        span = max(above.max(), 0.1)
        ax.set_xlim(min(-0.03 * span, 1.3 * above.min()), 1.45 * span)
    ax.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))


def plot_batches(description: Description, ax: Any = None) -> Any:
    """Draw the first twelve batches as bars: each slice is a graph with its nodes, and grey is padding.

    Parameters
    ----------
    description
        The result of ``loader.describe()``.
    """
    if not hasattr(description, "first"):
        raise InputError(f"description must be the result of loader.describe(), but is {shown(description)}.")
    ax = drawing.axes_or_new(ax, 6.4, 4.2)
    batches, slots = [graphs for graphs, _ in description.first], [most for _, most in description.first]
    drawing.draw_bars(ax, batches, slots, drawing.PADDING)
    padding = 1 - sum(map(sum, batches)) / max(sum(slots), 1)
    entries = (
        (drawing.SLICES[0], "a graph (three colours in turn)"),
        (drawing.PADDING, f"padding of these batches, up to {max(slots):,} slots: {padding:.1%}"),
    )
    patches = [load("matplotlib.patches").Patch(color=colour, label=text) for colour, text in entries]
    ax.set(xlabel="batch", ylabel="nodes", xticks=range(len(batches)), xticklabels=range(1, len(batches) + 1))
    ax.tick_params(axis="x", length=0)
    ax.spines[["top", "right"]].set_visible(False)
    drawing.set_whole(ax.yaxis)
    ax.legend(handles=patches, ncols=2, **drawing.LEGEND_ABOVE)
    return ax


# White markers with a black edge stand out on light and on dark dots.
_MARKER: dict[str, Any] = {"color": "white", "edgecolor": "black", "linewidth": 0.9, "clip_on": False}


def plot_search(search: LimitsSearch, ax: Any = None, *, components: Sequence[str] | None = None) -> Any:
    """Draw a dot for each candidate, coloured by the harmonic mean of its efficiencies.

    Candidates are limits that the search tried. Mark the best one, and the Pareto front of harmonic mean and slots.

    Parameters
    ----------
    search
        The picture shows two of its components. Candidates with equal limits of these two share a dot, with the colour
        of the highest harmonic mean.
    components
        Names of the components for x and y; needed unless the search has exactly two.
    """
    columns = list(drawing.two_components(search.components, components, "the search"))
    if len(all_of(search.best.limits)) > 1:
        raise SearchError("this picture shows limits of one shape, but the search has several; search without shapes=.")
    limits = np.array([candidate.limits.values for candidate in search])[:, columns]
    ax = drawing.axes_or_new(ax, 6.2, 4.8)
    # The highest harmonic mean of the candidates at each point.
    points, point_of = np.unique(limits, axis=0, return_inverse=True)
    scores = np.full(len(points), -np.inf)
    np.maximum.at(scores, point_of.reshape(-1), [candidate.harmonic_mean for candidate in search])
    # If all scores are equal, matplotlib's own range might exceed 100 %.
    low = scores.min() if scores.min() < scores.max() else scores.max() - 0.01
    # Draw the best dots last, so that they are on top.
    order = np.argsort(scores, kind="stable")
    style = {"cmap": drawing.count_colours(), "vmin": low, "vmax": scores.max()}
    dots = ax.scatter(*points[order].T, c=scores[order], s=34, marker="s", **style)
    bar = ax.figure.colorbar(dots, ax=ax, label="harmonic mean of the efficiencies")
    bar.ax.yaxis.set_major_formatter(load("matplotlib.ticker").PercentFormatter(1.0))
    front = limits[search.pareto_indices]
    ax.scatter(*front.T, marker="o", s=26, label=f"Pareto front ({len(front):,})", zorder=3, **_MARKER)
    ax.scatter(*limits[search.best_index], marker="*", s=230, label=_best_label(search), zorder=4, **_MARKER)
    across, up = (drawing.label(search.components[column]) for column in columns)
    ax.set(xlabel=f"limit of {across}", ylabel=f"limit of {up}")
    for axis in (ax.xaxis, ax.yaxis):
        drawing.set_whole(axis)
    ax.legend(**drawing.LEGEND_ABOVE)
    return ax


def _best_label(search: LimitsSearch) -> str:
    limits = [f"{value:,} {drawing.label(name)}" for name, value in search.best.limits.maxima.items()]
    limits[-1] += f" ({search.best.harmonic_mean:.2%})"
    # Lines break only between limits.
    text = f"best: {', '.join(limits)}".replace(" ", "\xa0").replace(",\xa0", ", ")
    return textwrap.fill(text, 44, break_long_words=False, break_on_hyphens=False).replace("\xa0", " ")


def save_picture(ax: Any, path: str | os.PathLike[str], dpi: float = 150) -> None:
    """Write the figure of `ax` to a file. On failure, no partial file is left behind.

    Parameters
    ----------
    ax
        Any matplotlib Axes.
    path
        The file to write, ending in .png, .svg or .pdf.
    dpi
        Dots per inch, > 0; in vector files, the resolution of embedded images.

    Raises
    ------
    FormatError
        The path has another ending, or cannot be written.
    InputError
        `dpi` is not a number above 0.
    """
    dpi = real_number("dpi", dpi, above=0, hint="use 150 for screens, or 300 for print.")
    ending = Path(path).suffix.lower()
    if ending not in drawing.ENDINGS:
        raise FormatError(f"the path of a picture must end in {', '.join(drawing.ENDINGS)}, but is {path}; rename it.")
    write_bytes(path, drawing.picture_bytes(ax, ending.removeprefix("."), dpi))
