"""``dgl-tuplepack limits`` and ``dgl-tuplepack plan``: search for limits, and pack within limits."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dgl_tuplepack._core.files import csv_text
from dgl_tuplepack.planning.bounds import without_oversize
from dgl_tuplepack.planning.buckets import FEWEST, MOST, all_of
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.packing import pack
from dgl_tuplepack.planning.plan import summarise
from dgl_tuplepack.planning.search import GRAPHS_PER_BATCH, LimitsSearch, search_for_batches, search_limits
from dgl_tuplepack.planning.search.strategies import AUTO, aim_for, strategy_of
from dgl_tuplepack.tools.cli import options
from dgl_tuplepack.tools.cli.output import (
    note,
    of_batches,
    percent,
    print_csv,
    print_json,
    print_line,
    print_table,
    save_to,
)
from dgl_tuplepack.tools.cli.sources import read_histogram

PacksPerBatch = Annotated[int | None, options.number("Packs per batch; default: 2 if possible.")]
Target = Annotated[
    list[str] | None, typer.Option(metavar="FRACTION|NAME=FRACTION", help="Smallest limits that reach this efficiency.")
]
Budget = Annotated[
    float | None,
    typer.Option(
        metavar="N", min=0, help="Largest limits whose padded shape costs at most this, in slots or in units of --cost."
    ),
]
Cost = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=NUMBER", help="Cost of one slot for --budget, such as bytes; once per component."),
]
Shapes = Annotated[
    int | None,
    typer.Option(metavar="N", min=FEWEST, max=MOST, help="Search for this many shape buckets with the fewest slots."),
]


def limits(
    source: options.Source,
    graphs_per_batch: options.GraphsPerBatch = None,
    packs_per_batch: PacksPerBatch = None,
    smallest: Annotated[
        bool, typer.Option("--smallest", help="Smallest limits with an efficiency within 0.5 % of the best.")
    ] = False,
    target: Target = None,
    budget: Budget = None,
    cost: Cost = None,
    shapes: Shapes = None,
    max_graphs: options.MaxGraphs = None,
    multiple_of: options.MultipleOf = 1,
    oversize: options.Oversize = "error",
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Compare the padding of batch sizes around --graphs-per-batch, exact or packed."
        ),
    ] = False,
    rows: Annotated[int, options.number("Candidates of the Pareto front to show.")] = 12,
    root: options.Root = None,
    split: options.Split = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Find limits for SOURCE, for batches of --graphs-per-batch graphs or for another aim.

    Advise the limits with the highest efficiency whose batches hold that many graphs on average, and the number of
    packs per batch. With --smallest, advise the limits with the fewest slots per pack (nodes plus edges) whose
    efficiency is within 0.5 % of the best. With --target, advise the smallest limits that reach an efficiency. With
    --budget, advise the largest limits within the budget. With --compare, show how much padding batches of exactly that
    many graphs need, and packs, for several numbers of graphs.
    """
    options.check_output(as_json, as_csv)
    # The arguments that select the strategy of `search_limits`.
    selecting = {
        "graphs_per_batch": graphs_per_batch,
        "packs_per_batch": packs_per_batch,
        "target": _target(target),
        "budget": budget,
        "cost": options.named("--cost", cost, options.real) or None,
    }
    asked: dict[str, Any] = {name: value for name, value in selecting.items() if value is not None}
    if compare:
        others: dict[str, Any] = {name: value for name, value in selecting.items() if name != "graphs_per_batch"}
        others |= {"smallest": smallest, "shapes": shapes, "max_graphs": max_graphs, "csv": as_csv}
        others |= {"multiple_of": multiple_of > 1, "oversize": oversize != "error"}
        if wrong := [name.replace("_", "-") for name, is_given in others.items() if is_given]:
            raise typer.BadParameter(f"--compare cannot be combined with --{wrong[0]}; leave out one of them.")
        _compare(read_histogram(source, root, split), graphs_per_batch, as_json)
        return
    # Report invalid options before the sizes are read, because reading may take long.
    aim = _other_aim(asked, smallest, shapes)
    histogram = read_histogram(source, root, split)
    settings: dict[str, Any] = {"graphs": max_graphs, "multiple_of": multiple_of, "oversize": oversize}
    if aim is None:
        search = searched(histogram, graphs_per_batch, packs_per_batch, shapes=shapes, **settings)
    else:
        with options.usage_errors():
            # Raises an error if an option names a component that the graphs do not have.
            aim_for(aim, histogram)
        search = search_limits(histogram, **asked, **settings)
    if as_json:
        print_json(search.to_dict())
    elif as_csv:
        print_csv(search.to_csv())
    elif shapes is None:
        _show(search, rows)
    else:
        _show_shapes(search)


