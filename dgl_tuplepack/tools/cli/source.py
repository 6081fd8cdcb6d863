"""Open the SOURCE of a command (a name, a path or standard input), and read it into a histogram of sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import typer

from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.graphs.readers.numbers import Counted
from dgl_tuplepack.graphs.readers.ogb_folder import folder_of
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.planning.histogram import SizeHistogram, load_example
from dgl_tuplepack.tools.cli.options import COUNTED, NAMED

_EXAMPLE = "example:"


def read_histogram(source: str, root: Path | None = None, split: str | None = None) -> SizeHistogram:
    """Return the histogram of all graphs of a SOURCE, or of the graphs of its split `split`.

    Raise BadParameter if SOURCE has no such split, or if SOURCE is a histogram and `root` or `split` is given.
    """
    opened = open_source(source, root)
    if split is None:
        return opened.histogram()
    if isinstance(opened, Counted):
        _refuse_option(source, "--split")
    sizes, splits = opened.sizes(), opened.splits()
    if split not in splits:
        advice = f"choose one of {', '.join(splits)}, or leave --split out" if splits else "leave --split out"
        raise typer.BadParameter(f"{source} has no split {split!r}; {advice}.")
    # Leave out `graph_classes`: its indices would be positions in the split, not ids in the dataset.
    return SizeHistogram.from_sizes(sizes.take(splits[split])).without_ids()


def open_source(source: str, root: Path | None = None, settings: dict[str, Any] | None = None) -> Source:
    """Open a SOURCE without reading its graphs; raise BadParameter if SOURCE is a histogram and `root` is given.

    If SOURCE is an OGB folder, `settings` are arguments of `OgbFolder`.
    """
    counted = _counted(source)
    if counted is None:
        # also: further kinds of SOURCE for the error message.
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
