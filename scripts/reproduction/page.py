"""The page of `reproduce_paper.py`: printed and computed figures in Markdown tables, and pictures."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dgl_tuplepack as tp
from dgl_tuplepack.planning.packing.fit import NAMES
from dgl_tuplepack.planning.plan import harmonic_mean
from dgl_tuplepack.tools.plots import plot_methods, save_picture
from reproduction.paper import MOST_GRAPHS, Pair, Printed

# (nodes, edges) -> harmonic mean of the efficiencies.
Grid = dict[tuple[int, int], float]

# The paper's grid has 40 limits of nodes and 54 of edges, from the largest graph up to three times it.
_GRID = (40, 54)

_DIFFERENCES = """\
## What differs, and why

1. **Minimum.** Under this name, the paper's companion code uses the larger of the two numbers, so its row repeats
   *maximum*. Here *minimum* is the real minimum.
2. **Which packs are skipped.** The heuristic gives a number h to each size, and to the room left in each pack. For the
   first graph of a size, the companion code considers all packs whose h is at least the h of the size; for further
   graphs, only packs whose h is larger. The text does not mention this, but the printed figures require it, and
   `best_fit` does the same. `first_fit` follows the code, and `first_fit_by_text` the text.
3. **Two conventions of efficiency.** The paper first lowers each limit to the largest number that any pack contains;
   the column *here* does the same. *Against the limits* divides by the given limits, as `plan.efficiency` does.
4. **Node only and edge only** ignore the other limit. For their efficiency against the limits, this limit is raised to
   what their packs need.
5. **Rounding.** The paper prints one decimal, or two if a figure is small; *agrees* means equal after that rounding.
"""


@dataclass(frozen=True)
class Row:
    """A row of Table 2: the paper's figures, if any, and our plan."""

    name: str
    printed: Pair | None
    plan: tp.PackPlan


def dataset_section(printed: Printed, histogram: tp.SizeHistogram, source: str, out: Path) -> str:
    """Return the section of one dataset; write its pictures into `out`."""
    rows = _rows(printed, histogram)
    grid = _grid(printed, histogram)
    save_picture(plot_methods({row.name: row.plan for row in rows}), out / f"{printed.name}-methods.png")
    save_picture(_heat_map(grid), out / f"{printed.name}-limits.png")
    parts = [
        f"## {printed.name}\n\nFrom {source}, the script computes the following tables.\n",
        _table_1(printed, histogram, rows),
        _table_2(printed, rows),
        f"![Packs of each method above the lower bound]({printed.name}-methods.png)\n",
        _figure_5(printed, grid),
        "".join(f"{note}\n" for note in printed.notes),
    ]
    return "\n".join(part for part in parts if part)


def page(sections: list[str], absent: list[str]) -> str:
    """Return the whole page."""
    head = (
        "# The paper's results, recomputed\n\n"
        "This page compares Tables 1 and 2 and Figure 5 of the Tuple Packing paper (Krell et al. 2022, arXiv "
        "2209.06354) with the\nresults of this package. `python scripts/reproduce_paper.py` writes it. Efficiencies "
        "are in per cent, first of nodes,\nthen of edges.\n"
    )
    missing = f"Not available when this page was written: {', '.join(absent)}.\n" if absent else ""
    return "\n".join([head, *sections, _DIFFERENCES, missing]).rstrip("\n") + "\n"


def _rows(printed: Printed, histogram: tp.SizeHistogram) -> list[Row]:
    limits = tp.Limits(*printed.maxima, graphs=MOST_GRAPHS)

    def plan(method: str, heuristic: str = "product") -> tp.PackPlan:
        return tp.pack(histogram, limits, method, heuristic=heuristic)

    return [
        *(Row(f"best fit, {name}", printed.heuristics.get(name), plan("best_fit", name)) for name in NAMES),
        Row("no packing", printed.unpacked, plan("none")),
        Row("node only (edges ignored)", printed.node_only, plan("node_only")),
        Row("edge only (nodes ignored)", printed.edge_only, plan("edge_only")),
        Row("next fit, random order", None, plan("next_fit")),
        Row("auto (ours)", None, plan("auto")),
    ]


