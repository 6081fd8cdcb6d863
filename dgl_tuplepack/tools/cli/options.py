"""Options that several commands share, and their parsers; an invalid value is bad usage."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from dgl_tuplepack._core.checks import INT64_MAX, OVERSIZE
from dgl_tuplepack._core.files import writable
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.readers.kinds import paths
from dgl_tuplepack.planning.buckets import FEWEST, MOST, Buckets, as_shapes
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing import METHODS
from dgl_tuplepack.planning.packing.fit import NAMES
from dgl_tuplepack.planning.search import GRAPHS_PER_BATCH

Value = TypeVar("Value")

# Sources that only the command line accepts.
NAMED = "an OGB name together with --root"
COUNTED = ("a saved histogram (.json, .csv)", "example:ogbg-molhiv", "- for a histogram on standard input")
# Sources that contain graphs.
GRAPHS = paths([NAMED])


def number(help: str, most: int | None = None, *, least: int = 1, **settings: Any) -> Any:
    """Return an option for a whole number. Typer's `max` would show the range in the help, so a callback checks it."""

    def check(given: int | None) -> int | None:
        if given is not None and most is not None and given > most:
            raise typer.BadParameter(f"{given} is more than {most}.")
        return given

    return typer.Option(metavar="N", min=least, callback=check, help=help, **settings)


def argument(metavar: str, help: str) -> Any:
    """Return an argument."""
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def out(help: str, **settings: Any) -> Any:
    """Return the option for the file or folder that a command writes."""
    return typer.Option("--out", "-o", help=help, **settings)


def choice(help: str, names: Collection[str]) -> Any:
    """Return an option for one of `names`."""

    def check(name: str) -> str:
        if name not in names:
            raise typer.BadParameter(f"{name!r} is unknown; choose one of {', '.join(names)}.")
        return name

    return typer.Option(help=help, callback=check)


Source = Annotated[str, argument("SOURCE", f"One of: {paths([NAMED, *COUNTED])}.")]
Root = Annotated[Path | None, typer.Option(help="Folder of OGB datasets, if SOURCE is an OGB name.")]
Split = Annotated[str | None, typer.Option(help="Use only this split of the dataset, such as train.")]
MaxGraphs = Annotated[int | None, number("Maximum graphs per pack.", INT64_MAX)]
GraphsPerBatch = Annotated[
    int | None,
    number(
        "Mean number of graphs per batch; corresponds to the batch_size of other loaders; "
        f"default: {GRAPHS_PER_BATCH}, if the largest graph allows it.",
        INT64_MAX,
    ),
]
GivenLimits = Annotated[
    list[str] | None,
    typer.Option(
        "--limits",
        metavar="LIMITS",
        help="Limits of a pack: NODES,EDGES[,GRAPHS], such as 222,502, or NAME=NUMBER for each component, joined by "
        "commas. For shape buckets (commands plan and preprocess only), repeat --limits "
        f"{FEWEST} to {MOST} times, smallest first.",
    ),
]
MultipleOf = Annotated[int, number("Make padded shapes multiples of this, such as 64.", 2**31)]
Method = Annotated[str, choice(f"Packing method: one of {', '.join(METHODS)}.", METHODS)]
HeuristicName = Annotated[
    str | None,
    typer.Option(
        "--heuristic",
        metavar="NAME",
        help=f"Order of graphs for best_fit and first_fit: {', '.join(NAMES)}, or weights such as 1,0.5.",
    ),
]
Seed = Annotated[int, number("Random seed.", least=0)]
Oversize = Annotated[str, choice("What to do with graphs that exceed the limits: error or drop.", OVERSIZE)]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite", help="Replace an existing store, or all shards, chunks or parts that an earlier run left."
    ),
]
Workers = Annotated[int | None, number("Worker processes; default: one per core.")]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print only CSV on standard output.")]


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn an InputError inside the block into bad usage."""
    try:
        yield
    except InputError as error:
        raise typer.BadParameter(str(error)) from error


def given_limits(
    texts: Sequence[str] | None, graphs_per_batch: int | None = None, multiple_of: int = 1
) -> Limits | Buckets | None:
    """Return the limits of --limits, or None without it; raise BadParameter if options of a search are given too."""
    if not texts:
        return None
    for option, is_given in (("--graphs-per-batch", graphs_per_batch is not None), ("--multiple-of", multiple_of != 1)):
        if is_given:
            raise typer.BadParameter(f"--limits replaces the search; leave {option} or --limits out.")
    limits = [_limits(text) for text in texts]
    return as_shapes(limits if len(limits) > 1 else limits[0])


def _limits(text: str) -> Limits:
    """Parse one --limits option: NODES,EDGES[,GRAPHS] or NAME=NUMBER,..."""
    if "=" in text:
        # Names may contain commas, so split only at commas that follow a value.
        maxima = named("--limits", re.sub(r"(=[^=,]*),", "\\1\0", text).split("\0"), whole)
        graphs = maxima.pop("graphs", None)
        return Limits.from_components(maxima, graphs)
    values = text.split(",")
    if not 2 <= len(values) <= 3:
        raise typer.BadParameter(f"--limits must be NODES,EDGES[,GRAPHS] or NAME=NUMBER,..., but is {text!r}.")
    return Limits(*(whole("--limits", value) for value in values))


def named(option: str, texts: Sequence[str] | None, parse: Callable[[str, str], Value]) -> dict[str, Value]:
    """Parse ``NAME=VALUE`` texts into a dict; `parse` converts the text of a value, given the option and the text."""
    values: dict[str, Value] = {}
    for text in texts or ():
        # A name may contain "="; a value may not.
        name, equals, value = text.rpartition("=")
        if not equals or not name or name in values:
            raise typer.BadParameter(f"{option} must be NAME=VALUE, once per component, but is {text!r}.")
        values[name] = parse(option, value)
    return values


def check_file(option: str, path: Path | None, endings: Sequence[str] = ()) -> None:
    """Raise an error if the output file `path` cannot be written, or does not end in one of `endings`, if any."""
    if path is None:
        return
    writable(path)
    if endings and path.suffix.lower() not in endings:
        raise typer.BadParameter(f"{option} must end in {', '.join(endings)}, but is {path}; rename it.")


def check_output(as_json: bool, as_csv: bool) -> None:
    """Raise BadParameter if both --json and --csv are given."""
    if as_json and as_csv:
        raise typer.BadParameter("--json and --csv cannot be given together; choose one.")


def whole(option: str, text: str) -> int:
    """Parse the value of an option as a whole number >= 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise typer.BadParameter(f"{option}: {text!r} is not a whole number above 0.")
    return number


def real(option: str, text: str) -> float:
    """Parse the value of an option as a number."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{option}: {text!r} is not a number.") from None


def heuristic(text: str | None) -> str | tuple[float, ...] | None:
    """Parse the name of a heuristic, or weights separated by commas."""
    if text is None or text in NAMES:
        return text
    if not any(c.isdigit() for c in text):
        raise typer.BadParameter(f"{text!r} is unknown; choose one of {', '.join(NAMES)}, or weights such as 1,0.5.")
    return tuple(real("--heuristic", weight) for weight in text.split(","))
