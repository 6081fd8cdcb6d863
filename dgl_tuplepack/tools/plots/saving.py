"""Pictures as files: equal pictures make equal files."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from dgl_tuplepack._core.checks import real_number
from dgl_tuplepack._core.files import write_bytes
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError

# Ending of the file -> metadata about the time or the library, which are left out.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
ENDINGS = tuple(f".{ending}" for ending in _METADATA)


def save_picture(ax: Any, path: str | os.PathLike[str], dpi: float = 150) -> None:
    """Write the figure of `ax` to a file, completely or not at all.

    Parameters
    ----------
    ax
        Any matplotlib Axes, such as those that the functions of this package return.
    path
        Ends in .png, .svg or .pdf.
    dpi
        Dots per inch, > 0; in vector files, those of embedded images.

    Raises
    ------
    FormatError
        The path has another ending, or cannot be written.
    InputError
        `dpi` is not a number above 0.
    """
    dpi = real_number("dpi", dpi, above=0, hint="150 suits screens, 300 print.")
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise FormatError(f"the path of a picture must end in {', '.join(ENDINGS)}, but is {path}; rename it.")
    write_bytes(path, picture_bytes(ax, ending.removeprefix("."), dpi))


def picture_bytes(ax: Any, ending: str, dpi: float = 150) -> bytes:
    """Return the content of a file with that ending (without the dot)."""
    content = io.BytesIO()
    with load("matplotlib").rc_context({"svg.hashsalt": "dgl_tuplepack"}):
        # An Axes in a subfigure is written with the whole figure.
        figure = ax.figure if hasattr(ax.figure, "savefig") else ax.figure.figure
        figure.savefig(content, format=ending, dpi=dpi, metadata=_METADATA[ending])
    return content.getvalue()
