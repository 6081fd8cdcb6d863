"""``dgl-tuplepack plan``: pack within given limits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dgl_tuplepack._core.text import csv_text
from dgl_tuplepack.planning.bounds import without_oversize
from dgl_tuplepack.planning.buckets import all_of
from dgl_tuplepack.planning.packing import pack
from dgl_tuplepack.planning.plan import summarise
from dgl_tuplepack.tools.cli import options
from dgl_tuplepack.tools.cli.limits import search_for_plan
from dgl_tuplepack.tools.cli.output import of_batches, percent, print_line, print_result, print_table, save_to
from dgl_tuplepack.tools.cli.source import read_histogram


def plan(
    source: options.Source,
    given: options.GivenLimits = None,
    graphs_per_batch: options.GraphsPerBatch = None,
    method: options.Method = "auto",
    heuristic_name: options.HeuristicName = None,
    seed: options.Seed = 0,
    effort: Annotated[
        float, typer.Option(metavar="N", min=0, help="Amount of work for auto; 1 takes at most about a second.")
    ] = 1.0,
    oversize: options.Oversize = "error",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the plan to this file, for PackPlan.load and packed_loader(plan=...)."),
    ] = None,
    root: options.Root = None,
    split: options.Split = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Pack the graphs of SOURCE within limits; show the packs, the lower bound, the gap and the efficiencies.

    Without --limits, find limits for --graphs-per-batch, as dgl-tuplepack limits does.
    """
    options.check_output(as_json, as_csv)
    options.check_file("--out", out)
    limits, packs = options.given_limits(given, graphs_per_batch), 1
    heuristic = options.heuristic(heuristic_name) or "product"
    histogram = read_histogram(source, root, split)
    if limits is None:
        search = search_for_plan(histogram, graphs_per_batch, oversize)
        limits, packs = search.best.limits, search.packs_per_batch
    limits = limits.aligned(histogram.components)
    # Only graphs that exceed the largest shape are too large.
    histogram, dropped = without_oversize(histogram, all_of(limits)[-1], oversize)
    begin = time.perf_counter()
    with Console(stderr=True).status(f"packing {histogram.num_graphs:,} graphs"):
        packed = pack(histogram, limits, method, heuristic=heuristic, seed=seed, effort=effort)
    summary = summarise(packed) | {"limits": limits.to_dict(), "packs_per_batch": packs, "dropped": dropped}
    summary["seconds"] = time.perf_counter() - begin
    save_to(out, packed.save)
    print_result(
        lambda: summary, lambda: csv_text([_row(summary)]), lambda: _show(summary), as_json=as_json, as_csv=as_csv
    )  # fmt: skip


def _row(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a summary as one CSV row; a list with a value for each shape bucket becomes numbered columns."""
    row: dict[str, Any] = {}
    for name, value in summary.items():
        row |= {f"{name} {i}": v for i, v in enumerate(value)} if isinstance(value, list) else {name: value}
    return row


def _show(summary: dict[str, Any]) -> None:
    """Print the figures of a plan, then a table with a row for each component."""
    print_table(f"{summary['graphs']:,} graphs, planned by {summary['method']}", ["", ""], _figures(summary))
    # limits: plain data of one `Limits`, or a list with an entry for each shape bucket.
    effective, limits = summary["effective_limits"]["maxima"], summary["limits"]
    shapes = limits if isinstance(limits, list) else [limits]
    rows = [
        [name, " | ".join(f"{each['maxima'][name]:,}" for each in shapes), percent(efficiency),
         summary["empty_slots"][name], effective[name], percent(summary["effective_efficiency"][name])]
        for name, efficiency in summary["efficiency"].items()
    ]  # fmt: skip
    headings = ["component", "limit", "efficiency", "empty slots", "largest content", "efficiency at largest content"]
    print_table("Slots of one epoch", headings, rows)
    packs = summary["packs_per_batch"]
    print_line(of_batches(summary["graphs"] / -(-summary["packs"] // packs), packs))


def _figures(summary: dict[str, Any]) -> list[list[Any]]:
    """Return the rows (name, value) of the first table about a plan."""
    packs, gap, limits = summary["packs"], summary["gap"], summary["limits"]
    proven = "proven optimal" if gap == 0 else f"{gap / summary['lower_bound']:.3%} above"
    bound = [["lower bound", summary["lower_bound"]], ["gap", f"{gap:,} ({proven})"]]
    if isinstance(limits, list):
        # With shape buckets, plans minimise slots, not packs.
        of_shapes = " | ".join(f"{number:,}" for number in summary["packs_of_shapes"])
        bound = [["packs of each shape", of_shapes], ["node and edge slots of an epoch", summary["padded_slots"]]]
    cap = None if isinstance(limits, list) else limits["graphs"]
    return [
        ["packs", packs],
        *bound,
        ["harmonic mean of efficiencies", percent(summary["harmonic_mean"])],
        ["graphs in a pack, mean", summary["graphs"] / packs],
        ["graphs in a pack, most", f"{summary['max_graphs']:,}" + (f" (cap {cap:,})" if cap is not None else "")],
        *([["graphs left out", summary["dropped"]]] if summary["dropped"] else []),
        ["seconds", summary["seconds"]],
    ]
