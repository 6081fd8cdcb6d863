"""Save pictures to files; equal pictures give equal files."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from dgl_tuplepack._core.checks import real_number
from dgl_tuplepack._core.files import write_bytes
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError

# Ending -> metadata to omit, because it holds the time or the library version.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
ENDINGS = tuple(f".{ending}" for ending in _METADATA)


def save_picture(ax: Any, path: str | os.PathLike[str], dpi: float = 150) -> None:
    """Write the figure of `ax` to a file. On failure, no partial file is left behind.

    Parameters
    ----------
    ax
        Any matplotlib Axes, such as the result of another function of this package.
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
    if ending not in ENDINGS:
        raise FormatError(f"the path of a picture must end in {', '.join(ENDINGS)}, but is {path}; rename it.")
    write_bytes(path, picture_bytes(ax, ending.removeprefix("."), dpi))


def picture_bytes(ax: Any, ending: str, dpi: float = 150) -> bytes:
    """Return the content of a picture file; `ending` has no dot."""
    content = io.BytesIO()
    # A fixed salt gives the elements of SVG files the same ids in each run.
    with load("matplotlib").rc_context({"svg.hashsalt": "dgl_tuplepack"}):
        # A subfigure cannot be saved.
        figure = ax.figure if hasattr(ax.figure, "savefig") else ax.figure.figure
        figure.savefig(content, format=ending, dpi=dpi, metadata=_METADATA[ending])
    return content.getvalue()
