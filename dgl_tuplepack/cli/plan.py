"""``dgl-tuplepack plan``: pack within given limits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dgl_tuplepack.bounds import without_oversize
from dgl_tuplepack.cli.app import app
from dgl_tuplepack.cli.limits_options import HeuristicOption, OversizeOption, by_name, heuristic, one_of, whole
from dgl_tuplepack.cli.output import (
    CsvOption,
    JsonOption,
    check_output,
    csv_text,
    percent,
    print_csv,
    print_json,
    print_table,
)
from dgl_tuplepack.cli.source import PartOption, RootOption, SourceArgument, read_histogram
from dgl_tuplepack.cli.streams import note
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.metrics import summarise
from dgl_tuplepack.packing import METHODS, pack


@app.command()
def plan(
    source: SourceArgument,
    nodes: Annotated[int | None, typer.Option(min=1, help="Most nodes of a pack.", show_default=False)] = None,
    edges: Annotated[int | None, typer.Option(min=1, help="Most edges of a pack.", show_default=False)] = None,
    graphs: Annotated[int | None, typer.Option(min=1, help="Most graphs of a pack.", show_default=False)] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="Limit of any component, as nodes:user=90.", show_default=False),
    ] = None,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.", callback=one_of(METHODS))] = "auto",
    heuristic_name: HeuristicOption = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Decides everything random.")] = 0,
    effort: Annotated[float, typer.Option(min=0, help="Work that auto may do; 1 is a few seconds' worth.")] = 1.0,
    oversize: OversizeOption = "error",
    save: Annotated[
        Path | None,
        typer.Option(help="Write the plan here, for PackPlan.load and PackBatchSampler(plan=...).", show_default=False),
    ] = None,
    root: RootOption = None,
    part: PartOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Pack the graphs of SOURCE within limits; show packs, the proven bound, the gap and the efficiencies."""
    check_output(as_json, as_csv)
    given = by_name({"nodes": nodes, "edges": edges}, "--limit", limit or [], whole)
    weighed = heuristic(heuristic_name) or "product"
    if not given:
        raise typer.BadParameter("limits are missing; give --nodes and --edges (dgl-tuplepack limits finds some).")
    histogram = read_histogram(source, root, part)
    limits = Limits.from_components(given, graphs).aligned(histogram.components)
    histogram, dropped = without_oversize(histogram, limits, oversize)
    begin = time.perf_counter()
    # Moves in a terminal alone; how long a search takes is not known before.
    with Console(stderr=True).status(f"packing {histogram.num_graphs:,} graphs"):
        found = pack(histogram, limits, method, heuristic=weighed, seed=seed, effort=effort)
    seconds = time.perf_counter() - begin
    if save is not None:
        found.save(save)
    summary = {**summarise(found), "limits": limits.to_dict(), "dropped": dropped, "seconds": seconds}
    if as_json:
        print_json(summary)
    elif as_csv:
        print_csv(csv_text([summary]))
    else:
        _show(summary)
    if save is not None:
        note(f"wrote {save}")


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
