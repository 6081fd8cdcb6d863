"""``dgl-tuplepack limits``: search limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dgl_tuplepack.cli import options
from dgl_tuplepack.cli.output import percent, print_result, print_table, save_to, say
from dgl_tuplepack.cli.source import read_histogram
from dgl_tuplepack.search import LimitsSearch, search_limits, way_of
from dgl_tuplepack.search.evaluation import PACKERS

_RANGE = "FIRST:LAST[:STEP]|N,..."


def limits(
    source: options.Source,
    nodes: Annotated[str | None, typer.Option(metavar=_RANGE, help="Node limits to try, LAST included.")] = None,
    edges: Annotated[str | None, typer.Option(metavar=_RANGE, help="Edge limits to try.")] = None,
    range_: Annotated[
        list[str] | None, typer.Option("--range", metavar=f"NAME={_RANGE}", help="Limits of another component to try.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="FRACTION|NAME=FRACTION", help="Smallest limits that reach this efficiency."),
    ] = None,
    graphs_per_batch: Annotated[
        int | None, typer.Option(min=1, help="Fullest packs with about so many graphs on average.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Largest limits whose padded shape costs no more: slots, or --cost.")
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="Cost of one slot for --budget, such as bytes; for each component."),
    ] = None,
    graphs: options.Graphs = None,
    multiple_of: options.MultipleOf = 1,
    tolerance: Annotated[
        float | None, typer.Option(help="Fraction of the best efficiency to give up for fewer slots (default: 0.005).")
    ] = None,
    reach: Annotated[
        float | None, typer.Option(help="Largest limits, in multiples of what the largest graph needs (default: 3).")
    ] = None,
    plans: Annotated[
        int | None, typer.Option(min=1, help="Most candidates to plan (default: 200); ranges are planned completely.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"How to plan candidates: {', '.join(PACKERS)} (default: auto; with a heuristic: best_fit).",
            callback=options.one_of(PACKERS),
        ),
    ] = None,
    heuristic_name: options.HeuristicName = None,
    seed: options.Seed = 0,
    effort: Annotated[float, typer.Option(min=0, help="Work of auto for each candidate; 0 is fastest.")] = 0.0,
    oversize: options.Oversize = "error",
    rows: Annotated[int, typer.Option(min=1, help="Candidates of the Pareto front to show.")] = 12,
    save: Annotated[Path | None, typer.Option(help="Write the search to this file, for LimitsSearch.load.")] = None,
    root: options.Root = None,
    part: options.Part = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Search limits for SOURCE that fill packs well.

    Advise the fewest slots per pack (nodes plus edges) whose efficiency is within 0.5 % of the best. With --nodes,
    --edges and --range only these limits are tried. With --target, --graphs-per-batch or --budget, advise the smallest
    limits that reach an efficiency, the fullest packs of a batch size, or the largest limits within a budget.
    """
    options.check_output(as_json, as_csv)
    plain = {n: None if t is None else options.value_range(t) for n, t in (("nodes", nodes), ("edges", edges))}
    asked: dict[str, Any] = {
        "ranges": options.by_name(plain, "--range", range_, options.value_range) or None, "target": _target(target),
        "graphs_per_batch": graphs_per_batch, "budget": budget,
        "cost": options.named("--cost", cost, options.real) or None, "tolerance": tolerance, "reach": reach,
        "plans": plans,
    }  # fmt: skip
    heuristic = options.heuristic(heuristic_name)
    # What is wrong in the options themselves, or for these components, is found before the search.
    with options.usage_errors():
        way = way_of(**asked)
    histogram = read_histogram(source, root, part)
    with options.usage_errors():
        way.for_histogram(histogram)
    search = search_limits(
        histogram, **asked, graphs=graphs, multiple_of=multiple_of, method=method, heuristic=heuristic, seed=seed,
        effort=effort, oversize=oversize,
    )  # fmt: skip
    save_to(save, search.save)
    print_result(search.to_dict, search.to_csv, lambda: _show(search, rows), as_json=as_json, as_csv=as_csv)


def _target(texts: list[str] | None) -> float | dict[str, float] | None:
    """Return one number for the harmonic mean, or numbers by component."""
    if texts and len(texts) == 1 and "=" not in texts[0]:
        return options.real(texts[0])
    return options.named("--target", texts, options.real) or None


def _show(search: LimitsSearch, rows: int) -> None:
    """Print the best candidate and the candidates of the Pareto front that are closest to it."""
    best, front = search.best, search.pareto
    near = sorted(front, key=lambda c: abs(c.slots - best.slots))[:rows]
    shown = sorted([*near, *([] if best in near else [best])], key=lambda c: (c.slots, c.score))
    headings = [*search.components, "packs", *(f"eff. {n}" for n in search.components), "harm. mean", "graphs/pack"]
    table = [
        [*c.limits.values, c.packs, *map(percent, c.efficiency.values()), percent(c.harmonic_mean), c.graphs_per_pack]
        for c in shown
    ]
    title = f"{len(search):,} candidates tried ({search.way}, by {search.method}); the best, and the Pareto front"
    print_table(title, headings, table, shown.index(best))
    empty = ", ".join(f"{value:,} {name}" for name, value in best.empty_slots.items())
    say(f"best: {best.limits!r}")
    say(f"      {best.packs:,} packs of {best.graphs_per_pack:.1f} graphs, {best.most_graphs:,} at most")
    say(f"      padded slots of an epoch: {empty}")
    if search.dropped:
        say(f"      {search.dropped:,} graphs exceed the limits and were left out")
