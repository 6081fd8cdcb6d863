"""``dgl-tuplepack plan``: pack within given limits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dgl_tuplepack._csv import csv_text
from dgl_tuplepack.bounds import without_oversize
from dgl_tuplepack.cli import ladders, options
from dgl_tuplepack.cli.output import percent, print_result, print_table, save_to
from dgl_tuplepack.cli.source import read_histogram
from dgl_tuplepack.ladder import Ladder, all_of
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.metrics import summarise
from dgl_tuplepack.packing import pack


def plan(
    source: options.Source,
    nodes: options.Nodes = None,
    edges: options.Edges = None,
    graphs: options.Graphs = None,
    limit: options.Limit = None,
    given: ladders.GivenLimits = None,
    method: options.Method = "auto",
    heuristic_name: options.HeuristicName = None,
    seed: options.Seed = 0,
    effort: Annotated[float, typer.Option(min=0, help="Work that auto may do; 1 is a few seconds' worth.")] = 1.0,
    oversize: options.Oversize = "error",
    save: Annotated[
        Path | None, typer.Option(help="Write the plan here, for PackPlan.load and PackBatchSampler(plan=...).")
    ] = None,
    root: options.Root = None,
    part: options.Part = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Pack the graphs of SOURCE within limits; show packs, the proven bound, the gap and the efficiencies."""
    options.check_output(as_json, as_csv)
    limits: Limits | Ladder | None = options.given_limits(nodes, edges, graphs, limit)
    if given and (limits is not None or graphs is not None):
        raise typer.BadParameter("--limits names every limit; leave --nodes, --edges, --graphs and --limit out.")
    limits = ladders.shapes_of(given) if given else limits
    heuristic = options.heuristic(heuristic_name) or "product"
    if limits is None:
        raise typer.BadParameter("limits are missing; give --nodes and --edges (dgl-tuplepack limits finds some).")
    histogram = read_histogram(source, root, part)
    limits = limits.aligned(histogram.components)
    histogram, dropped = without_oversize(histogram, all_of(limits)[-1], oversize)
    begin = time.perf_counter()
    # It moves in a terminal only; how long packing takes is not known beforehand.
    with Console(stderr=True).status(f"packing {histogram.num_graphs:,} graphs"):
        packed = pack(histogram, limits, method, heuristic=heuristic, seed=seed, effort=effort)
    seconds = time.perf_counter() - begin
    save_to(save, packed.save)
    summary = {**summarise(packed), "limits": limits.to_dict(), "dropped": dropped, "seconds": seconds}
    show = ladders.show_plan if isinstance(limits, Ladder) else _show
    print_result(
        lambda: summary, lambda: csv_text([_row(summary)]), lambda: show(summary), as_json=as_json, as_csv=as_csv
    )  # fmt: skip


def _row(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a summary whose lists, of the shapes of a ladder, are numbered columns."""
    row: dict[str, Any] = {}
    for name, value in summary.items():
        row |= {f"{name} {i}": v for i, v in enumerate(value)} if isinstance(value, list) else {name: value}
    return row


def _show(summary: dict[str, Any]) -> None:
    print_table(f"{summary['graphs']:,} graphs, planned by {summary['method']}", ["", ""], _figures(summary))
    effective = summary["effective_limits"]["maxima"]
    rows = [
        [name, limit, percent(summary["efficiency"][name]), summary["empty_slots"][name], effective[name],
         percent(summary["effective_efficiency"][name])]
        for name, limit in summary["limits"]["maxima"].items()
    ]  # fmt: skip
    headings = ["component", "limit", "efficiency", "empty slots", "most used", "efficiency of that"]
    print_table("Slots of one epoch", headings, rows)


def _figures(summary: dict[str, Any]) -> list[list[Any]]:
    packs, gap = summary["packs"], summary["gap"]
    proven = "proven optimal" if gap == 0 else f"{gap / summary['lower_bound']:.3%} above"
    cap = summary["limits"]["graphs"]
    return [
        ["packs", packs],
        ["lower bound", summary["lower_bound"]],
        ["gap", f"{gap:,} ({proven})"],
        ["harmonic mean of efficiencies", percent(summary["harmonic_mean"])],
        ["graphs in a pack, mean", summary["graphs"] / packs],
        ["graphs in a pack, most", f"{summary['max_graphs']:,}" + (f" (cap {cap:,})" if cap is not None else "")],
        *([["graphs left out", summary["dropped"]]] if summary["dropped"] else []),
        ["seconds", summary["seconds"]],
    ]
