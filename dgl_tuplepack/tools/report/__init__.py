"""One self-contained page: the sizes of a dataset, which limits to choose, and what packing saves."""

from __future__ import annotations

import os
from pathlib import Path

from dgl_tuplepack._core.checks import OVERSIZE, UINT64_MAX, choice, whole_number
from dgl_tuplepack._core.files import writable, write_text
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, InputError, LimitsError
from dgl_tuplepack.planning.bounds import without_oversize
from dgl_tuplepack.planning.histogram import as_histogram
from dgl_tuplepack.planning.limits import Limits, as_limits
from dgl_tuplepack.planning.search import GRAPHS_PER_BATCH

__all__ = ["write_report"]


def write_report(
    sizes: object,
    path: str | os.PathLike[str],
    *,
    name: str = "Graphs",
    limits: Limits | None = None,
    graphs_per_batch: int = GRAPHS_PER_BATCH,
    seed: int = 0,
    oversize: str = "error",
) -> None:
    """Write an HTML page about packing a dataset. The page needs no network and no other file.

    Parameters
    ----------
    sizes
        A histogram, or anything that `sizes_of` reads.
    path
        The file to write, ending in .html or .htm; an existing file is replaced.
    name
        Name of the dataset on the page.
    limits
        Limits to pack with; None: the limits that `search_limits` advises.
    graphs_per_batch
        Mean number of graphs per batch, >= 1, for the advised limits; `packed_loader` chooses the same limits. If the
        largest graph makes this number impossible, the page advises the smallest limits with nearly the best
        efficiency.
    seed
        0..2**64-1; equal seeds give equal pages.
    oversize
        What to do with graphs that exceed the given limits: "error", or "drop" (with a warning). The page reports only
        the number of dropped graphs.

    Raises
    ------
    FormatError
        The path has another ending, or cannot be written; no partial file is left behind.
    SizesError, LimitsError, InputError
        As in `pack` and `search_limits`; LimitsError also for an unknown `oversize`.
    MissingDependencyError
        matplotlib or Jinja2 is missing.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise FormatError(f"a report ends in .html or .htm, but the path is {path}; rename it.")
    writable(path)
    whole_number("graphs_per_batch", graphs_per_batch, 1, error=InputError)
    whole_number("seed", seed, 0, UINT64_MAX)
    choice("oversize", oversize, OVERSIZE, LimitsError)
    load("jinja2")
    load("matplotlib")
    from dgl_tuplepack.tools.report.page import find, render

    histogram, dropped = as_histogram(sizes), 0
    if limits is not None:
        histogram, dropped = without_oversize(histogram, as_limits(limits), oversize)
    write_text(path, render(find(histogram, limits, graphs_per_batch, seed, dropped), name, seed))
