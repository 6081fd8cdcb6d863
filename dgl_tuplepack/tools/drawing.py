"""Helpers shared by all pictures: Axes, labels, colours, line styles, scales and histogram cells."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import printable
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import InputError, SizesError
from dgl_tuplepack.planning.histogram import quantiles
from dgl_tuplepack.planning.sizes import IntArray

SCALES = ("auto", "linear", "log")
_MOST_CELLS, _FEWEST_CELLS = 120, 24
# Maximum characters of a name.
_LONGEST_NAME = 30
ACCENT = "#b2182b"
# Colours that colour-blind readers can distinguish, from dark to light so that they also differ in greyscale.
_COLOURS = ("#000000", "#0072b2", "#d55e00", "#56b4e9")
_LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LEGEND_ABOVE: dict[str, Any] = {
    "loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "frameon": False, "fontsize": "small"
}  # fmt: skip
# Colours of the graphs in a bar, in turn, which also differ in greyscale; and of padding.
SLICES, PADDING = ("#0f4c81", "#2f93b5", "#8fd0c6"), "#8c959f"
_WIDTH = 0.8
# With the scale "auto", an axis is logarithmic if half of the graphs would share the first twelfth of a linear axis.
_LONG_TAIL = 12


def axes_or_new(ax: Any, width: float = 6.4, height: float = 4.8) -> Any:
    """Return `ax`; if it is None, the Axes of a new figure of `width` by `height` inches."""
    # A Figure that is made without pyplot needs no global state and no display.
    return ax or load("matplotlib.figure").Figure(figsize=(width, height), layout="constrained").add_subplot()


def label(name: str) -> str:
    """Return a name as text for a picture: one line, which matplotlib never reads as a formula."""
    name = printable(name)
    manager = load("matplotlib.font_manager")
    fonts = [manager.FontProperties(family=[family]) for family in manager.FontProperties().get_family()]
    # glyphs: for each font, a function that returns 0 for a character that the font lacks.
    glyphs = [manager.get_font(manager.findfont(font)).get_char_index for font in fonts]
    name = "".join(c if any(glyph(ord(c)) for glyph in glyphs) else c.encode("unicode_escape").decode() for c in name)
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME // 2]}...{name[-_LONGEST_NAME // 2 :]}"
    # "$" begins a formula; legends omit labels that begin with "_".
    return name.replace("$", r"\$").replace("_", " _", 1 if name.startswith("_") else 0)


def count_colours() -> Any:
    """Return the colour map for counts: high counts are dark, and a count of 1 is still visible on white."""
    viridis = load("matplotlib").colormaps["viridis"]
    return load("matplotlib.colors").ListedColormap(viridis(np.linspace(0.88, 0.0, 256)), name="viridis_dark")


def line_style(number: int) -> dict[str, Any]:
    """Return the style of line `number`, which differs from the next line's in colour, dashes and marker."""
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": _LINES[number % len(_LINES)],
        "marker": _MARKERS[number % len(_MARKERS)],
    }


def two_components(components: Sequence[str], chosen: Sequence[str] | None, what: str) -> tuple[int, int]:
    """Return the column indices as `columns_of` does; raise SizesError unless there are two different ones."""
    columns = columns_of(components, chosen, what)
    if len(columns) != 2 or columns[0] == columns[1]:
        raise SizesError(f"name two different components for this picture; {what} has {', '.join(components)}.")
    return columns[0], columns[1]


def columns_of(components: Sequence[str], chosen: Sequence[str] | None, what: str) -> list[int]:
    """Return the column indices of the `chosen` components (None: all); messages name their owner `what`."""
    if chosen is not None and (isinstance(chosen, str) or not len(chosen)):
        raise SizesError(f"components is {chosen!r}, but must be None or a non-empty list of names from {components}.")
    names = components if chosen is None else chosen
    for name in names:
        if name not in components:
            raise SizesError(f"{what} has no component {name!r}; choose one of {', '.join(components)}.")
    return [list(components).index(name) for name in names]


def log_axes(scales: Sequence[str], values: Sequence[IntArray], counts: IntArray, largest: Sequence[int]) -> list[bool]:
    """Return whether each axis is logarithmic, given for each axis its scale, the sizes of all classes and its end."""
    for scale in scales:
        if scale not in SCALES:
            raise InputError(f"scale is {scale!r}, but must be one of {', '.join(SCALES)}.")
    # End of each axis, divided by the median size.
    tails = [most / max(1, *quantiles(column, counts, [0.5])) for most, column in zip(largest, values, strict=True)]
    # If one axis has a long tail, half as long a tail is enough for the others: then proportional sizes lie on a line.
    enough = _LONG_TAIL if max(tails) <= _LONG_TAIL else _LONG_TAIL / 2
    return [scale == "log" or (scale == "auto" and tail > enough) for scale, tail in zip(scales, tails, strict=True)]


