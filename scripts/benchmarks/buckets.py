"""Measure padded slots per epoch with one shape and with shape buckets, at equal mean graphs per batch."""

from __future__ import annotations

import time
from typing import Any

import typer

from dgl_tuplepack import Limits, PackPlan, SizeHistogram, load_example, pack, search_limits
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.planning.plan import static_limits

# Mean graphs per batch, and numbers of shapes.
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
    """Return a plan whose packs hold about `graphs` graphs; None if several shapes save nothing."""
    if shapes > 1:
        try:
            return pack(histogram, search_limits(histogram, graphs_per_batch=graphs, shapes=shapes).best.limits)
        except SearchError:
            return None
    try:
        limits = search_limits(histogram, graphs_per_batch=graphs).best.limits
    except SearchError:
        # Even the smallest limits that hold every graph hold more graphs, so only a cap can reach this number.
        limits = Limits(**histogram.maxima(), graphs=graphs)
    return pack(histogram, limits)


def _slots(plan: PackPlan) -> dict[str, Any]:
    """Return the slots of an epoch with one pack per batch, including reserved slots, and the efficiency."""
    shapes = static_limits(plan.made_for, [plan])
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


def rows_of(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the table; node and edge slots are also relative to one shape."""
    one: dict[int, int] = {result["graphs"]: result["padded_slots"] for result in results if result["shapes"] == 1}
    return [
        {
            "graphs asked": result["graphs"], "limits": result["limits"], "packs": result["packs"],
            "mean graphs": result["mean"], **{f"{name[:-1]} slots": slots for name, slots in result["slots"].items()},
            "efficiency %": "/".join(f"{100 * value:.1f}" for value in result["efficiency"].values()),
            "nodes + edges": result["padded_slots"],
            "of one shape": f"{result['padded_slots'] / one[result['graphs']]:.3f}", "seconds_s": result["s"],
        }
        for result in results
    ]  # fmt: skip
