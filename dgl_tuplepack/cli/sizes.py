"""``dgl-tuplepack sizes``: what is in a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dgl_tuplepack.cli.app import app
from dgl_tuplepack.cli.limits_options import check_ending
from dgl_tuplepack.cli.output import CsvOption, JsonOption, check_output, print_csv, print_json, print_table
from dgl_tuplepack.cli.source import PartOption, RootOption, SourceArgument, read_histogram
from dgl_tuplepack.cli.streams import note
from dgl_tuplepack.histogram import SizeHistogram, quantiles

_QUANTILES = {"min": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@app.command()
def sizes(
    source: SourceArgument,
    root: RootOption = None,
    part: PartOption = None,
    save: Annotated[
        Path | None, typer.Option(help="Write the histogram here, .json or .csv.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Show how large the graphs of SOURCE are. With --csv: its histogram, which other commands read as -."""
    check_output(as_json, as_csv)
    check_ending("--save", save, (".json", ".csv"))
    histogram = read_histogram(source, root, part)
    if save is not None:
        histogram.save(save)
    summary = summarise_sizes(histogram)
    if as_json:
        print_json(summary)
    elif as_csv:
        print_csv(histogram.to_csv())
    else:
        graphs, classes = summary["graphs"], summary["size_classes"]
        rows = [[name, *figures.values()] for name, figures in summary["components"].items()]
        print_table(
            f"{graphs:,} graphs of {classes:,} distinct sizes", ["component", "total", "mean", *_QUANTILES], rows
        )
    if save is not None:
        note(f"wrote {save}")


def summarise_sizes(histogram: SizeHistogram) -> dict[str, Any]:
    """Figures of a histogram as plain data: graphs, distinct sizes; total, mean and quantiles of each component."""
    components = {}
    totals = histogram.totals()
    for column, name in enumerate(histogram.components):
        found = quantiles(histogram.sizes[:, column], histogram.counts, list(_QUANTILES.values()))
        at = dict(zip(_QUANTILES, found, strict=True))
        components[name] = {"total": totals[name], "mean": totals[name] / histogram.num_graphs, **at}
    return {"graphs": histogram.num_graphs, "size_classes": len(histogram), "components": components}
