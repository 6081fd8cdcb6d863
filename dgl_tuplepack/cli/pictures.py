"""``dgl-tuplepack report`` and ``dgl-tuplepack plot``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dgl_tuplepack import plots
from dgl_tuplepack.bounds import without_oversize
from dgl_tuplepack.cli.app import app
from dgl_tuplepack.cli.limits_options import OversizeOption, by_name, check_ending, one_of, whole
from dgl_tuplepack.cli.output import JsonOption, print_json, warnings_as_notes
from dgl_tuplepack.cli.source import PartOption, RootOption, SourceArgument, read_histogram
from dgl_tuplepack.cli.streams import note
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing import METHODS, pack
from dgl_tuplepack.packing.heuristics import NAMES
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.plots._drawing import SCALES
from dgl_tuplepack.plots.saving import KINDS as PICTURE_KINDS
from dgl_tuplepack.report import check_place, write_report
from dgl_tuplepack.search import LimitsSearch, search_limits
from dgl_tuplepack.sizes import components_of_kind

NodesOption = Annotated[
    int | None, typer.Option(min=1, help="Most nodes of a pack; default: advised.", show_default=False)
]
EdgesOption = Annotated[
    int | None, typer.Option(min=1, help="Most edges of a pack; default: advised.", show_default=False)
]
GraphsOption = Annotated[int | None, typer.Option(min=1, help="Most graphs of a pack.", show_default=False)]
LimitOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=NUMBER", help="Limit of any component, as nodes:user=90.", show_default=False),
]
SeedOption = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Decides everything random.")]


@dataclass(frozen=True)
class _Subject:
    """What is to be drawn; searches and plans are made when a picture needs them."""

    histogram: SizeHistogram
    given: Limits | None
    method: str
    components: tuple[str, ...]
    scale: str
    seed: int

    @property
    def search(self) -> LimitsSearch:
        return search_limits(self.histogram, seed=self.seed)

    @property
    def limits(self) -> Limits:
        return self.search.best.limits if self.given is None else self.given

    @property
    def pair(self) -> tuple[str, ...]:
        """The two components of a picture that has no room for more."""
        known = self.histogram.components
        pair = self.components or known
        if len(pair) != 2 or pair[0] == pair[1]:
            raise typer.BadParameter(
                f"this picture shows two different components; name two of {', '.join(known)}, --component for each."
            )
        return pair

    def plan(self, method: str | None = None, heuristic: str = "product") -> PackPlan:
        return pack(self.histogram, self.limits, method or self.method, heuristic=heuristic, seed=self.seed)

    def beside_next_fit(self) -> dict[str, PackPlan]:
        """The plan, and one to compare it with: alone, a good one is a flat line."""
        fixed = _Subject(self.histogram, self.limits, self.method, self.components, self.scale, self.seed)
        return {"next fit, random order": fixed.plan("next_fit"), self.method: fixed.plan()}

    def compared(self) -> dict[str, PackPlan]:
        """Plans of every method within the same limits."""
        fixed = _Subject(self.histogram, self.limits, self.method, self.components, self.scale, self.seed)
        plans = {"no packing": fixed.plan("none"), "next fit, random order": fixed.plan("next_fit")}
        plans |= {f"best fit, {name}": fixed.plan("best_fit", name) for name in NAMES if _has(self.histogram, name)}
        return plans | {"auto": fixed.plan("auto")}


KINDS: dict[str, Callable[[_Subject], Any]] = {
    "sizes": lambda s: plots.plot_sizes(s.histogram, s.given, components=s.pair, scale=s.scale),
    "distributions": lambda s: plots.plot_distributions(
        s.histogram, s.given, components=s.components or None, scale=s.scale
    ),
    "search": lambda s: plots.plot_search(s.search, components=s.pair),
    "tradeoff": lambda s: plots.plot_tradeoff(s.search),
    "fill": lambda s: plots.plot_fill(s.plan(), components=s.pair),
    "sorted-fill": lambda s: plots.plot_sorted_fill(
        s.beside_next_fit(), s.components[0] if s.components else s.histogram.components[0]
    ),
    "graphs-per-pack": lambda s: plots.plot_graphs_per_pack(s.plan()),
    "methods": lambda s: plots.plot_methods(s.compared()),
}


@app.command()
def report(
    source: SourceArgument,
    out: Annotated[Path, typer.Option(help="The page to write, .html.")] = Path("report.html"),
    name: Annotated[
        str | None, typer.Option(help="What the page calls the dataset; default: the name of SOURCE.")
    ] = None,
    nodes: NodesOption = None,
    edges: EdgesOption = None,
    graphs: GraphsOption = None,
    limit: LimitOption = None,
    batch_size: Annotated[
        list[int] | None, typer.Option(min=1, help="Plain batches to compare with; default: 8, 32, 128.")
    ] = None,
    seed: SeedOption = 0,
    oversize: OversizeOption = "error",
    root: RootOption = None,
    part: PartOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one HTML page, for any browser: what is in SOURCE, which limits to take and why, what packing saves."""
    limits = _limits(nodes, edges, graphs, limit)
    check_ending("--out", out, (".html", ".htm"))
    check_place(out)
    histogram = read_histogram(source, root, part)
    sizes = tuple(batch_size or (8, 32, 128))
    with warnings_as_notes():
        write_report(
            histogram, out, name=name or _name(source), limits=limits, batch_sizes=sizes, seed=seed, oversize=oversize
        )
    _say(out, "report", as_json)


