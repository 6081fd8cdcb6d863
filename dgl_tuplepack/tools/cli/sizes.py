"""``dgl-tuplepack sizes``: the graph sizes of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dgl_tuplepack.planning.histogram import SizeHistogram, quantiles
from dgl_tuplepack.tools.cli import options
from dgl_tuplepack.tools.cli.output import print_result, print_table, save_to
from dgl_tuplepack.tools.cli.source import read_histogram

_QUANTILES = {"min": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def sizes(
    source: options.Source,
    root: options.Root = None,
    part: options.Part = None,
    save: Annotated[Path | None, typer.Option(help="Write the histogram to this .json or .csv file.")] = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Show how large the graphs of SOURCE are. With --csv, print the histogram; other commands read it as -."""
    options.check_output(as_json, as_csv)
    options.check_ending("--save", save, (".json", ".csv"))
    histogram = read_histogram(source, root, part)
    save_to(save, histogram.save)
    summary = _summary(histogram)
    title = f"{histogram.num_graphs:,} graphs of {len(histogram):,} distinct sizes"
    rows = [[name, *figures.values()] for name, figures in summary["components"].items()]
    headings = ["component", "total", "mean", *_QUANTILES]
    print_result(
        lambda: summary, histogram.to_csv, lambda: print_table(title, headings, rows), as_json=as_json, as_csv=as_csv
    )


def _summary(histogram: SizeHistogram) -> dict[str, Any]:
    """Return graphs and distinct sizes of a histogram, and the total, mean and quantiles of each component."""
    components = {}
    for column, (name, total) in enumerate(histogram.totals().items()):
        values = quantiles(histogram.sizes[:, column], histogram.counts, list(_QUANTILES.values()))
        figures = dict(zip(_QUANTILES, values, strict=True))
        components[name] = {"total": total, "mean": total / histogram.num_graphs, **figures}
    return {"graphs": histogram.num_graphs, "size_classes": len(histogram), "components": components}
