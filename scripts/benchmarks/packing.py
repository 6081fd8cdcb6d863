"""Measure packs, gaps, time and memory of the packing methods."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import buckets, shapes
from benchmarks.literature import measured_families, medium_cases, small_cases
from benchmarks.tables import JsonOption, show, write_json
from dgl_tuplepack import Limits, SizeHistogram, load_example, pack
from dgl_tuplepack.planning.packing.fit import NAMES
from dgl_tuplepack.planning.plan import summarise

app = typer.Typer()

BENCHMARK = Path(__file__).resolve().parents[1] / "benchmark.py"

# Name -> (histogram, limits, cap on graphs).
CASES: dict[str, tuple[str, tuple[int, ...], int | None]] = {
    "molhiv 222/502": ("molhiv", (222, 502), 256),
    "molhiv 256/550": ("molhiv", (256, 550), 256),
    "molhiv 1024/2200": ("molhiv", (1024, 2200), 256),
    "molpcba-shaped": ("molpcba", (313, 636), 256),
    "code2-shaped, cap": ("code2", (36_123, 36_122), 256),
    "code2-shaped": ("code2", (36_123, 36_122), None),
    "pcqm4mv2-shaped 20/54": ("pcqm4mv2", (20, 54), 256),
    "pcqm4mv2-shaped 30/62": ("pcqm4mv2", (30, 62), 256),
    "ppa-shaped": ("ppa", (300, 36_138), 256),
    "planted 10^3, k=2": ("planted 1000", (1000, 2200), None),
    "planted 10^3, k=3": ("planted 1000", (1000, 2200, 5000), None),
    "planted 10^4, k=2": ("planted 10000", (1000, 2200), None),
    "planted 10^4, k=3": ("planted 10000", (1000, 2200, 5000), None),
    "planted 10^5, k=2": ("planted 100000", (1000, 2200), None),
    "planted 10^5, k=3": ("planted 100000", (1000, 2200, 5000), None),
    "planted 10^6, k=2": ("planted 1000000", (1000, 2200), None),
    "planted 10^6, k=3": ("planted 1000000", (1000, 2200, 5000), None),
    "triplets 200, k=1": ("triplets 200", (1000,), None),
    "triplets 2000, k=1": ("triplets 2000", (1000,), None),
    "triplets 200, k=2": ("triplets 200", (1000, 2200), None),
    "uniform 10^4": ("uniform 10000", (1000, 2200), None),
    "uniform 10^5": ("uniform 100000", (1000, 2200), None),
}
# For docs/benchmarks/planning.md: numbers of size classes.
SCALING = (1_000, 3_000, 10_000, 30_000, 100_000)


def instance(name: str, seed: int = 0) -> tuple[SizeHistogram, Limits, int | None]:
    """Return the histogram, the limits and, if known, the optimum of a case."""
    kind, maxima, cap = CASES.get(name, (name, (1000, 2200), None))
    base, _, number = kind.partition(" ")
    optimum = None
    if base in ("planted", "triplets"):
        made = (shapes.planted if base == "planted" else shapes.triplets)(int(number), maxima, seed)
        return made.histogram, made.limits, made.packs
    if base == "molhiv":
        histogram = load_example("ogbg-molhiv")
    elif base == "uniform":
        histogram = shapes.uniform(int(number), maxima, seed=seed)
    else:
        histogram = shapes.SHAPES[base](seed)
    return histogram, Limits(maxima[0], maxima[1], cap), optimum


def peak_mib() -> float:
    """Return the peak memory of this process; after a fork, getrusage would include the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@app.command("one", hidden=True)
def one(name: str, method: str, heuristic: str, repeats: int, seed: int) -> None:
    """Measure one case in this process and print JSON; peak memory needs a separate process."""
    histogram, limits, optimum = instance(name, seed)
    small = SizeHistogram.from_counts({(3, 4): 5, (2, 2): 3})
    for warm in ("auto", "best_fit", "first_fit"):
        pack(small, Limits(9, 9), warm)
    before = peak_mib()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        plan = pack(histogram, limits, method, heuristic=heuristic, seed=seed)
        seconds.append(time.perf_counter() - start)
    peak = peak_mib()
    result: dict[str, Any] = {
        "case": name,
        "classes": len(histogram),
        "optimum": optimum,
        "median_s": statistics.median(seconds),
        "peak_MiB": peak,
        "peak_growth_MiB": peak - before,
        **summarise(plan),
    }
    print(json.dumps(result))


