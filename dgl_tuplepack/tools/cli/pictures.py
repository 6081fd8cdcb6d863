"""``dgl-tuplepack report`` and ``dgl-tuplepack plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dgl_tuplepack.planning.bounds import without_oversize
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing import pack
from dgl_tuplepack.planning.packing.heuristics import names_for
from dgl_tuplepack.planning.search import search_limits
from dgl_tuplepack.tools import plots
from dgl_tuplepack.tools.cli import options
from dgl_tuplepack.tools.cli.output import note, print_json
from dgl_tuplepack.tools.cli.source import read_histogram
from dgl_tuplepack.tools.plots._drawing import SCALES, columns_of, two_components
from dgl_tuplepack.tools.plots.saving import ENDINGS
from dgl_tuplepack.tools.report import write_report

PICTURES = ("sizes", "distributions", "search", "fill", "methods")


def report(
    source: options.Source,
    out: Annotated[Path, typer.Option(help="The .html file to write.")] = Path("report.html"),
    name: Annotated[
        str | None, typer.Option(help="Name of the dataset on the page; default: the name of SOURCE.")
    ] = None,
    nodes: options.Nodes = None,
    edges: options.Edges = None,
    graphs: options.Graphs = None,
    limit: options.Limit = None,
    graphs_per_batch: Annotated[
        int, typer.Option(metavar="N", min=1, help="Mean number of graphs per batch to advise limits for.")
    ] = 64,
    seed: options.Seed = 0,
    oversize: options.Oversize = "error",
    root: options.Root = None,
    part: options.Part = None,
    as_json: options.Json = False,
) -> None:
    """Write an HTML page about SOURCE: its sizes, which limits to choose and why, and what packing saves.

    Without limits (--nodes, --edges, --limit), the page uses the limits that it advises for --graphs-per-batch.
    """
    limits = options.given_limits(nodes, edges, graphs, limit)
    options.check_ending("--out", out, (".html", ".htm"))
    histogram = read_histogram(source, root, part)
    write_report(
        histogram, out, name=name or _name(source), limits=limits, graphs_per_batch=graphs_per_batch,
        seed=seed, oversize=oversize,
    )  # fmt: skip
    _announce(out, "report", as_json)


def plot(
    picture: Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(PICTURES)}.", show_default=False)],
    source: options.Source,
    out: Annotated[Path, typer.Option(help="The .png, .svg or .pdf file to write.")],
    nodes: options.Nodes = None,
    edges: options.Edges = None,
    graphs: options.Graphs = None,
    limit: options.Limit = None,
    method: options.Method = "auto",
    component: Annotated[list[str] | None, typer.Option(help="Component to show; may be given several times.")] = None,
    scale: Annotated[
        str, typer.Option(help=f"Scale of sizes: one of {', '.join(SCALES)}.", callback=options.one_of(SCALES))
    ] = "auto",
    dpi: Annotated[float, typer.Option(metavar="N", min=10, max=2400, help="Dots per inch.")] = 150,
    seed: options.Seed = 0,
    oversize: options.Oversize = "error",
    root: options.Root = None,
    part: options.Part = None,
    as_json: options.Json = False,
) -> None:
    """Draw one picture of SOURCE.

    KIND is sizes or distributions; search (the limits tried); fill (how full the packs of a plan are); or methods
    (plans of several methods compared). Without limits (--nodes, --edges, --limit), plans use the limits that a search
    advises.
    """
    if picture not in PICTURES:
        raise typer.BadParameter(f"{picture!r} is not a kind of picture; choose one of {', '.join(PICTURES)}.")
    options.check_ending("--out", out, ENDINGS)
    limits = options.given_limits(nodes, edges, graphs, limit)
    histogram = read_histogram(source, root, part)
    if limits is not None:
        histogram, _ = without_oversize(histogram, limits, oversize)
    check = two_components if picture in ("sizes", "search") else columns_of
    with options.usage_errors():
        check(histogram.components, component or None, source)
    plots.save_picture(_drawn(picture, histogram, limits, method, component or None, scale, seed), out, dpi)
    _announce(out, picture, as_json)


def _drawn(
    picture: str,
    histogram: SizeHistogram,
    given: Limits | None,
    method: str,
    components: list[str] | None,
    scale: str,
    seed: int,
) -> Any:
    """Draw a picture and return its Axes; search limits if the picture needs them and `given` is None."""
    if picture == "distributions":
        return plots.plot_distributions(histogram, given, components=components, scale=scale)
    if picture == "sizes":
        return plots.plot_sizes(histogram, given, components=components, scale=scale)
    if picture == "search":
        return plots.plot_search(search_limits(histogram), components=components)
    limits = search_limits(histogram).best.limits if given is None else given
    if picture == "fill":
        return plots.plot_fill(pack(histogram, limits, method, seed=seed), components=components)
    methods = {"no packing": ("none", "product"), "next fit, random order": ("next_fit", "product")}
    methods |= {f"best fit, {name}": ("best_fit", name) for name in names_for(histogram.components)}
    methods["auto"] = ("auto", "product")
    return plots.plot_methods(
        {name: pack(histogram, limits, each, heuristic=order, seed=seed) for name, (each, order) in methods.items()}
    )


def _announce(out: Path, kind: str, as_json: bool) -> None:
    if as_json:
        print_json({"kind": kind, "path": str(out)})
    else:
        note(f"wrote {out}")


def _name(source: str) -> str:
    """Return the default name of a SOURCE."""
    if source == "-":
        return "graphs from standard input"
    return Path(source.removeprefix("example:")).name or source
