"""Time and plans of a search for limits."""

from __future__ import annotations

import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import shapes
from dgl_tuplepack import LimitsSearch, search_limits

app = typer.Typer()

# The grid of the paper, section 3.2: 2,160 plans.
GRID = {"nodes": range(20, 60), "edges": range(54, 161, 2)}
# How candidates are planned: the paper's heuristic, and ours.
PLANNERS: dict[str, dict[str, Any]] = {"best_fit product": {"heuristic": "product"}, "auto": {"method": "auto"}}


@app.command()
def limits(
    repeats: Annotated[
        int, typer.Option(min=0, help="Runs whose median counts, after one that warms up; 0: that one counts.")
    ] = 7,
    seed: Annotated[int, typer.Option(help="Seed of the histogram.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """The paper's grid on the pcqm4mv2-shaped histogram, on all cores and on one, against the way "auto"."""
    histogram = shapes.pcqm4mv2(seed)
    rows = []
    with ThreadPoolExecutor(1) as one:
        for planner, settings in PLANNERS.items():
            rows += [
                _measured(planner, "grid", repeats, lambda s=settings: search_limits(histogram, ranges=GRID, **s)),
                _measured(
                    planner, "grid, one thread", repeats,
                    lambda s=settings: search_limits(histogram, ranges=GRID, executor=one, **s),
                ),
                _measured(planner, "auto", repeats, lambda s=settings: search_limits(histogram, **s)),
            ]  # fmt: skip
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(title=f"limits for {histogram.num_graphs:,} graphs of {len(histogram)} sizes, like pcqm4mv2")
    for heading in (
        "planned by",
        "way",
        "plans",
        "median s",
        "ms/plan",
        "highest harm. mean",
        "best",
        "its harm. mean",
    ):
        table.add_column(heading, justify="left" if heading in ("planned by", "way") else "right")
    for row in rows:
        table.add_row(
            row["planner"], row["way"], f"{row['plans']:,}", f"{row['median_s']:.3f}",
            f"{1e3 * row['median_s'] / row['plans']:.3f}", f"{row['highest']:.2%}",
            "/".join(map(str, row["best"])), f"{row['best_harmonic_mean']:.2%}",
        )  # fmt: skip
    Console(width=None if Console().is_terminal else 120).print(table)


def _measured(planner: str, way: str, repeats: int, run: Any) -> dict[str, Any]:
    seconds = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        found: LimitsSearch = run()
        seconds.append(time.perf_counter() - begin)
    return {
        "planner": planner,
        "way": way,
        "plans": len(found),
        "median_s": statistics.median(seconds[1:] or seconds),
        "highest": float(found.harmonic_mean.max()),
        "best": list(found.best.limits.values),
        "best_harmonic_mean": found.best.harmonic_mean,
    }