def in_new_process(*arguments: object, **environment: str) -> dict[str, Any]:
    """Run Python with these arguments in a new process; return the JSON that it prints."""
    command, variables = [sys.executable, *map(str, arguments)], {**os.environ, **environment}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=variables)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _heuristics(name: str, method: str) -> Sequence[str]:
    """Return the heuristics to measure for a method and a case."""
    if method not in ("best_fit", "first_fit"):
        return ("product",)
    # Sizes of one component have no edges.
    return [heuristic for heuristic in NAMES if heuristic != "edge" or len(CASES[name][1]) > 1]


@app.command()
def packing(
    only: Annotated[str, typer.Option(help="Measure only cases whose name contains this.")] = "",
    methods: Annotated[str, typer.Option(help="Of auto, best_fit, first_fit; separated by commas.")] = "auto,best_fit",
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each method; results are medians.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the histograms and of the plans.")] = 0,
    json_path: JsonOption = None,
    literature: Annotated[
        bool, typer.Option("--literature", help="Measure 'auto' on the small instances of Caprara & Toth 2001 instead.")
    ] = False,
    medium: Annotated[
        int, typer.Option(min=0, help="Measure 'auto' on this many instances of 300 to 3,000 graphs instead.")
    ] = 0,
) -> None:
    """Measure packs, bound, gap, efficiencies, seconds and peak memory of every method on every histogram.

    Also count the padded slots of ogbg-molhiv with one shape and with several, at equal mean graphs per batch.
    """
    if literature or medium:
        cases = small_cases(seed) if literature else medium_cases(medium, seed)
        rows = measured_families([case for case in cases if only in case.family], seed)
        show("auto, default effort", rows)
        write_json(json_path, rows)
        return
    results = []
    for name in CASES:
        if only not in name:
            continue
        for method in methods.split(","):
            for heuristic in _heuristics(name, method):
                typer.echo(f"{name}: {method} {heuristic if method != 'auto' else ''}", err=True)
                results.append(in_new_process(BENCHMARK, "one", name, method, heuristic, repeats, seed))
    if results:
        show("packing", list(map(_row, results)))
    several = buckets.measured() if only in buckets.CASE else []
    if several:
        show(f"{buckets.CASE}, training graphs, one pack per batch", buckets.rows_of(several))
    write_json(json_path, [*results, *several])


@app.command()
def complexity(
    repeats: Annotated[int, typer.Option(min=1)] = 3,
    json_path: JsonOption = None,
    plot: Annotated[Path | None, typer.Option(help="Write the plot of benchmarks/planning.md to this file.")] = None,
) -> None:
    """Measure time and memory by number of size classes (random sizes, limits 1000/2200)."""
    results = []
    for classes in SCALING:
        for method, heuristic in (("auto", "product"), *(("best_fit", h) for h in NAMES), ("first_fit", "product")):
            typer.echo(f"{classes} classes: {method} {heuristic}", err=True)
            results.append(in_new_process(BENCHMARK, "one", f"uniform {classes}", method, heuristic, repeats, 0))
    show("complexity", list(map(_row, results)))
    write_json(json_path, results)
    if plot is not None:
        _plot_scaling(results, plot)


def _label(result: dict[str, Any]) -> str:
    return str(result["method"]) + (f" {result['heuristic']}" if result["heuristic"] else "")


def _row(result: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the table for a result of `one`."""
    bound = max(result["lower_bound"], result["optimum"] or 0)
    gap = result["packs"] - bound
    shares = (result["efficiency"], result["effective_efficiency"])
    filled, effective = ("/".join(f"{100 * value:.2f}" for value in each.values()) for each in shares)
    return {
        "histogram": result["case"], "classes": result["classes"], "method": _label(result), "packs": result["packs"],
        "bound": bound, "gap": gap, "gap %": f"{100 * gap / bound:.3f}", "efficiency %": filled,
        "effective %": effective, "median_s": result["median_s"], "peak MiB": result["peak_MiB"],
    }  # fmt: skip


def _plot_scaling(results: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    series: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        series.setdefault(_label(result) if result["heuristic"] else "auto", []).append(result)
    for axes, key, title in zip(
        figure.subplots(1, 2), ("median_s", "peak_MiB"), ("median seconds", "peak memory, MiB"), strict=True
    ):
        for label, rows in series.items():
            axes.plot([r["classes"] for r in rows], [r[key] for r in rows], marker="o", label=label)
        axes.set(xscale="log", yscale="log", xlabel="size classes", ylabel=title)
    figure.axes[0].legend(fontsize="small")
    figure.savefig(path)
