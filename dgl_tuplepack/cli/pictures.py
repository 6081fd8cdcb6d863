"""``dgl-tuplepack report`` and ``dgl-tuplepack plot``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from dgl_tuplepack import plots
from dgl_tuplepack.bounds import without_oversize
from dgl_tuplepack.cli import options
from dgl_tuplepack.cli.output import note, print_json
from dgl_tuplepack.cli.source import read_histogram
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing import pack
from dgl_tuplepack.packing.heuristics import names_for
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.plots._drawing import SCALES, column_of
from dgl_tuplepack.plots.saving import ENDINGS
from dgl_tuplepack.report import check_destination, write_report
from dgl_tuplepack.search import LimitsSearch, search_limits


@dataclass(frozen=True)
class _Subject:
    """What is to be drawn; searches and plans are made when a picture needs them."""

    histogram: SizeHistogram
    given: Limits | None
    method: str
    components: tuple[str, ...]
    scale: str
    seed: int

    @cached_property
    def search(self) -> LimitsSearch:
        return search_limits(self.histogram)

    @cached_property
    def limits(self) -> Limits:
        return self.search.best.limits if self.given is None else self.given

    @property
    def pair(self) -> tuple[str, ...]:
        """The two components of a picture that shows two."""
        known = self.histogram.components
        pair = self.components or known
        if len(pair) != 2 or pair[0] == pair[1]:
            raise typer.BadParameter(
                f"this picture shows two different components; name two of {', '.join(known)}, --component for each."
            )
        return pair

    def plan(self, method: str | None = None, heuristic: str = "product") -> PackPlan:
        return pack(self.histogram, self.limits, method or self.method, heuristic=heuristic, seed=self.seed)

    def compared(self) -> dict[str, PackPlan]:
        """Return the plans of the methods that a picture compares, within the same limits."""
        plans = {"no packing": self.plan("none"), "next fit, random order": self.plan("next_fit")}
        names = names_for(self.histogram.components)
        plans |= {f"best fit, {name}": self.plan("best_fit", name) for name in names}
        return plans | {"auto": self.plan("auto")}


PICTURES: dict[str, Callable[[_Subject], Any]] = {
    "sizes": lambda s: plots.plot_sizes(s.histogram, s.given, components=s.pair, scale=s.scale),
    "distributions": lambda s: plots.plot_distributions(
        s.histogram, s.given, components=s.components or None, scale=s.scale
    ),
    "search": lambda s: plots.plot_search(s.search, components=s.pair),
    "fill": lambda s: plots.plot_fill(s.plan(), components=s.components or None),
    "methods": lambda s: plots.plot_methods(s.compared()),
}


def report(
    source: options.Source,
    out: Annotated[Path, typer.Option(help="The page to write, .html.")] = Path("report.html"),
    name: Annotated[
        str | None, typer.Option(help="What the page calls the dataset; default: the name of SOURCE.")
    ] = None,
    nodes: options.Nodes = None,
    edges: options.Edges = None,
    graphs: options.Graphs = None,
    limit: options.Limit = None,
    graphs_per_batch: Annotated[
        int, typer.Option(min=1, help="Graphs of a batch on average that limits are advised for.")
    ] = 64,
    seed: options.Seed = 0,
    oversize: options.Oversize = "error",
    root: options.Root = None,
    part: options.Part = None,
    as_json: options.Json = False,
) -> None:
    """Write one HTML page, for any browser: what is in SOURCE, which limits to take and why, what packing saves.

    Without limits (--nodes, --edges, --limit), the page takes those that it advises for --graphs-per-batch.
    """
    limits = options.given_limits(nodes, edges, graphs, limit)
    options.check_ending("--out", out, (".html", ".htm"))
    check_destination(out)
    histogram = read_histogram(source, root, part)
    write_report(
        histogram, out, name=name or _name(source), limits=limits, graphs_per_batch=graphs_per_batch,
        seed=seed, oversize=oversize,
    )  # fmt: skip
    _say(out, "report", as_json)


def plot(
    picture: Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(PICTURES)}.", show_default=False)],
    source: options.Source,
    out: Annotated[Path, typer.Option(help="The file to write: .png, .svg or .pdf.")],
    nodes: options.Nodes = None,
    edges: options.Edges = None,
    graphs: options.Graphs = None,
    limit: options.Limit = None,
    method: options.Method = "auto",
    component: Annotated[list[str] | None, typer.Option(help="Component to show; may be given several times.")] = None,
    scale: Annotated[
        str, typer.Option(help=f"Scale of sizes: one of {', '.join(SCALES)}.", callback=options.one_of(SCALES))
    ] = "auto",
    dpi: Annotated[float, typer.Option(min=10, max=2400, help="Dots per inch.")] = 150,
    seed: options.Seed = 0,
    oversize: options.Oversize = "error",
    root: options.Root = None,
    part: options.Part = None,
    as_json: options.Json = False,
) -> None:
    """Draw one picture of SOURCE.

    KIND is sizes or distributions; search, of a search for limits; fill, of a plan; or methods, which compares the
    plans of several. Without limits (--nodes, --edges, --limit), plans take those that a search advises.
    """
    if picture not in PICTURES:
        raise typer.BadParameter(f"{picture!r} is not a kind of picture; choose one of {', '.join(PICTURES)}.")
    options.check_ending("--out", out, ENDINGS)
    limits = options.given_limits(nodes, edges, graphs, limit)
    histogram = read_histogram(source, root, part)
    if limits is not None:
        histogram, _ = without_oversize(histogram, limits, oversize)
    with options.usage_errors():
        for name in component or ():
            column_of(histogram.components, name, source)
    subject = _Subject(histogram, limits, method, tuple(component or ()), scale, seed)
    plots.save_picture(PICTURES[picture](subject), out, dpi)
    _say(out, picture, as_json)


def _say(out: Path, written: str, as_json: bool) -> None:
    if as_json:
        print_json({"kind": written, "path": str(out)})
    else:
        note(f"wrote {out}")


def _name(source: str) -> str:
    """Return what the page calls a SOURCE if no name is given."""
    if source == "-":
        return "graphs from standard input"
    return Path(source.removeprefix("example:")).name or source