def _table_1(printed: Printed, histogram: tp.SizeHistogram, rows: list[Row]) -> str:
    maxima = histogram.maxima()
    unpacked = next(row.plan for row in rows if row.name == "no packing").effective_efficiency
    lines = [
        ("graphs", f"{printed.graphs:,}", f"{histogram.num_graphs:,}"),
        ("largest number of nodes", f"{printed.maxima[0]:,}", f"{maxima['nodes']:,}"),
        ("largest number of edges", f"{printed.maxima[1]:,}", f"{maxima['edges']:,}"),
        ("distinct sizes", f"{printed.distinct:,}", f"{len(histogram):,}"),
        ("efficiency without packing", _as_printed(printed.unpacked), _exactly(_per_cent(unpacked))),
    ]
    head = "### Table 1: the dataset (training split)\n\n| | paper | here |\n|---|---|---|\n"
    return head + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _table_2(printed: Printed, rows: list[Row]) -> str:
    nodes, edges = printed.maxima
    bound = max(row.plan.lower_bound for row in rows)
    lines = [
        f"### Table 2: packs of at most {nodes:,} nodes, {edges:,} edges and {MOST_GRAPHS} graphs\n\n"
        f"No plan within these limits has fewer than {bound:,} packs. The columns are explained "
        "[below](#what-differs-and-why).\n\n"
        "| method | paper | here | agrees | against the limits | packs |\n|---|---|---|---|---|---|\n"
    ]
    for row in rows:
        here = _per_cent(row.plan.effective_efficiency)
        cells = (
            row.name,
            _as_printed(row.printed) if row.printed else "",
            _exactly(here),
            _agreement(row.printed, here),
            _exactly(_per_cent(row.plan.efficiency)),
            f"{row.plan.num_packs:,}",
        )
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def _figure_5(printed: Printed, grid: Grid) -> str:
    smallest, fullest, best = min(grid), max(grid, key=lambda limits: grid[limits]), _best(grid)
    text = (
        "### Figure 5: harmonic mean of the efficiencies over the limits\n\n"
        f"Best fit with the heuristic *product* and no cap on graphs, for {len(grid):,} pairs of limits, from the size "
        "of the largest\ngraph to three times that size.\n"
        f"The highest mean is {grid[fullest]:.2%} at {fullest[0]:,} nodes and {fullest[1]:,} edges. The smallest "
        f"limits reach {grid[smallest]:.2%}.\n"
        "The star marks the limits with the fewest slots among those within 0.5 % of it: "
        f"{best[0]:,} nodes and {best[1]:,} edges\nwith {grid[best]:.2%}.\n\n"
        f"![Heat map of the limits]({printed.name}-limits.png)\n"
    )
    if not printed.limits:
        return text + "\nThe paper shows this picture for pcqm4mv2 only.\n"
    table = "\n| limits (nodes, edges) | paper | here |\n|---|---|---|\n"
    for limits, value in printed.limits.items():
        table += f"| {limits[0]}, {limits[1]} | {value:.1f} | {100 * grid[limits]:.1f} |\n"
    return text + table


def _grid(printed: Printed, histogram: tp.SizeHistogram) -> Grid:
    ranges = [
        range(most, 3 * most, max(1, 2 * most // number)) for most, number in zip(printed.maxima, _GRID, strict=True)
    ]
    plans = {limits: tp.pack(histogram, tp.Limits(*limits), "best_fit") for limits in itertools.product(*ranges)}
    return {limits: harmonic_mean(plan.efficiency) for limits, plan in plans.items()}


def _best(grid: Grid) -> tuple[int, int]:
    """Return the limits with the fewest slots within 0.5 % of the highest mean."""
    least = 0.995 * max(grid.values())
    return min((limits for limits in grid if grid[limits] >= least), key=lambda limits: (sum(limits), -grid[limits]))


def _heat_map(grid: Grid) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    nodes, edges = (sorted({limits[axis] for limits in grid}) for axis in range(2))
    ax = Figure(figsize=(6.2, 4.8), layout="constrained").add_subplot()
    mesh = ax.pcolormesh(nodes, edges, [[grid[n, e] for n in nodes] for e in edges], shading="nearest", rasterized=True)
    bar = ax.figure.colorbar(mesh, ax=ax, format=PercentFormatter(1.0))
    bar.set_label("harmonic mean of the efficiencies")
    ax.scatter(*_best(grid), marker="*", s=230, color="white", edgecolor="black")
    ax.set(xlabel="limit of nodes", ylabel="limit of edges")
    return ax


def _per_cent(efficiency: dict[str, float]) -> Pair:
    return 100 * efficiency["nodes"], 100 * efficiency["edges"]


def _as_printed(pair: Pair) -> str:
    """Format with as many decimals as the paper prints: two for small figures."""
    return ", ".join(f"{value:.{_decimals(value)}f}" for value in pair)


def _decimals(value: float) -> int:
    return 1 if value > 9 else 2


def _exactly(pair: Pair) -> str:
    return f"{pair[0]:.2f}, {pair[1]:.2f}"


def _agreement(printed: Pair | None, here: Pair) -> str:
    if printed is None:
        return ""
    equal = (round(ours, _decimals(theirs)) == theirs for theirs, ours in zip(printed, here, strict=True))
    return "yes" if all(equal) else "no"
