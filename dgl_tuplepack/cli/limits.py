"""``dgl-tuplepack limits``: search limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dgl_tuplepack.cli.app import app
from dgl_tuplepack.cli.limits_options import (
    HeuristicOption,
    OversizeOption,
    by_name,
    fraction,
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
from dgl_tuplepack.search import LimitsSearch, search_limits, way_of
from dgl_tuplepack.search.budget import Price
from dgl_tuplepack.search.evaluation import PACKERS
from dgl_tuplepack.search.grid import values_of
from dgl_tuplepack.search.space import by_component

_RANGE = "FIRST:LAST[:STEP]"


@app.command()
def limits(
    source: SourceArgument,
    nodes: Annotated[str | None, typer.Option(metavar=_RANGE, help="Try these limits.", show_default=False)] = None,
    edges: Annotated[str | None, typer.Option(metavar=_RANGE, help="Try these limits.", show_default=False)] = None,
    range_: Annotated[
        list[str] | None,
        typer.Option("--range", metavar=f"NAME={_RANGE}", help="Try these of any component.", show_default=False),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FRACTION|NAME=FRACTION", help="Smallest limits of this efficiency, 0.95 say.", show_default=False
        ),
    ] = None,
    graphs_per_batch: Annotated[
        int | None, typer.Option(min=1, help="Limits for about so many graphs a batch.", show_default=False)
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Largest limits that cost no more: slots, or bytes.", show_default=False)
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="Cost of one slot, bytes per node say.", show_default=False),
    ] = None,
    graphs: Annotated[
        int | None, typer.Option(min=1, max=2**63 - 1, help="Most graphs of a pack.", show_default=False)
    ] = None,
    multiple_of: Annotated[
        int, typer.Option(min=1, max=2**31, help="Padded shapes are multiples of this: 8, 64, 128.")
    ] = 1,
    tolerance: Annotated[
        float | None, typer.Option(help="Part of the best efficiency given up for fewer slots (0.005).")
    ] = None,
    reach: Annotated[
        float | None, typer.Option(help="Go up to so many times what the largest graph needs (3).")
    ] = None,
    plans: Annotated[int | None, typer.Option(min=1, help="Most candidates, but for ranges (200).")] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(PACKERS)} (auto, or best_fit with a heuristic).", callback=one_of(PACKERS)
        ),
    ] = None,
    heuristic_name: HeuristicOption = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Decides everything random.")] = 0,
    effort: Annotated[float, typer.Option(min=0, help="Work that auto may do for each candidate.")] = 0.0,
    oversize: OversizeOption = "error",
    rows: Annotated[int, typer.Option(min=1, help="Candidates of the Pareto front to show.")] = 12,
    save: Annotated[
        Path | None, typer.Option(help="Write the search here, for LimitsSearch.load.", show_default=False)
    ] = None,
    root: RootOption = None,
    part: PartOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Find limits for SOURCE: by itself, or on a grid, for a target, a batch size or a budget."""
    check_output(as_json, as_csv)
    plain = {name: None if text is None else value_range(text) for name, text in (("nodes", nodes), ("edges", edges))}
    asked: dict[str, Any] = {
        "ranges": by_name(plain, "--range", range_ or [], value_range) or None, "target": _target(target or []),
        "graphs_per_batch": graphs_per_batch, "budget": budget, "cost": named("--cost", cost or [], real) or None,
        "objective": None, "tolerance": tolerance, "reach": reach, "plans": plans,
    }  # fmt: skip
    weighed = heuristic(heuristic_name)
    with usage_errors():
        way_of(asked)
    histogram = read_histogram(source, root, part)
    with usage_errors():
        _check_components(asked, histogram.components)
    with warnings_as_notes():
        found = search_limits(
            histogram, **asked, graphs=graphs, multiple_of=multiple_of, method=method, heuristic=weighed, seed=seed,
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
    """One fraction for the harmonic mean, or fractions by component."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return fraction(texts[0])
    return named("--target", texts, fraction)


def _check_components(asked: Mapping[str, Any], components: tuple[str, ...]) -> None:
    """Refuse what was asked for other components than those of the source."""
    if asked["ranges"] is not None:
        values_of(asked["ranges"], components)
    if isinstance(asked["target"], dict):
        by_component("targets", asked["target"], components, every=False)
    if asked["budget"] is not None:
        Price(asked["budget"], asked["cost"], components)


def _show(found: LimitsSearch, rows: int) -> None:
    """The best candidate and its neighbours on the Pareto front."""
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
