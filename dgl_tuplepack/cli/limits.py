"""``dgl-tuplepack limits``: search limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dgl_tuplepack.cli.app import app
from dgl_tuplepack.cli.limits_options import (
    HeuristicOption,
    OversizeOption,
    by_name,
    heuristic,
    named,
    one_of,
    real,
    usage_errors,
    value_range,
)
from dgl_tuplepack.cli.output import (
    CsvOption,
    JsonOption,
    check_output,
    percent,
    print_csv,
    print_json,
    print_table,
    say,
    warnings_as_notes,
)
from dgl_tuplepack.cli.source import PartOption, RootOption, SourceArgument, read_histogram
from dgl_tuplepack.cli.streams import note
from dgl_tuplepack.search import LimitsSearch, run, way_of
from dgl_tuplepack.search.evaluation import PACKERS

_RANGE = "FIRST:LAST[:STEP]|N,..."


@app.command()
def limits(
    source: SourceArgument,
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
    graphs: Annotated[int | None, typer.Option(min=1, max=2**63 - 1, help="Most graphs of a pack.")] = None,
    multiple_of: Annotated[
        int, typer.Option(min=1, max=2**31, help="Padded shapes are multiples of this: 8, 64, 128.")
    ] = 1,
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
            callback=one_of(PACKERS),
        ),
    ] = None,
    heuristic_name: HeuristicOption = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of everything random.")] = 0,
    effort: Annotated[float, typer.Option(min=0, help="Work of auto for each candidate; 0 is fastest.")] = 0.0,
    oversize: OversizeOption = "error",
    rows: Annotated[int, typer.Option(min=1, help="Candidates of the Pareto front to show.")] = 12,
    save: Annotated[Path | None, typer.Option(help="Write the search to this file, for LimitsSearch.load.")] = None,
    root: RootOption = None,
    part: PartOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Search limits for SOURCE that fill packs well.

    Advise the fewest slots per pack (nodes plus edges) whose efficiency is within 0.5 % of the best. With --nodes,
    --edges and --range only these limits are tried. With --target, --graphs-per-batch or --budget, advise the smallest
    limits that reach an efficiency, the fullest packs of a batch size, or the largest limits within a budget.
    """
    check_output(as_json, as_csv)
    plain = {name: None if text is None else value_range(text) for name, text in (("nodes", nodes), ("edges", edges))}
    weighed = heuristic(heuristic_name)
    with usage_errors():
        way = way_of(
            ranges=by_name(plain, "--range", range_ or [], value_range) or None, target=_target(target or []),
            graphs_per_batch=graphs_per_batch, budget=budget, cost=named("--cost", cost or [], real) or None,
            tolerance=tolerance, reach=reach, plans=plans,
        )  # fmt: skip
    histogram = read_histogram(source, root, part)
    with usage_errors():
        way = way.for_histogram(histogram)
    with warnings_as_notes():
        found = run(
            way, histogram, graphs=graphs, multiple_of=multiple_of, method=method, heuristic=weighed, seed=seed,
            effort=effort, oversize=oversize,
        )  # fmt: skip
    if save is not None:
        found.save(save)
    if as_json:
        print_json(found.to_dict())
    elif as_csv:
        print_csv(found.to_csv())
    else:
        _show(found, rows)
    if save is not None:
        note(f"wrote {save}")


def _target(texts: list[str]) -> float | dict[str, float] | None:
    """Return one number for the harmonic mean, or numbers by component."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return real(texts[0])
    return named("--target", texts, real)


def _show(found: LimitsSearch, rows: int) -> None:
    """Print the best candidate and the candidates of the Pareto front that are closest to it."""
    best, front = found.best, found.pareto
    near = sorted(front, key=lambda c: abs(c.slots - best.slots))[:rows]
    shown = sorted([*near, *([] if best in near else [best])], key=lambda c: (c.slots, c.score))
    headings = [*found.components, "packs", *(f"eff. {n}" for n in found.components), "harm. mean", "graphs/pack"]
    table = [
        [*c.limits.values, c.packs, *map(percent, c.efficiency.values()), percent(c.harmonic_mean), c.graphs_per_pack]
        for c in shown
    ]
    title = f"{len(found):,} candidates tried ({found.way}, by {found.method}); the best, and the Pareto front"
    print_table(title, headings, table, shown.index(best))
    empty = ", ".join(f"{value:,} {name}" for name, value in best.empty_slots.items())
    say(f"best: {best.limits!r}")
    say(f"      {best.packs:,} packs of {best.graphs_per_pack:.1f} graphs, {best.most_graphs:,} at most")
    say(f"      padded slots of an epoch: {empty}")
    if found.dropped:
        say(f"      {found.dropped:,} graphs exceed the limits and were left out")
