"""``dgl-tuplepack report`` and ``dgl-tuplepack plot``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dgl_tuplepack.planning.bounds import without_oversize
from dgl_tuplepack.planning.buckets import Buckets
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits, as_limits
from dgl_tuplepack.planning.packing import pack
from dgl_tuplepack.planning.packing.heuristics import names_for
from dgl_tuplepack.planning.search import GRAPHS_PER_BATCH, LimitsSearch
from dgl_tuplepack.tools import plots
from dgl_tuplepack.tools.cli import options
from dgl_tuplepack.tools.cli.limits import search_for_plan
from dgl_tuplepack.tools.cli.output import note, print_json
from dgl_tuplepack.tools.cli.source import read_histogram
from dgl_tuplepack.tools.plots._drawing import ENDINGS, SCALES, columns_of, two_components
from dgl_tuplepack.tools.report import write_report

PICTURES = ("sizes", "distributions", "search", "fill", "methods")


def report(
    source: options.Source,
    out: Annotated[Path, typer.Option("--out", "-o", help="The .html file to write.")] = Path("report.html"),
    name: Annotated[
        str | None, typer.Option(help="Name of the dataset on the page; default: the name of SOURCE.")
    ] = None,
    given: options.GivenLimits = None,
    graphs_per_batch: options.GraphsPerBatch = None,
    seed: options.Seed = 0,
    oversize: options.Oversize = "error",
    root: options.Root = None,
    split: options.Split = None,
    as_json: options.Json = False,
) -> None:
    """Write an HTML page about SOURCE: its sizes, which limits to choose and why, and what packing saves.

    The page advises limits for --graphs-per-batch. Its plans use these limits, unless --limits are given.
    """
    limits = _one_shape(options.given_limits(given))
    options.check_file("--out", out, (".html", ".htm"))
    histogram = read_histogram(source, root, split)
    write_report(
        histogram, out, name=name or _name(source), limits=limits,
        graphs_per_batch=graphs_per_batch or GRAPHS_PER_BATCH, seed=seed, oversize=oversize,
    )  # fmt: skip
    _announce(out, "report", as_json)


def plot(
    picture: Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(PICTURES)}.", show_default=False)],
    source: options.Source,
    out: Annotated[Path, typer.Option("--out", "-o", help="The .png, .svg or .pdf file to write.")],
    given: options.GivenLimits = None,
    graphs_per_batch: options.GraphsPerBatch = None,
    method: options.Method = "auto",
    component: Annotated[list[str] | None, typer.Option(help="Component to show; may be given several times.")] = None,
    scale: Annotated[
        str, typer.Option(help=f"Scale of sizes: one of {', '.join(SCALES)}.", callback=options.one_of(SCALES))
    ] = "auto",
    dpi: Annotated[float, typer.Option(metavar="N", min=10, max=2400, help="Dots per inch.")] = 150,
    seed: options.Seed = 0,
    oversize: options.Oversize = "error",
    root: options.Root = None,
    split: options.Split = None,
    as_json: options.Json = False,
) -> None:
    """Draw one picture of SOURCE.

    KIND is one of: sizes (graphs by two components), distributions (the fraction of graphs up to each size), search
    (the limits that were tried), fill (how full the packs of a plan are), methods (a comparison of the plans of several
    methods). Without --limits, plans use the limits that a search for --graphs-per-batch advises.
    """
    if picture not in PICTURES:
        raise typer.BadParameter(f"{picture!r} is not a kind of picture; choose one of {', '.join(PICTURES)}.")
    options.check_file("--out", out, ENDINGS)
    limits = _one_shape(options.given_limits(given, graphs_per_batch))
    histogram = read_histogram(source, root, split)
    check = two_components if picture in ("sizes", "search") else columns_of
    with options.usage_errors():
        check(histogram.components, component or None, source)
    # Only some pictures need the search.
    search = partial(search_for_plan, histogram, graphs_per_batch, oversize)
    if limits is None and picture in ("fill", "methods"):
        limits = search().best.limits
    if limits is not None:
        histogram, _ = without_oversize(histogram, limits, oversize)
    ax = _drawn(picture, histogram, limits, search, method, component or None, scale, seed)
    plots.save_picture(ax, out, dpi)
    _announce(out, picture, as_json)


def _drawn(
    picture: str,
    histogram: SizeHistogram,
    limits: Limits | None,
    search: Callable[[], LimitsSearch],
    method: str,
    components: list[str] | None,
    scale: str,
    seed: int,
) -> Any:
    """Draw a picture and return its Axes; the pictures "fill" and "methods" need `limits`."""
    if picture == "distributions":
        return plots.plot_distributions(histogram, limits, components=components, scale=scale)
    if picture == "sizes":
        return plots.plot_sizes(histogram, limits, components=components, scale=scale)
    if picture == "search":
        return plots.plot_search(search(), components=components)
    assert limits is not None
    if picture == "fill":
        return plots.plot_fill(pack(histogram, limits, method, seed=seed), components=components)
    # Label -> (method, heuristic). Of these methods, only best_fit uses the heuristic.
    methods = {"no packing": ("none", "product"), "next fit, random order": ("next_fit", "product")}
    methods |= {f"best fit, {name}": ("best_fit", name) for name in names_for(histogram.components)}
    methods["auto"] = ("auto", "product")
    return plots.plot_methods(
        {name: pack(histogram, limits, each, heuristic=order, seed=seed) for name, (each, order) in methods.items()}
    )


def _one_shape(limits: Limits | Buckets | None) -> Limits | None:
    """Return the limits, which may be None; raise LimitsError for shape buckets."""
    return None if limits is None else as_limits(limits)


def _announce(out: Path, kind: str, as_json: bool) -> None:
    """Report the file that was written."""
    if as_json:
        print_json({"kind": kind, "path": str(out)})
    else:
        note(f"wrote {out}")


def _name(source: str) -> str:
    """Return the default of --name for a SOURCE."""
    if source == "-":
        return "graphs from standard input"
    return Path(source.removeprefix("example:")).name or source
