"""One self-contained page: what is in a dataset, which limits to take, and what packing saves."""

from __future__ import annotations

import os
from pathlib import Path

from dgl_tuplepack._core.checks import OVERSIZE, UINT64_MAX, choice, whole_number
from dgl_tuplepack._core.files import write_text
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, InputError, LimitsError
from dgl_tuplepack.planning.bounds import without_oversize
from dgl_tuplepack.planning.histogram import as_histogram
from dgl_tuplepack.planning.limits import Limits, as_limits

__all__ = ["write_report"]


def write_report(
    sizes: object,
    path: str | os.PathLike[str],
    *,
    name: str = "Graphs",
    limits: Limits | None = None,
    graphs_per_batch: int = 64,
    seed: int = 0,
    oversize: str = "error",
) -> None:
    """Write an HTML page about the packing of a dataset; it needs no network and no other file.

    Parameters
    ----------
    sizes
        A histogram, or anything that `sizes_of` reads.
    path
        The file, ending in .html or .htm; an existing file is replaced.
    name
        What the page calls the dataset.
    limits
        Limits to pack with; None: those that `search_limits` advises.
    graphs_per_batch
        Graphs of a batch on average, >= 1, that limits are advised for, as `packed_loader` chooses them. If the largest
        graph rules the number out, the smallest limits that are about as full as packs get are advised.
    seed
        0..2**64-1; equal seeds give equal pages.
    oversize
        What to do with graphs that exceed the limits given: "error", or "drop" (with a warning); the page then says how
        many are left out, and counts none of them.

    Raises
    ------
    FormatError
        The path has another ending, or cannot be written; nothing is left behind.
    SizesError, LimitsError, InputError
        As in `pack` and `search_limits`; `oversize` is unknown.
    MissingDependencyError
        matplotlib or Jinja2 is absent.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise FormatError(f"a report ends in .html or .htm, but the path is {path}; rename it.")
    if path.is_dir() or not path.parent.is_dir():
        raise FormatError(f"cannot write {path}: it is a folder, or lies in none; choose another path.")
    whole_number("graphs_per_batch", graphs_per_batch, 1, error=InputError)
    whole_number("seed", seed, 0, UINT64_MAX)
    choice("oversize", oversize, OVERSIZE, LimitsError)
    load("jinja2")
    load("matplotlib")
    from dgl_tuplepack.tools.report.findings import find
    from dgl_tuplepack.tools.report.page import render

    histogram, dropped = as_histogram(sizes), 0
    if limits is not None:
        histogram, dropped = without_oversize(histogram, as_limits(limits), oversize)
    write_text(path, render(find(histogram, limits, graphs_per_batch, seed, dropped), name, seed))
