"""Options that several commands share, and their parsers; an invalid value is bad usage."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from dgl_tuplepack._core.checks import INT64_MAX, OVERSIZE
from dgl_tuplepack.errors import FormatError, InputError
from dgl_tuplepack.graphs.readers.kinds import paths
from dgl_tuplepack.planning.buckets import FEWEST, MOST, Buckets, as_shapes
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing import METHODS
from dgl_tuplepack.planning.packing.heuristics import NAMES

Value = TypeVar("Value")

# Sources that only the command line accepts: named datasets and histograms.
NAMED = "an OGB name together with --root"
COUNTED = ("a saved histogram (.json, .csv)", "example:ogbg-molhiv", "- for CSV on standard input")
# Sources that contain graphs.
GRAPHS = paths([NAMED])


def one_of(names: Collection[str]) -> Callable[[str | None], str | None]:
    """Return a callback that accepts only the given names."""

    def check(name: str | None) -> str | None:
        if name is not None and name not in names:
            raise typer.BadParameter(f"{name!r} is unknown; choose one of {', '.join(names)}.")
        return name

    return check


def _at_most_int64(number: int | None) -> int | None:
    """Raise for numbers beyond int64; Typer's `max` would also show the range in the help."""
    if number is not None and number > INT64_MAX:
        raise typer.BadParameter(f"{number} is more than {INT64_MAX}.")
    return number


Source = Annotated[
    str, typer.Argument(metavar="SOURCE", help=f"One of {paths([NAMED, *COUNTED])}.", show_default=False)
]
Root = Annotated[Path | None, typer.Option(help="Folder of OGB datasets, if SOURCE is an OGB name.")]
Part = Annotated[str | None, typer.Option(help="Use only this split of the dataset, such as train.")]
Nodes = Annotated[int | None, typer.Option(metavar="N", min=1, help="Maximum nodes per pack.")]
Edges = Annotated[int | None, typer.Option(metavar="N", min=1, help="Maximum edges per pack.")]
Graphs = Annotated[
    int | None, typer.Option(metavar="N", min=1, callback=_at_most_int64, help="Maximum graphs per pack.")
]
GraphsPerBatch = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        callback=_at_most_int64,
        help="Mean number of graphs per batch: the batch_size of plain batches, such as 64.",
    ),
]
Limit = Annotated[
    list[str] | None, typer.Option(metavar="NAME=NUMBER", help="Limit of any component, such as nodes:user=90.")
]
GivenLimits = Annotated[
    list[str] | None,
    typer.Option(
        "--limits",
        metavar="NODES,EDGES[,GRAPHS]",
        help="Limits of a pack, or NAME=NUMBER,... by component. "
        f"For shape buckets, repeat the option {FEWEST} to {MOST} times, smallest first.",
    ),
]
MultipleOf = Annotated[
    int, typer.Option(metavar="N", min=1, max=2**31, help="Make padded shapes multiples of this, such as 8, 64 or 128.")
]
Method = Annotated[str, typer.Option(help=f"Packing method: one of {', '.join(METHODS)}.", callback=one_of(METHODS))]
HeuristicName = Annotated[
    str | None,
    typer.Option(
        "--heuristic",
        metavar="NAME",
        help=f"Order of graphs for best_fit and first_fit: {', '.join(NAMES)}, or weights such as 1,0.5.",
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Random seed.")]
Oversize = Annotated[
    str,
    typer.Option(help="What to do with graphs that exceed the limits: error or drop.", callback=one_of(OVERSIZE)),
]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print only CSV.")]


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn an InputError into bad usage."""
    try:
        yield
    except InputError as error:
        raise typer.BadParameter(str(error)) from error


def given_limits(nodes: int | None, edges: int | None, graphs: int | None, others: list[str] | None) -> Limits | None:
    """Return the limits from --nodes, --edges, --graphs and --limit; None if none is given."""
    given = {name: value for name, value in (("nodes", nodes), ("edges", edges)) if value is not None}
    maxima = named("--limit", others, whole)
    for name in given.keys() & maxima.keys():
        raise typer.BadParameter(f"{name} is given twice, by --{name} and by --limit; leave one out.")
    maxima = given | maxima
    if not maxima and graphs is not None:
        raise typer.BadParameter("--graphs alone cannot limit a pack; give --nodes and --edges too.")
    return Limits.from_components(maxima, graphs) if maxima else None


def shapes_of(texts: Sequence[str]) -> Limits | Buckets:
    """Return the limits from --limits, given once or several times."""
    limits = [_limits(text) for text in texts]
    with usage_errors():
        return as_shapes(limits if len(limits) > 1 else limits[0])


def _limits(text: str) -> Limits:
    values = text.split(",")
    if "=" not in text:
        if not 2 <= len(values) <= 3:
            raise typer.BadParameter(f"--limits {text!r} must be NODES,EDGES or NODES,EDGES,GRAPHS.")
        return Limits(*(whole(value) for value in values))
    maxima = named("--limits", values, whole)
    graphs = maxima.pop("graphs", None)
    return Limits.from_components(maxima, graphs)


def named(option: str, texts: Sequence[str] | None, parse: Callable[[str], Value]) -> dict[str, Value]:
    """Return ``NAME=VALUE`` options as a mapping."""
    values: dict[str, Value] = {}
    for text in texts or ():
        # A name may contain "="; a value may not.
        name, equals, value = text.rpartition("=")
        if not equals or not name or name in values:
            raise typer.BadParameter(f"{option} must be NAME=VALUE, once per component, but is {text!r}.")
        values[name] = parse(value)
    return values


def check_ending(option: str, path: Path | None, endings: Sequence[str]) -> None:
    """Raise if the output `path` is a folder, or does not end in one of `endings`."""
    if path is None:
        return
    if path.is_dir():
        raise FormatError(f"cannot write {path}: it is a folder; give the path of a file.")
    if path.suffix.lower() not in endings:
        raise typer.BadParameter(f"{option} must end in {', '.join(endings)}, but is {path}; rename it.")


def check_output(as_json: bool, as_csv: bool) -> None:
    """Raise if both --json and --csv are given."""
    if as_json and as_csv:
        raise typer.BadParameter("--json and --csv cannot be given together; choose one.")


def whole(text: str) -> int:
    """Parse a whole number >= 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise typer.BadParameter(f"{text!r} is not a whole number above 0.")
    return number


def real(text: str) -> float:
    """Parse a number."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number.") from None


def heuristic(text: str | None) -> str | tuple[float, ...] | None:
    """Parse a name, or weights separated by commas."""
    if text is None or text in NAMES:
        return text
    if not any(c.isdigit() for c in text):
        advice = f"choose one of {', '.join(NAMES)}, or weights such as 1,0.5"
        raise typer.BadParameter(f"{text!r} is not a heuristic; {advice}.")
    return tuple(real(weight) for weight in text.split(","))