def _compare(histogram: SizeHistogram, graphs_per_batch: int | None, as_json: bool) -> None:
    # This import loads kernels, which --help and wrong usage do not need.
    from dgl_tuplepack.tools.batch_sizes import compare_batch_sizes, table_of, use_of

    if graphs_per_batch is None:
        graphs_per_batch = min(GRAPHS_PER_BATCH, histogram.num_graphs)
    _check_number(histogram, graphs_per_batch)
    found = compare_batch_sizes(histogram, graphs_per_batch)
    if as_json:
        print_json(found)
        return
    graphs, tried = found["graphs"], found["graphs_tried"]
    sample = f" (exact batches: from {tried:,} of them)" if tried < graphs else ""
    print_table(
        f"Padding of batches relative to their content, for {graphs:,} graphs{sample}",
        *table_of(found, histogram.components),
    )
    print_line(f"in Python: {use_of(graphs_per_batch)}")


def _other_aim(asked: dict[str, Any], smallest: bool, shapes: int | None) -> dict[str, Any] | None:
    """Return the aim of the search that the options select; None for the default, a search by graphs per batch."""
    if smallest and asked:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
        raise typer.BadParameter(f"--smallest cannot be combined with {names}; leave out --smallest or {names}.")
    if not smallest and asked.keys() <= {"graphs_per_batch", "packs_per_batch"}:
        return None
    if shapes is not None:
        raise typer.BadParameter(
            "--shapes can be combined with --graphs-per-batch, but not with --smallest, --target, --budget or --cost."
        )
    with options.usage_errors():
        return strategy_of(**asked)[1]


def searched(
    histogram: SizeHistogram, graphs_per_batch: int | None, packs_per_batch: int | None = None, **settings: Any
) -> LimitsSearch:
    """Find limits for --graphs-per-batch, or for the default number of graphs per batch."""
    packs = packs_per_batch or AUTO
    if graphs_per_batch is not None:
        _check_number(histogram, graphs_per_batch)
        return search_limits(histogram, graphs_per_batch=graphs_per_batch, packs_per_batch=packs, **settings)
    search = search_for_batches(histogram, packs_per_batch=packs, **settings)
    if search.way != "graphs_per_batch":
        note(
            f"the largest graph, or --max-graphs, rules out batches of {GRAPHS_PER_BATCH} graphs; searched for the "
            "smallest limits instead, as `dgl-tuplepack limits --smallest` does"
        )
    return search


def _check_number(histogram: SizeHistogram, graphs_per_batch: int) -> None:
    """Report bad usage if `graphs_per_batch` exceeds the number of all graphs."""
    with options.usage_errors():
        aim_for(strategy_of(graphs_per_batch=graphs_per_batch)[1], histogram)


