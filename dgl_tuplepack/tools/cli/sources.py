"""Open the SOURCE of a command (a name, a path or standard input), and read it into a histogram of sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
import typer

from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.graphs.readers.kinds import Counted, resolve
from dgl_tuplepack.graphs.readers.ogb_folder import folder_of
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.planning.histogram import SizeHistogram, load_example, quantiles
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.tools.cli import options
from dgl_tuplepack.tools.cli.options import COUNTED, NAMED
from dgl_tuplepack.tools.cli.output import print_csv, print_table, save_to

_EXAMPLE = "example:"


def read_histogram(source: str, root: Path | None = None, split: str | None = None) -> SizeHistogram:
    """Return the histogram of all graphs of a SOURCE, or of the graphs of its split `split`."""
    if split is None:
        return open_source(source, root).histogram()
    # Leave out `graph_classes`: its indices would be positions in the split, not ids in the dataset.
    return SizeHistogram.from_sizes(read_sizes(source, root, split)[0]).without_ids()


def read_sizes(source: str, root: Path | None, split: str | None) -> tuple[GraphSizes, Source, IntArray | None]:
    """Return the sizes of the graphs of a SOURCE or of its split `split`, the opened SOURCE, and ids if it has any."""
    opened = open_source(source, root)
    if isinstance(opened, Counted):
        if split is not None:
            _refuse_option(source, "--split")
        histogram = opened.histogram()
        sizes = GraphSizes(np.repeat(histogram.sizes, histogram.counts, axis=0), histogram.components)
        return sizes, opened, None
    sizes, splits = opened.sizes(), opened.splits()
    if split is None:
        return sizes, opened, np.arange(len(sizes))
    if split not in splits:
        advice = f"choose one of {', '.join(splits)}, or leave --split out" if splits else "leave --split out"
        raise typer.BadParameter(f"{source} has no split {split!r}; {advice}.")
    return sizes.take(splits[split]), opened, splits[split]


def open_source(source: str, root: Path | None = None, settings: dict[str, Any] | None = None) -> Source:
    """Open a SOURCE without reading its graphs; if it is an OGB folder, `settings` are arguments of `OgbFolder`."""
    counted = _counted(source)
    if counted is None:
        return resolve(path_of(source, root), settings, also=(NAMED, *COUNTED))
    if root is not None:
        _refuse_option(source, "--root")
    return counted


def path_of(source: str, root: Path | None) -> str:
    """Return the path of a SOURCE with graphs; if `root` is given, SOURCE is the name of an OGB dataset."""
    return source if root is None else str(folder_of(root, source))


def _refuse_option(source: str, option: str) -> NoReturn:
    """Raise BadParameter for an option that does not apply to histograms."""
    raise typer.BadParameter(f"{source} is a histogram, and histograms accept no {option}; leave the option out.")


def _counted(source: str) -> Counted | None:
    """Return a source that loads the histogram SOURCE when needed, or None if SOURCE is not a histogram."""
    if source == "-":
        return Counted("standard input", _standard_input)
    if source.startswith(_EXAMPLE):
        return Counted(source, lambda: load_example(source.removeprefix(_EXAMPLE)))
    if Path(source).suffix.lower() in (".json", ".csv"):
        return Counted(source, lambda: SizeHistogram.load(source))
    return None


def _standard_input() -> SizeHistogram:
    try:
        text = typer.get_binary_stream("stdin").read().decode("utf-8-sig")
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        raise FormatError(
            f"standard input is closed, or not UTF-8 text ({error}); give lines of nodes,edges,count, or a file."
        ) from error
    # JSON begins with `{"` or `[[`. CSV does not begin with `{"`: it puts a name that contains `"` in quotes.
    is_json = "".join(text[:100].split()).startswith(('{"', "[["))
    return (SizeHistogram.from_json if is_json else SizeHistogram.from_csv)(text, "standard input")


_QUANTILES = {"min": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def sizes(
    source: options.Source,
    root: options.Root = None,
    split: options.Split = None,
    out: Annotated[Path | None, options.out("Write the histogram to this .json or .csv file.")] = None,
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
