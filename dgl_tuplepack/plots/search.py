"""Picture of a search for limits: how full packs get, the best limits and the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgl_tuplepack._optional import load
from dgl_tuplepack.plots import _drawing as drawing
from dgl_tuplepack.search import LimitsSearch

# Candidates that fill this share of the grid of their values are drawn as a heat map, others as dots.
_GRID = 0.5
# Largest share of an axis of harmonic means that lies above 100 %.
_BEYOND = 0.03
# Scores that the colours span if all candidates have the same score.
_ALONE = 0.01
# White with a black edge stands out on light and dark, in colour and in grey.
_MARKER: dict[str, Any] = {"color": "white", "edgecolor": "black", "linewidth": 0.9, "clip_on": False}


def plot_search(search: LimitsSearch, ax: Any = None, *, components: Sequence[str] | None = None) -> Any:
    """Draw what each of the limits tried has reached; the best and the Pareto front are marked.

    It is a heat map if the candidates form a grid, and has a dot for each candidate otherwise.

    Parameters
    ----------
    search
        The picture shows two of its components; if several candidates share a point, it shows the best.
    components
        Names of the two shown, across and up; needed unless the search has exactly two.

    Raises
    ------
    SizesError
        Two components are not chosen, or one does not exist.
    """
    columns = list(drawing.two_components(search.components, components, "the search"))
    limits = search.limits[:, columns]
    ax = drawing.axes_or_new(ax, 6.2, 4.8)
    places, best_of = np.unique(limits, axis=0, return_inverse=True)
    scores = np.full(len(places), -np.inf)
    np.maximum.at(scores, best_of.reshape(-1), search.scores)
    shown = _draw_scores(ax, places, scores)
    bar = ax.figure.colorbar(shown, ax=ax)
    _name_score(search, bar.ax)
    front = limits[search.pareto_indices]
    ax.scatter(*front.T, marker="o", s=26, label=_front_label(search), zorder=3, **_MARKER)
    ax.scatter(*limits[search.best_index], marker="*", s=230, label=_best_label(search), zorder=4, **_MARKER)
    across, up = (drawing.label(search.components[column]) for column in columns)
    ax.set(xlabel=f"limit of {across}", ylabel=f"limit of {up}")
    for axis in (ax.xaxis, ax.yaxis):
        drawing.set_whole(axis)
    ax.legend(**drawing.LEGEND_ABOVE)
    return ax


def _name_score(search: LimitsSearch, ax: Any) -> None:
    """Label the vertical axis by what the search compared candidates by."""
    if _is_harmonic(search):
        # No ticks above 100 %, but room for a whole marker.
        low, high = ax.get_ylim()
        ax.set_ylim(top=min(high, 1 + _BEYOND * (1 - low)))
        ax.yaxis.set_major_formatter(load("matplotlib.ticker").PercentFormatter(1.0))
    ax.set_ylabel("harmonic mean of the efficiencies" if _is_harmonic(search) else "score")


def _is_harmonic(search: LimitsSearch) -> bool:
    return np.array_equal(search.scores, search.harmonic_mean)


def _front_label(search: LimitsSearch) -> str:
    return f"Pareto front ({len(search.pareto_indices):,})"


def _best_label(search: LimitsSearch) -> str:
    limits = [f"{value:,} {drawing.label(name)}" for name, value in search.best.limits.maxima.items()]
    score = search.best.score
    limits[-1] += f" ({f'{score:.2%}' if _is_harmonic(search) else f'score {score:.6g}'})"
    return drawing.wrapped([f"best: {limits[0]}", *limits[1:]])


def _draw_scores(ax: Any, places: Any, scores: Any) -> Any:
    across, up = (np.unique(places[:, column]) for column in range(2))
    # If all are equal, matplotlib would put the score in the middle of a range that reaches beyond 100 %.
    low = scores.min() if scores.min() < scores.max() else scores.max() - _ALONE
    style = {"cmap": drawing.count_colours(), "vmin": low, "vmax": scores.max()}
    if len(places) < _GRID * len(across) * len(up) or len(places) < 4:
        # The best dots lie on top.
        order = np.argsort(scores, kind="stable")
        return ax.scatter(*places[order].T, c=scores[order], s=34, marker="s", **style)
    cells = np.full((len(up), len(across)), np.nan)
    cells[np.searchsorted(up, places[:, 1]), np.searchsorted(across, places[:, 0])] = scores
    return ax.pcolormesh(_halfway(across), _halfway(up), cells, rasterized=True, **style)


def _halfway(values: Any) -> Any:
    """Return the edges of cells around ascending values."""
    if len(values) == 1:
        return np.array([values[0] - 0.5, values[0] + 0.5])
    middle = (values[1:] + values[:-1]) / 2
    return np.concatenate([[1.5 * values[0] - 0.5 * values[1]], middle, [1.5 * values[-1] - 0.5 * values[-2]]])