def set_log(ax: Any, which: str, smallest: int, largest: int) -> None:
    """Make an axis of whole numbers logarithmic; `which` is "x" or "y"."""
    ticker = load("matplotlib.ticker")
    set_scale, axis = getattr(ax, f"set_{which}scale"), getattr(ax, f"{which}axis")
    if smallest >= 1:
        set_scale("log")
        # Ticks in each decade.
        subs = (1.0,) if largest > 100 * smallest else (1.0, 2.0, 5.0)
        axis.set_major_locator(ticker.LogLocator(subs=subs, numticks=12))
    else:
        # A scale that is logarithmic everywhere cannot show 0.
        set_scale("symlog", linthresh=1, linscale=0.3)
        axis.set_major_locator(ticker.SymmetricalLogLocator(base=10, linthresh=1))
    _separate_thousands(axis)
    axis.set_minor_formatter(ticker.NullFormatter())


def whole_cells(values: IntArray, log: bool = False) -> Any:
    """Return the borders of at most about `_MOST_CELLS` histogram cells, each halfway between two whole numbers.

    The width of a cell is a multiple of the step between values, since narrower cells would show as stripes.
    """
    low, high = int(values.min()), int(values.max())
    step = max(1, int(np.gcd.reduce(values - low)))
    if high - low < step * _FEWEST_CELLS:
        # A step that occurs so few times may be a coincidence.
        step = 1
    if not log:
        # Rounded up, so that _MOST_CELLS cells hold all values.
        width = step * -(-(high - low + 1) // (step * _MOST_CELLS))
        return low - 0.5 + width * np.arange((high - low) // width + 2)
    growth = ((high + 1) / max(low, 1)) ** (1 / _MOST_CELLS) - 1
    starts = [low]
    while starts[-1] <= high:
        steps_per_cell = max(1, int(starts[-1] * growth / step))
        starts.append(starts[-1] + step * steps_per_cell)
    return np.array(starts) - 0.5


def set_whole(axis: Any) -> None:
    """Put the ticks of a linear axis at whole numbers, and label the ticks with thousands separators."""
    ticker = load("matplotlib.ticker")
    # A larger min_n_ticks would allow ticks at fractions.
    axis.set_major_locator(ticker.MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    _separate_thousands(axis)


def _separate_thousands(axis: Any) -> None:
    axis.set_major_formatter(load("matplotlib.ticker").StrMethodFormatter("{x:,.0f}"))


def draw_bars(ax: Any, batches: Sequence[Sequence[int]], slots: Sequence[int], padding: str) -> None:
    """Draw each batch as a bar that stacks the sizes of its graphs, with padding up to its slots."""
    for number, (batch, most) in enumerate(zip(batches, slots, strict=True)):
        _fill(ax, number, [0], [most], padding)
        # Filling the whole bar first, and then covering some graphs, keeps vector files small.
        _fill(ax, number, [0], [sum(batch)], SLICES[0])
        ends = np.cumsum(batch)
        for first, colour in enumerate(SLICES[1 : len(batch)], 1):
            chosen = slice(first, None, len(SLICES))
            _fill(ax, number, (ends - batch)[chosen], ends[chosen], colour)
    ax.set(xlim=(-0.6, len(batches) - 0.4), ylim=(0, 1.02 * max(slots)))


def _fill(ax: Any, number: int, lows: Any, highs: Any, colour: str) -> None:
    """Fill bar `number` from ``lows[i]`` to ``highs[i]`` for each i, as one path."""
    left, right = number - _WIDTH / 2, number + _WIDTH / 2
    corners = [
        [(left, low), (left, high), (right, high), (right, low), (left, low)]
        for low, high in zip(lows, highs, strict=True)
    ]
    path = load("matplotlib.path").Path
    codes = [path.MOVETO, *[path.LINETO] * 3, path.CLOSEPOLY] * len(corners)
    patch = load("matplotlib.patches").PathPatch(path(np.reshape(corners, (-1, 2)), codes), color=colour, linewidth=0)
    ax.add_patch(patch)


# Ending -> metadata to omit, because it holds the time or the library version.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
ENDINGS = tuple(f".{ending}" for ending in _METADATA)


def picture_bytes(ax: Any, ending: str, dpi: float = 150) -> bytes:
    """Return the content of a picture file; `ending` has no dot."""
    content = io.BytesIO()
    # A fixed salt gives the elements of SVG files the same ids in each run.
    with load("matplotlib").rc_context({"svg.hashsalt": "dgl_tuplepack"}):
        # A subfigure cannot be saved.
        figure = ax.figure if hasattr(ax.figure, "savefig") else ax.figure.figure
        figure.savefig(content, format=ending, dpi=dpi, metadata=_METADATA[ending])
    return content.getvalue()
