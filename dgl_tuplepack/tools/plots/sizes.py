"""Pictures of a histogram: two components with their marginals, and all components as cumulative shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits, as_limits
from dgl_tuplepack.tools.plots import _drawing as drawing

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
    histogram
        The picture shows two of its components.
    limits
        Drawn as lines. A limit far beyond the largest size is only named in the legend.
    components
        Names of the two components, for x and y; needed unless the histogram has exactly two components.
    scale
        "linear", "log" or "auto" (logarithmic if half of the graphs would share a small section of the axis).
        The counts of graphs always have logarithmic scales.
    """
    columns = drawing.two_components(histogram.components, components, "the histogram")
    names = [drawing.label(histogram.components[column]) for column in columns]
    sizes = histogram.sizes[:, columns]
    maxima = None if limits is None else as_limits(limits).aligned(histogram.components).array[list(columns)]
    largest = _largest_shown(sizes, maxima)
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
        # share[j]: fraction of graphs with a size of at most distinct[j].
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
            line = {"color": style["color"], "linestyle": style["linestyle"], "linewidth": 1}
            ax.axvline(int(maxima[column]), **line)
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


def _largest_shown(sizes: Any, maxima: Any) -> Any:
    """Return the end of each axis: the limit if it is 1 to _FAR times the largest size, otherwise the largest size."""
    largest = sizes.max(axis=0)
    return largest if maxima is None else np.where(maxima <= _FAR * largest, np.maximum(largest, maxima), largest)


def _marginals(ax: Any, cells: Any, edges: Any, mesh: Any) -> tuple[Any, Any]:
    """Draw the marginals (sums of `cells` over one axis) and the colour bar; return the Axes of the marginals."""
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
    # A label at 1 would touch the last label of the central picture, so put a tick there only if no row of cells has
    # 10 graphs.
    decades = int(np.log10(cells.sum(axis=0).max()))
    right.set_xticks([10.0, 10.0**decades] if decades > 2 else [10.0**decades])
    right.xaxis.set_minor_locator(load("matplotlib.ticker").NullLocator())
    top.yaxis.set_minor_formatter(load("matplotlib.ticker").NullFormatter())
    return top, right


def _axes_next_to(ax: Any) -> tuple[Any, Any, Any]:
    """Return new Axes above `ax`, to the right of `ax`, and further to the right."""
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
