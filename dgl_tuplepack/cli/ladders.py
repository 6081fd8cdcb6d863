"""Ladders of limits on the command line: how they are given, and how plans and searches of them are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from dgl_tuplepack.cli import options
from dgl_tuplepack.cli.output import percent, print_table, say
from dgl_tuplepack.ladder import FEWEST, MOST, Ladder, as_shapes
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.search import LimitsSearch

GivenLimits = Annotated[
    list[str] | None,
    typer.Option(
        "--limits",
        metavar="NODES,EDGES[,GRAPHS]",
        help=f"Limits of a pack; or NAME=NUMBER,... by component. {FEWEST} to {MOST} times, ascending: several shapes.",
    ),
]
NumberOfShapes = Annotated[
    int | None,
    typer.Option("--shapes", min=FEWEST, max=MOST, help="Search a ladder of so many shapes with the fewest slots."),
]


def shapes_of(texts: Sequence[str]) -> Limits | Ladder:
    """Return the limits of --limits, given once or several times."""
    limits = [_limits(text) for text in texts]
    with options.usage_errors():
        return as_shapes(limits if len(limits) > 1 else limits[0])


def _limits(text: str) -> Limits:
    parts = text.split(",")
    if "=" not in text:
        if not 2 <= len(parts) <= 3:
            raise typer.BadParameter(f"--limits {text!r} must be NODES,EDGES or NODES,EDGES,GRAPHS.")
        return Limits(*(options.whole(part) for part in parts))
    maxima = options.named("--limits", parts, options.whole)
    graphs = maxima.pop("graphs", None)
    return Limits.from_components(maxima, graphs)


def bounds(limits: Any) -> str:
    """Return limits of one or several shapes, as plain data, as words."""
    shapes = limits if isinstance(limits, list) else [limits]
    return " or ".join(", ".join(f"{name} {limit:,}" for name, limit in each["maxima"].items()) for each in shapes)


def show_plan(summary: dict[str, Any]) -> None:
    """Print a plan of a ladder, as plain data."""
    names = list(summary["efficiency"])
    figures = [
        ["packs", summary["packs"]],
        ["node and edge slots of an epoch", summary["padded_slots"]],
        ["harmonic mean of efficiencies", percent(summary["harmonic_mean"])],
        ["graphs in a pack, mean", summary["graphs"] / summary["packs"]],
        ["graphs in a pack, most", summary["max_graphs"]],
        *([["graphs left out", summary["dropped"]]] if summary["dropped"] else []),
        ["seconds", summary["seconds"]],
    ]
    print_table(f"{summary['graphs']:,} graphs, planned by {summary['method']}", ["", ""], figures)
    shapes = [
        [number, *each["maxima"].values(), packs]
        for number, (each, packs) in enumerate(zip(summary["limits"], summary["packs_of_shapes"], strict=True))
    ]
    print_table("Shapes", ["shape", *names, "packs"], shapes)
    slots = [[name, percent(summary["efficiency"][name]), summary["empty_slots"][name]] for name in names]
    print_table("Slots of one epoch", ["component", "efficiency", "empty slots"], slots)


def show_search(search: LimitsSearch, rows: int) -> None:
    """Print the best ladder, and the candidates that come next."""
    names, best = list(search.best.totals), search.best
    chosen = [best, *[each for each in search if each is not best][: rows - 1]]
    table = [
        [
            " | ".join("/".join(map(str, limits.values)) for limits in each.limits),
            " | ".join(map(str, each.packs_of_shapes)), each.graphs_per_batch, *map(percent, each.efficiency.values()),
            each.padded_slots,
        ]
        for each in chosen
    ]  # fmt: skip
    headings = [f"limits ({'/'.join(names)})", "packs", "graphs/batch", *(f"eff. {name}" for name in names), "slots"]
    print_table(f"{len(search):,} ladders tried; the best first", headings, table, 0)
    for limits, packs in zip(best.limits, best.packs_of_shapes, strict=True):
        say(f"{packs:,} packs of {limits!r}")
    number = search.packs_per_batch
    say(f"batches of {best.graphs_per_batch:.1f} graphs on average: {number} pack{'s' if number > 1 else ''} each")
    more = f", packs_per_batch={number}" if number > 1 else ""
    say(f"in Python: tp.packed_loader(dataset, limits=[{', '.join(map(repr, best.limits))}]{more})")
