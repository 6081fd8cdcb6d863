"""``dgl-tuplepack limits``: search limits."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dgl_tuplepack.cli import buckets, options
from dgl_tuplepack.cli.output import percent, print_result, print_table, save_to, say
from dgl_tuplepack.cli.source import read_histogram
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.search import LimitsSearch, search_limits, way_of
from dgl_tuplepack.search.evaluation import PACKERS
from dgl_tuplepack.search.settings import AUTO

# Graphs of a batch, if the options do not ask for other limits.
GRAPHS_PER_BATCH = 64

_RANGE = "FIRST:LAST[:STEP]|N,..."


def limits(
    source: options.Source,
    graphs_per_batch: options.GraphsPerBatch = None,
    packs_per_batch: Annotated[
        int | None, typer.Option(min=1, help="Packs of such a batch (default: 2 where that is possible).")
    ] = None,
    smallest: Annotated[
        bool, typer.Option("--smallest", help="Smallest limits that are about as full as packs get.")
    ] = False,
    nodes: Annotated[str | None, typer.Option(metavar=_RANGE, help="Node limits to try, LAST included.")] = None,
    edges: Annotated[str | None, typer.Option(metavar=_RANGE, help="Edge limits to try.")] = None,
    range_: Annotated[
        list[str] | None, typer.Option("--range", metavar=f"NAME={_RANGE}", help="Limits of another component to try.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="FRACTION|NAME=FRACTION", help="Smallest limits that reach this efficiency."),
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
    shapes: buckets.NumberOfShapes = None,
    rows: Annotated[int, typer.Option(min=1, help="Candidates of the Pareto front to show.")] = 12,
    save: Annotated[Path | None, typer.Option(help="Write the search to this file, for LimitsSearch.load.")] = None,
    root: options.Root = None,
    part: options.Part = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Search limits for SOURCE: "I used batch_size=64" is --graphs-per-batch 64, and the default.

    Advise the fullest limits whose batches hold so many graphs on average, and the packs of a batch. With --smallest,
    advise the fewest slots per pack (nodes plus edges) whose efficiency is within 0.5 % of the best; with --nodes,
    --edges and --range only these limits are tried. With --target or --budget, advise the smallest limits that reach an
    efficiency, or the largest limits within a budget.
    """
    options.check_output(as_json, as_csv)
    plain = {n: None if t is None else options.value_range(t) for n, t in (("nodes", nodes), ("edges", edges))}
    asked: dict[str, Any] = {
        "ranges": options.by_name(plain, "--range", range_, options.value_range) or None, "target": _target(target),
        "graphs_per_batch": graphs_per_batch, "packs_per_batch": packs_per_batch, "budget": budget,
        "cost": options.named("--cost", cost, options.real) or None, "tolerance": tolerance, "reach": reach,
        "plans": plans,
    }  # fmt: skip
    settings: dict[str, Any] = {
        "graphs": graphs, "multiple_of": multiple_of, "method": method,
        "heuristic": options.heuristic(heuristic_name), "seed": seed, "effort": effort, "oversize": oversize,
    }  # fmt: skip
    by_default = _is_default(asked, smallest)
    if by_default:
        asked["graphs_per_batch"] = GRAPHS_PER_BATCH
    if asked["graphs_per_batch"] is not None:
        asked["packs_per_batch"] = packs_per_batch or AUTO
    elif shapes is not None:
        raise typer.BadParameter("--shapes is for batches of a number of graphs; give --graphs-per-batch.")
    # What is wrong in the options themselves, or for these components, is found before the search.
    with options.usage_errors():
        way = way_of(**asked)
    histogram = read_histogram(source, root, part)
    if by_default:
        asked["graphs_per_batch"] = min(GRAPHS_PER_BATCH, histogram.num_graphs)
        way = way_of(**asked)
    with options.usage_errors():
        way.for_histogram(histogram)
    if shapes is not None:
        if save is not None or as_csv:
            raise typer.BadParameter("a search of several shapes is not saved, and has no CSV; use --json.")
        found = search_limits(histogram, shapes=shapes, **asked, **settings)
        print_result(found.to_dict, lambda: "", partial(buckets.show_search, found), as_json=as_json, as_csv=as_csv)
        return
    try:
        search = search_limits(histogram, **asked, **settings)
    except SearchError:
        if not by_default:
            raise
        # Nobody asked for this number, which the largest graph rules out.
        typer.echo(f"batches that hold every graph have more than {GRAPHS_PER_BATCH} graphs; see --smallest", err=True)
        search = search_limits(histogram, plans=plans, **settings)
    save_to(save, search.save)
    print_result(search.to_dict, search.to_csv, lambda: _show(search, rows), as_json=as_json, as_csv=as_csv)


def _is_default(asked: dict[str, Any], smallest: bool) -> bool:
    """Return whether the options leave open which limits are searched; refuse those that --smallest excludes."""
    given = [name for name, value in asked.items() if value is not None]
    if smallest and set(given) - {"tolerance", "reach", "plans"}:
        raise typer.BadParameter(f"--smallest is a search of its own; leave it, or {', '.join(given)}, out.")
    return not smallest and set(given) <= {"plans", "packs_per_batch"}


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
    packs = search.packs_per_batch
    say(
        f"      batches of {search.graphs_per_batch:.1f} graphs on average: {packs} pack{'s' if packs > 1 else ''} each"
    )
    say(f"      padded slots of an epoch: {empty}")
    if search.dropped:
        say(f"      {search.dropped:,} graphs exceed the limits and were left out")
    if search.way == "graphs_per_batch":
        say(f"      in Python: tp.packed_loader(dataset, graphs_per_batch={search.aim['graphs_per_batch']})")
