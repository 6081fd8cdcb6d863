"""Measure speeds; medians of several runs, warm, in one process.

python scripts/benchmark.py best-fit
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import dgl_tuplepack as tp
from dgl_tuplepack.packing.heuristics import NAMES

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def _root() -> None:
    """Measure speeds; medians of several runs, warm, in one process."""


@app.command()
def best_fit(
    repeats: Annotated[int, typer.Option(min=1, help="Runs of which the median counts.")] = 31,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Time one best-fit plan of ogbg-molhiv's training sizes at 222 nodes, 502 edges, 256 graphs, each heuristic."""
    histogram, limits = tp.load_example("ogbg-molhiv"), tp.Limits(222, 502, 256)
    rows = []
    for heuristic in NAMES:
        seconds = []
        for _ in range(repeats + 1):
            begin = time.perf_counter()
            plan = tp.pack(histogram, limits, "best_fit", heuristic)
            seconds.append(time.perf_counter() - begin)
        rows.append({"heuristic": heuristic, "packs": plan.num_packs, "median_s": statistics.median(seconds[1:])})
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("heuristic", "packs", "median, ms", title=f"best fit, {len(histogram)} size classes, {limits}")
    for row in rows:
        table.add_row(row["heuristic"], f"{row['packs']:,}", f"{1e3 * row['median_s']:.2f}")
    Console().print(table)


if __name__ == "__main__":
    app()
