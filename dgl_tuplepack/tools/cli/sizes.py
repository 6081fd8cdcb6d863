"""``dgl-tuplepack sizes``: the graph sizes of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dgl_tuplepack.planning.histogram import SizeHistogram, quantiles
from dgl_tuplepack.tools.cli import options
from dgl_tuplepack.tools.cli.output import print_csv, print_table, save_to
from dgl_tuplepack.tools.cli.source import read_histogram

_QUANTILES = {"min": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def sizes(
    source: options.Source,
    root: options.Root = None,
    split: options.Split = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the histogram to this .json or .csv file.")
    ] = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Show how large the graphs of SOURCE are.

    With --json or --csv, print the histogram. Other commands can read the printed text: save it to a .json or .csv file
    and give the file as SOURCE, or pipe it and give - as SOURCE.
    """
    options.check_output(as_json, as_csv)
    options.check_file("--out", out, (".json", ".csv"))
    histogram = read_histogram(source, root, split)
    save_to(out, histogram.save)
    if as_json:
        print(histogram.to_json(), end="")
    elif as_csv:
        print_csv(histogram.to_csv())
    else:
        _show(histogram)


def _show(histogram: SizeHistogram) -> None:
    rows = []
    for column, (name, total) in enumerate(histogram.totals().items()):
        values = quantiles(histogram.sizes[:, column], histogram.counts, list(_QUANTILES.values()))
        rows.append([name, total, total / histogram.num_graphs, *values])
    title = f"{histogram.num_graphs:,} graphs of {len(histogram):,} distinct sizes"
    print_table(title, ["component", "total", "mean", *_QUANTILES], rows)