@app.command()
def plot(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(KINDS)}.", show_default=False)],
    source: SourceArgument,
    out: Annotated[Path, typer.Option(help="The file to write: .png, .svg or .pdf.", show_default=False)],
    nodes: NodesOption = None,
    edges: EdgesOption = None,
    graphs: GraphsOption = None,
    limit: LimitOption = None,
    method: Annotated[
        str, typer.Option(help=f"Plan by one of {', '.join(METHODS)}.", callback=one_of(METHODS))
    ] = "auto",
    component: Annotated[
        list[str] | None, typer.Option(help="Which to show, where there are more; may be given twice.")
    ] = None,
    scale: Annotated[
        str, typer.Option(help=f"Of sizes: one of {', '.join(SCALES)}.", callback=one_of(SCALES))
    ] = "auto",
    dpi: Annotated[float, typer.Option(min=10, max=2400, help="Dots per inch.")] = 150,
    seed: SeedOption = 0,
    oversize: OversizeOption = "error",
    root: RootOption = None,
    part: PartOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw one picture of SOURCE.

    KIND is sizes or distributions; search or tradeoff, of a search for limits; fill, sorted-fill or graphs-per-pack,
    of a plan; or methods, which compares the plans of all of them.
    """
    if kind not in KINDS:
        raise typer.BadParameter(f"there is no picture {kind!r}; choose one of {', '.join(KINDS)}.")
    check_ending("--out", out, [f".{ending}" for ending in PICTURE_KINDS])
    limits = _limits(nodes, edges, graphs, limit)
    histogram = _histogram(source, root, part, limits, oversize)
    unknown = [name for name in component or () if name not in histogram.components]
    if unknown:
        raise typer.BadParameter(
            f"there is no component {unknown[0]!r}; choose one of {', '.join(histogram.components)}."
        )
    subject = _Subject(histogram, limits, method, tuple(component or ()), scale, seed)
    plots.save_picture(KINDS[kind](subject), out, dpi)
    _say(out, kind, as_json)


def _histogram(source: str, root: Path | None, part: str | None, limits: Limits | None, oversize: str) -> SizeHistogram:
    """Histogram of the source, without what exceeds the limits where that is to be left out."""
    histogram = read_histogram(source, root, part)
    if limits is None:
        return histogram
    histogram, dropped = without_oversize(histogram, limits, oversize)
    if dropped:
        note(f"{dropped:,} graphs exceed the limits and were left out")
    return histogram


def _say(out: Path, kind: str, as_json: bool) -> None:
    if as_json:
        print_json({"kind": kind, "path": str(out)})
    else:
        note(f"wrote {out}")


def _name(source: str) -> str:
    """What a SOURCE is called where nothing else was said."""
    if source == "-":
        return "graphs from standard input"
    return Path(source.removeprefix("example:")).name or source


def _has(histogram: SizeHistogram, heuristic: str) -> bool:
    """Whether a heuristic can be used: "node" and "edge" need components of that kind."""
    if heuristic not in ("node", "edge"):
        return True
    return bool(components_of_kind(histogram.components, heuristic + "s"))


def _limits(nodes: int | None, edges: int | None, graphs: int | None, others: list[str] | None) -> Limits | None:
    given = by_name({"nodes": nodes, "edges": edges}, "--limit", others or [], whole)
    if not given and graphs is not None:
        raise typer.BadParameter("--graphs alone is no limit of a pack; give --nodes and --edges too.")
    return Limits.from_components(given, graphs) if given else None
