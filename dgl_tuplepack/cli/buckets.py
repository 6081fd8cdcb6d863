"""Shape buckets on the command line: how limits of several shapes are given, and how their plans are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from dgl_tuplepack.buckets import FEWEST, MOST, Buckets, as_shapes
from dgl_tuplepack.cli import options
from dgl_tuplepack.cli.output import say
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
    typer.Option("--shapes", min=FEWEST, max=MOST, help="Search that many shape buckets with the fewest slots."),
]


def shapes_of(texts: Sequence[str]) -> Limits | Buckets:
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


def show_search(search: LimitsSearch) -> None:
    """Print the best shape buckets."""
    best, number = search.best, search.packs_per_batch
    for limits, packs in zip(best.limits, best.packs_of_shapes, strict=True):
        say(f"{packs:,} packs of {limits!r}")
    say(f"batches of {best.graphs_per_batch:.1f} graphs on average: {number} pack{'s' if number > 1 else ''} each")
    say(f"node and edge slots of an epoch: {best.padded_slots:,} (tried: {len(search)})")
    more = f", packs_per_batch={number}" if number > 1 else ""
    say(f"in Python: tp.packed_loader(dataset, limits=[{', '.join(map(repr, best.limits))}]{more})")
