"""Draw a search for limits: the efficiency of packs, the best limits and the Pareto front."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.planning.buckets import all_of
from dgl_tuplepack.planning.search import LimitsSearch
from dgl_tuplepack.tools.plots import _drawing as drawing

# Maximum characters per line of the legend.
_WIDTH = 44
# Range of the colours if all candidates have the same harmonic mean.
_RANGE_OF_EQUALS = 0.01
# White markers with a black edge stand out on light and on dark dots.
_MARKER: dict[str, Any] = {"color": "white", "edgecolor": "black", "linewidth": 0.9, "clip_on": False}


def plot_search(search: LimitsSearch, ax: Any = None, *, components: Sequence[str] | None = None) -> Any:
    """Draw a dot for each candidate, coloured by the harmonic mean of its efficiencies.

    Candidates are limits that the search tried. Mark the best candidate, and the Pareto front of harmonic mean and
    slots per pack.

    Parameters
    ----------
    search
        The picture shows two of its components. Candidates with equal limits of these two components share a dot, with
        the colour of the highest harmonic mean.
    components
        Names of the two components, for x and y; needed unless the search has exactly two components.
    """
    columns = list(drawing.two_components(search.components, components, "the search"))
    if len(all_of(search.best.limits)) > 1:
        raise SearchError("this picture shows limits of one shape, but the search has several; search without shapes=.")
    limits = np.array([candidate.limits.values for candidate in search])[:, columns]
    ax = drawing.axes_or_new(ax, 6.2, 4.8)
    # scores[p]: highest harmonic mean of the candidates at point p.
    points, point_of = np.unique(limits, axis=0, return_inverse=True)
    scores = np.full(len(points), -np.inf)
    np.maximum.at(scores, point_of.reshape(-1), [candidate.harmonic_mean for candidate in search])
    # If all scores are equal, matplotlib's own range might exceed 100 %.
    low = scores.min() if scores.min() < scores.max() else scores.max() - _RANGE_OF_EQUALS
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
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False).replace("\xa0", " ")
