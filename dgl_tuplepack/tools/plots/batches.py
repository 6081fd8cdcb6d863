"""A picture of batches: one bar for each batch, cut into the graphs of the batch, with the padding on top."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.tools.plots import _drawing as drawing

# Colours of the graphs in a bar, in turn; they also differ in greyscale.
_SLICES = ("#0f4c81", "#2f93b5", "#8fd0c6")
_WIDTH = 0.8


def plot_batches(
    batches: Sequence[Sequence[int]], ax: Any = None, *, slots: int | None = None, padding: str = "0.7"
) -> Any:
    """Draw each batch as a bar that stacks the graphs of the batch.

    Parameters
    ----------
    batches
        For each batch, the sizes of its graphs in one component, such as their numbers of nodes.
    slots
        Height to which padding fills every bar; None: no padding.
    padding
        Colour of the padding.

    Raises
    ------
    InputError
        There are no batches, or the sum of a batch exceeds `slots`.
    """
    if not batches:
        raise InputError("the picture needs at least one batch, but batches is empty.")
    totals = [sum(batch) for batch in batches]
    if slots is not None and max(totals) > slots:
        raise InputError(f"the sum of each batch may be at most slots={slots}, but the sums are {totals}.")
    ax = drawing.axes_or_new(ax, 6.4, 3.2)
    for number, (batch, total) in enumerate(zip(batches, totals, strict=True)):
        if slots is not None:
            _fill(ax, number, [0], [slots], padding)
        # Filling the whole bar first, and then covering some graphs, keeps vector files small.
        _fill(ax, number, [0], [total], _SLICES[0])
        ends = np.cumsum(batch)
        for first, colour in enumerate(_SLICES[1 : len(batch)], 1):
            chosen = slice(first, None, len(_SLICES))
            _fill(ax, number, (ends - batch)[chosen], ends[chosen], colour)
    ax.set(xlim=(-0.6, len(batches) - 0.4), ylim=(0, 1.02 * (slots or max(totals))))
    return ax


def _fill(ax: Any, number: int, lows: Any, highs: Any, colour: str) -> None:
    """Fill bar `number` from ``lows[i]`` to ``highs[i]`` for each i, as one path."""
    left, right = number - _WIDTH / 2, number + _WIDTH / 2
    corners = [
        [(left, low), (left, high), (right, high), (right, low), (left, low)]
        for low, high in zip(lows, highs, strict=True)
    ]
    path, patches = load("matplotlib.path").Path, load("matplotlib.patches")
    codes = [path.MOVETO, *[path.LINETO] * 3, path.CLOSEPOLY] * len(corners)
    ax.add_patch(patches.PathPatch(path(np.reshape(corners, (-1, 2)), codes), color=colour, linewidth=0))