def search_for_plan(histogram: SizeHistogram, graphs_per_batch: int | None, oversize: str) -> LimitsSearch:
    """Find limits for a plan. Do not warn about dropped graphs, since planning warns about them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return searched(histogram, graphs_per_batch, oversize=oversize)


def _target(texts: list[str] | None) -> float | dict[str, float] | None:
    """Return one target for the harmonic mean of the efficiencies, or one per component; None without --target."""
    if texts and len(texts) == 1 and "=" not in texts[0]:
        return options.real("--target", texts[0])
    return options.named("--target", texts, options.real) or None


def _show(search: LimitsSearch, rows: int) -> None:
    """Print the best candidate, and the `rows` candidates of the Pareto front with the closest slots per pack to it."""
    best, front = search.best, search.pareto
    near = sorted(front, key=lambda c: abs(c.slots - best.slots))[:rows]
    shown = sorted([*near, *([] if best in near else [best])], key=lambda c: (c.slots, c.harmonic_mean))
    headings = [*search.components, "packs", *(f"eff. {n}" for n in search.components), "harm. mean", "graphs/pack"]
    table = [
        [*c.limits.values, c.packs, *map(percent, c.efficiency.values()), percent(c.harmonic_mean), c.graphs_per_pack]
        for c in shown
    ]
    title = f"{len(search):,} candidates tried ({search.way}): the best and the Pareto front"
    print_table(title, headings, table, shown.index(best))
    empty = ", ".join(f"{value:,} {name}" for name, value in best.empty_slots.items())
    print_line(f"best: {best.limits!r}")
    print_line(f"      {best.packs:,} packs of {best.graphs_per_pack:.1f} graphs")
    print_line(f"      {of_batches(search.graphs_per_batch, search.packs_per_batch)}")
    print_line(f"      empty slots of an epoch: {empty}")
    if search.dropped:
        print_line(f"      {search.dropped:,} graphs exceed the limits and were left out")
    if search.way == "graphs_per_batch":
        print_line(f"      in Python: tp.packed_loader(dataset, graphs_per_batch={search.aim['graphs_per_batch']})")
    print_line("      other batch sizes, and batches with exact numbers of graphs: dgl-tuplepack limits --compare")


def _show_shapes(search: LimitsSearch) -> None:
    best, packs_each = search.best, search.packs_per_batch
    for limits, packs in zip(best.limits, best.packs_of_shapes, strict=True):
        print_line(f"{packs:,} packs of {limits!r}")
    print_line(of_batches(best.graphs_per_batch, packs_each))
    print_line(f"node and edge slots of an epoch: {best.padded_slots:,} (candidates tried: {len(search)})")
    more = f", packs_per_batch={packs_each}" if packs_each > 1 else ""
    print_line(f"in Python: tp.packed_loader(dataset, limits=[{', '.join(map(repr, best.limits))}]{more})")


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
        Path | None, options.out("Write the plan to this file, for PackPlan.load and packed_loader(plan=...).")
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
    if as_json:
        print_json(summary)
    elif as_csv:
        print_csv(csv_text([_row(summary)]))
    else:
        _show_plan(summary)


def _row(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a summary as one CSV row; a list, with a value for each shape bucket, becomes numbered columns."""
    row: dict[str, Any] = {}
    for name, value in summary.items():
        row |= {f"{name} {i}": v for i, v in enumerate(value)} if isinstance(value, list) else {name: value}
    return row


def _show_plan(summary: dict[str, Any]) -> None:
    """Print the figures of a plan, then a table with a row for each component."""
    packs, gap, limits = summary["packs"], summary["gap"], summary["limits"]
    proven = "proven optimal" if gap == 0 else f"{gap / summary['lower_bound']:.3%} above"
    bound = [["lower bound", summary["lower_bound"]], ["gap", f"{gap:,} ({proven})"]]
    # Plain data of one `Limits`, or a list with an entry for each shape bucket.
    shapes = limits if isinstance(limits, list) else [limits]
    if len(shapes) > 1:
        # With shape buckets, plans minimise slots, not packs.
        of_shapes = " | ".join(f"{number:,}" for number in summary["packs_of_shapes"])
        bound = [["packs of each shape", of_shapes], ["node and edge slots of an epoch", summary["padded_slots"]]]
    cap = None if len(shapes) > 1 else shapes[0]["graphs"]
    figures = [
        ["packs", packs],
        *bound,
        ["harmonic mean of efficiencies", percent(summary["harmonic_mean"])],
        ["graphs in a pack, mean", summary["graphs"] / packs],
        ["graphs in a pack, most", f"{summary['max_graphs']:,}" + (f" (cap {cap:,})" if cap is not None else "")],
        *([["graphs left out", summary["dropped"]]] if summary["dropped"] else []),
        ["seconds", summary["seconds"]],
    ]
    print_table(f"{summary['graphs']:,} graphs, planned by {summary['method']}", ["", ""], figures)
    effective = summary["effective_limits"]["maxima"]
    rows = [
        [name, " | ".join(f"{each['maxima'][name]:,}" for each in shapes), percent(efficiency),
         summary["empty_slots"][name], effective[name], percent(summary["effective_efficiency"][name])]
        for name, efficiency in summary["efficiency"].items()
    ]  # fmt: skip
    headings = ["component", "limit", "efficiency", "empty slots", "largest content", "efficiency at largest content"]
    print_table("Slots of one epoch", headings, rows)
    batches = -(-packs // summary["packs_per_batch"])
    print_line(of_batches(summary["graphs"] / batches, summary["packs_per_batch"]))
