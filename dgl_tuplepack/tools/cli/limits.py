"""``dgl-tuplepack limits``: search limits."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.planning.buckets import FEWEST, MOST
from dgl_tuplepack.planning.search import LimitsSearch, search_limits, strategy_of
from dgl_tuplepack.planning.search.strategy import AUTO
from dgl_tuplepack.tools.cli import options
from dgl_tuplepack.tools.cli.output import percent, print_line, print_result, print_table
from dgl_tuplepack.tools.cli.source import read_histogram

# Default number of graphs per batch.
GRAPHS_PER_BATCH = 64


def limits(
    source: options.Source,
    graphs_per_batch: options.GraphsPerBatch = None,
    packs_per_batch: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Packs per batch (default: 2 if possible).")
    ] = None,
    smallest: Annotated[
        bool, typer.Option("--smallest", help="Smallest limits with an efficiency within 0.5 % of the best.")
    ] = False,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="FRACTION|NAME=FRACTION", help="Smallest limits that reach this efficiency."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="N", min=0, help="Largest limits whose padded shape costs at most this, in slots or --cost."
        ),
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="Cost of one slot for --budget, such as bytes; once per component."),
    ] = None,
    shapes: Annotated[
        int | None,
        typer.Option(metavar="N", min=FEWEST, max=MOST, help="Search this many shape buckets with the fewest slots."),
    ] = None,
    graphs: options.Graphs = None,
    multiple_of: options.MultipleOf = 1,
    oversize: options.Oversize = "error",
    rows: Annotated[int, typer.Option(metavar="N", min=1, help="Candidates of the Pareto front to show.")] = 12,
    root: options.Root = None,
    part: options.Part = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Search limits for SOURCE. In place of batch_size=64, give --graphs-per-batch 64; that is the default.

    Advise the limits with the highest efficiency whose batches hold that many graphs on average, and the number of
    packs per batch. With --smallest, advise the limits with the fewest slots per pack (nodes plus edges) whose
    efficiency is within 0.5 % of the best. With --target, advise the smallest limits that reach an efficiency. With
    --budget, advise the largest limits within the budget.
    """
    options.check_output(as_json, as_csv)
    asked: dict[str, Any] = {
        "target": _target(target), "graphs_per_batch": graphs_per_batch, "packs_per_batch": packs_per_batch,
        "budget": budget, "cost": options.named("--cost", cost, options.real) or None,
    }  # fmt: skip
    settings: dict[str, Any] = {"graphs": graphs, "multiple_of": multiple_of, "oversize": oversize}
    given = [name for name, value in asked.items() if value is not None]
    if smallest and given:
        raise typer.BadParameter(f"--smallest cannot be combined with {', '.join(given)}; leave one of them out.")
    by_default = not smallest and set(given) <= {"packs_per_batch"}
    if by_default:
        asked["graphs_per_batch"] = GRAPHS_PER_BATCH
    if asked["graphs_per_batch"] is not None:
        asked["packs_per_batch"] = packs_per_batch or AUTO
    elif shapes is not None:
        raise typer.BadParameter("--shapes needs a number of graphs per batch; give --graphs-per-batch.")
    # Report invalid options before the sizes are read and searched, which may take long.
    with options.usage_errors():
        strategy = strategy_of(**asked)
    histogram = read_histogram(source, root, part)
    if by_default:
        asked["graphs_per_batch"] = min(GRAPHS_PER_BATCH, histogram.num_graphs)
        strategy = strategy_of(**asked)
    with options.usage_errors():
        strategy.for_histogram(histogram)
    try:
        search = search_limits(histogram, shapes=shapes, **asked, **settings)
    except SearchError:
        if not by_default or shapes is not None:
            raise
        # The largest graph makes the default impossible. The user did not choose it, so this is no error.
        typer.echo(f"batches that hold every graph have more than {GRAPHS_PER_BATCH} graphs; see --smallest", err=True)
        search = search_limits(histogram, **settings)
    show = partial(_show, search, rows) if shapes is None else partial(_show_shapes, search)
    print_result(search.to_dict, search.to_csv, show, as_json=as_json, as_csv=as_csv)


def _target(texts: list[str] | None) -> float | dict[str, float] | None:
    """Return one target for the harmonic mean, or one target per component; None without --target."""
    if texts and len(texts) == 1 and "=" not in texts[0]:
        return options.real(texts[0])
    return options.named("--target", texts, options.real) or None


def _show(search: LimitsSearch, rows: int) -> None:
    """Print the best candidate, and the `rows` candidates of the Pareto front that are closest to it in slots."""
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
    packs = search.packs_per_batch
    print_line(
        f"      batches of {search.graphs_per_batch:.1f} graphs on average: {packs} pack{'s' if packs > 1 else ''} each"
    )
    print_line(f"      padded slots of an epoch: {empty}")
    if search.dropped:
        print_line(f"      {search.dropped:,} graphs exceed the limits and were left out")
    if search.way == "graphs_per_batch":
        print_line(f"      in Python: tp.packed_loader(dataset, graphs_per_batch={search.aim['graphs_per_batch']})")


def _show_shapes(search: LimitsSearch) -> None:
    """Print the best shape buckets."""
    best, packs_each = search.best, search.packs_per_batch
    plural = "s" if packs_each > 1 else ""
    for limits, packs in zip(best.limits, best.packs_of_shapes, strict=True):
        print_line(f"{packs:,} packs of {limits!r}")
    print_line(f"batches of {best.graphs_per_batch:.1f} graphs on average: {packs_each} pack{plural} each")
    print_line(f"node and edge slots of an epoch: {best.padded_slots:,} (tried: {len(search)})")
    more = f", packs_per_batch={packs_each}" if packs_each > 1 else ""
    print_line(f"in Python: tp.packed_loader(dataset, limits=[{', '.join(map(repr, best.limits))}]{more})")
