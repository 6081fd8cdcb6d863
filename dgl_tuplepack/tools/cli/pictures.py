"""``dgl-tuplepack report`` and ``dgl-tuplepack plot``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dgl_tuplepack.planning.bounds import without_oversize
from dgl_tuplepack.planning.buckets import Buckets
from dgl_tuplepack.planning.limits import Limits, as_limits
from dgl_tuplepack.planning.packing import pack
from dgl_tuplepack.planning.packing.fit import names_for
from dgl_tuplepack.planning.search import GRAPHS_PER_BATCH
from dgl_tuplepack.tools import plots
from dgl_tuplepack.tools.cli import options
from dgl_tuplepack.tools.cli.output import note, print_json
from dgl_tuplepack.tools.cli.planned import search_for_plan
from dgl_tuplepack.tools.cli.sources import read_histogram
from dgl_tuplepack.tools.drawing import ENDINGS, SCALES, columns_of, two_components

PICTURES = ("sizes", "distributions", "search", "fill", "methods")


def report(
    source: options.Source,
    out: Annotated[Path, options.out("The .html file to write.")] = Path("report.html"),
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
    # This import loads kernels, which --help and wrong usage do not need.
    from dgl_tuplepack.tools.report import write_report

    write_report(
        histogram, out, name=name or _name(source), limits=limits,
        graphs_per_batch=graphs_per_batch or GRAPHS_PER_BATCH, seed=seed, oversize=oversize,
    )  # fmt: skip
    _announce(out, "report", as_json)


def plot(
    picture: Annotated[str, options.argument("KIND", f"One of {', '.join(PICTURES)}.")],
    source: options.Source,
    out: Annotated[Path, options.out("The .png, .svg or .pdf file to write.")],
    given: options.GivenLimits = None,
    graphs_per_batch: options.GraphsPerBatch = None,
    method: options.Method = "auto",
    component: Annotated[list[str] | None, typer.Option(help="Component to show; may be given several times.")] = None,
    scale: Annotated[str, options.choice(f"Scale of sizes: one of {', '.join(SCALES)}.", SCALES)] = "auto",
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
    limits: Any = _one_shape(options.given_limits(given, graphs_per_batch))
    histogram = read_histogram(source, root, split)
    components = component or None
    check = two_components if picture in ("sizes", "search") else columns_of
    with options.usage_errors():
        check(histogram.components, components, source)
    # Only some pictures need the search.
    search = partial(search_for_plan, histogram, graphs_per_batch, oversize)
    if limits is None and picture in ("fill", "methods"):
        limits = search().best.limits
    if limits is not None:
        histogram, _ = without_oversize(histogram, limits, oversize)
    match picture:
        case "distributions":
            ax = plots.plot_distributions(histogram, limits, components=components, scale=scale)
        case "sizes":
            ax = plots.plot_sizes(histogram, limits, components=components, scale=scale)
        case "search":
            ax = plots.plot_search(search(), components=components)
        case "fill":
            ax = plots.plot_fill(pack(histogram, limits, method, seed=seed), components=components)
        case _:
            methods: dict[str, Any] = {"no packing": ("none",), "next fit, random order": ("next_fit",)}
            methods |= {f"best fit, {name}": ("best_fit", name) for name in names_for(histogram.components)}
            ax = plots.plot_methods(plots.plan_by(methods | {"auto": ("auto",)}, histogram, limits, seed))
    plots.save_picture(ax, out, dpi)
    _announce(out, picture, as_json)


def _one_shape(limits: Limits | Buckets | None) -> Limits | None:
    """Return the limits, which may be None; raise LimitsError for shape buckets."""
    return None if limits is None else as_limits(limits)


def _announce(out: Path, kind: str, as_json: bool) -> None:
    if as_json:
        print_json({"kind": kind, "path": str(out)})
    else:
        note(f"wrote {out}")


def _name(source: str) -> str:
    """Return the default of --name for a SOURCE."""
    if source == "-":
        return "graphs from standard input"
    return Path(source.removeprefix("example:")).name or source
