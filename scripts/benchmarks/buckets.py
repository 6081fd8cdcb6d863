"""Padded slots of an epoch in one shape and in several, at equal mean graphs of a batch."""

from __future__ import annotations

import time
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from dgl_tuplepack import Limits, PackPlan, SizeHistogram, load_example, pack, search_limits
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.plan import settled

# Mean graphs of a batch, and numbers of shapes.
BATCHES = (2, 4, 6, 8, 64)
SHAPES = (1, 2, 3)
CASE = "molhiv in several shapes"


def measured() -> list[dict[str, Any]]:
    """Return a row for each number of graphs and of shapes, for ogbg-molhiv's training graphs."""
    histogram = load_example("ogbg-molhiv")
    rows = []
    for graphs in BATCHES:
        for shapes in SHAPES:
            typer.echo(f"{CASE}: {graphs} graphs a batch, {shapes}", err=True)
            begin = time.perf_counter()
            plan = _plan(histogram, graphs, shapes)
            if plan is not None:
                rows.append({"graphs": graphs, "shapes": shapes, "s": time.perf_counter() - begin, **_slots(plan)})
    return rows


def _plan(histogram: SizeHistogram, graphs: int, shapes: int) -> PackPlan | None:
    """Return a plan whose packs hold about so many graphs; None where several shapes save nothing."""
    if shapes > 1:
        try:
            return pack(histogram, search_limits(histogram, graphs_per_batch=graphs, shapes=shapes).best.limits)
        except SearchError:
            return None
    try:
        limits = search_limits(histogram, graphs_per_batch=graphs).best.limits
    except SearchError:
        # The smallest limits that hold every graph hold more graphs than that: a cap is all that is left.
        limits = Limits(**histogram.maxima(), graphs=graphs)
    return pack(histogram, limits)


def _slots(plan: PackPlan) -> dict[str, Any]:
    """Return the slots of an epoch with one pack a batch, reserved ones included, and what is real of them."""
    shapes = settled(plan.made_for, [plan])
    limits = shapes if isinstance(shapes, tuple) else (shapes,)
    packs, number = plan.packs_of_shapes, plan.histogram.num_graphs
    slots = {
        "nodes": sum(n * (each.nodes + 1) for n, each in zip(packs, limits, strict=True)),
        "edges": sum(n * each.edges for n, each in zip(packs, limits, strict=True)),
        "graphs": sum(n * ((each.graphs or 0) + 1) for n, each in zip(packs, limits, strict=True)),
    }
    real = {**plan.histogram.totals(), "graphs": number}
    return {
        "limits": " | ".join(f"{each.nodes}/{each.edges}/{each.graphs}" for each in limits),
        "packs": " | ".join(map(str, packs)),
        "mean": number / plan.num_packs,
        "slots": slots,
        "efficiency": {name: real[name] / value for name, value in slots.items()},
        "padded_slots": plan.padded_slots,
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Print the rows, with the slots of nodes and edges relative to one shape."""
    table = Table(title=f"ogbg-molhiv, training graphs: {CASE}, one pack a batch")
    for heading in ("graphs asked", "limits", "packs", "mean graphs", "node slots", "edge slots", "graph slots"):
        table.add_column(heading, justify="right")
    for heading in ("efficiency %", "nodes + edges", "of one shape", "s"):
        table.add_column(heading, justify="right")
    one: dict[int, int] = {row["graphs"]: row["padded_slots"] for row in rows if row["shapes"] == 1}
    for row in rows:
        table.add_row(
            str(row["graphs"]), row["limits"], row["packs"], f"{row['mean']:.2f}",
            *(f"{value:,}" for value in row["slots"].values()),
            "/".join(f"{100 * value:.1f}" for value in row["efficiency"].values()), f"{row['padded_slots']:,}",
            f"{row['padded_slots'] / one[row['graphs']]:.3f}", f"{row['s']:.1f}",
        )  # fmt: skip
    Console(width=200).print(table)
