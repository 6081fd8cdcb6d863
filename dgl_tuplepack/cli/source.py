"""What SOURCE on the command line stands for: from a name, a path or standard input to a histogram of sizes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from dgl_tuplepack.errors import FormatError, SizesError
from dgl_tuplepack.histogram import SizeHistogram, load_example
from dgl_tuplepack.sources import Source, paths, resolve
from dgl_tuplepack.sources.numbers import Counted
from dgl_tuplepack.sources.ogb_folder import folder_of

_EXAMPLE = "example:"
_NAMED = "an OGB name together with --root"
_COUNTED = ("a saved histogram (.json, .csv)", "example:ogbg-molhiv", "- for CSV on standard input")

# What can be given where graphs are needed.
GRAPHS = paths([_NAMED])

SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help=f"One of {paths([_NAMED, *_COUNTED])}.", show_default=False)
]
RootOption = Annotated[Path | None, typer.Option(help="Folder of OGB datasets, where SOURCE is an OGB name.")]
PartOption = Annotated[
    str | None, typer.Option(help="Only one part of the dataset's split, train say.", show_default=False)
]


def read_histogram(source: str, root: Path | None = None, part: str | None = None) -> SizeHistogram:
    """Histogram of a SOURCE.

    Parameters
    ----------
    source
        See the help of the command line.
    root
        Folder of OGB datasets, for a name.
    part
        Part of the split to take; None: all graphs.

    Raises
    ------
    FormatError
        There is no such source, or it is damaged.
    SizesError
        It has no such part, or no graphs.
    typer.BadParameter
        A histogram was given together with `root` or `part`.
    """
    opened = open_source(source, root)
    if part is None or isinstance(opened, Counted):
        if part is not None:
            _refuse_option(source, "--part")
        return opened.histogram()
    sizes, splits = opened.sizes(), opened.splits()
    if part not in splits:
        advice = f"choose one of {', '.join(splits)}, or leave --part out" if splits else "leave --part out"
        known = "" if splits else ", for it has no split"
        raise SizesError(f"{source} has no part {part!r}{known}; {advice}.")
    # Positions in a part are no ids of the dataset, so graphs go unnamed.
    return SizeHistogram.from_sizes(sizes.take(splits[part])).without_ids()


def open_source(source: str, root: Path | None = None, settings: dict[str, Any] | None = None) -> Source:
    """The source that a SOURCE stands for; nothing is read yet.

    Raises
    ------
    FormatError
        There is no such source.
    typer.BadParameter
        A histogram was given together with `root`.
    """
    counted = _counted(source)
    if counted is None:
        return resolve(place_of(source, root), settings, also=(_NAMED, *_COUNTED))
    if root is not None:
        _refuse_option(source, "--root")
    return counted


def place_of(source: str, root: Path | None) -> str:
    """The path that a SOURCE with graphs stands for: a name in `root`, or itself."""
    return source if root is None else str(folder_of(root, source))


def _refuse_option(source: str, option: str) -> NoReturn:
    raise typer.BadParameter(f"{source} is a histogram, which heeds no {option}; leave it out.")


def _counted(source: str) -> Counted | None:
    """A SOURCE that is a histogram; None for one with graphs."""
    if source == "-":
        return Counted("standard input", _standard_input)
    if source.startswith(_EXAMPLE):
        return Counted(source, lambda: load_example(source.removeprefix(_EXAMPLE)))
    if Path(source).suffix.lower() in (".json", ".csv"):
        return Counted(source, lambda: SizeHistogram.load(source))
    return None


def _standard_input() -> SizeHistogram:
    if sys.stdin is None:
        raise FormatError("standard input is closed; give lines of nodes,edges,count, or the path of a file.")
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except OSError as error:
        raise FormatError(f"standard input cannot be read ({error.strerror}); give the path of a file.") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"standard input is no UTF-8 text ({error}); give lines of nodes,edges,count.") from error
    return SizeHistogram.from_csv(text, "standard input")
