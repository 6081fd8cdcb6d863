"""Limits and other settings as texts of the command line; values that are wrong in themselves are bad usage."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from dgl_tuplepack._checks import OVERSIZE
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.packing.heuristics import NAMES

Value = TypeVar("Value")


def one_of(names: Collection[str]) -> Callable[[str | None], str | None]:
    """Return the callback of an option that takes one of a few names."""

    def check(name: str | None) -> str | None:
        if name is not None and name not in names:
            raise typer.BadParameter(f"{name!r} is unknown; choose one of {', '.join(names)}.")
        return name

    return check


OversizeOption = Annotated[
    str,
    typer.Option(help="What to do with graphs that exceed the limits: error or drop.", callback=one_of(OVERSIZE)),
]
HeuristicOption = Annotated[
    str | None,
    typer.Option(
        "--heuristic",
        metavar="NAME",
        help=f"Order of graphs for best_fit and first_fit: {', '.join(NAMES)}, or weights as 1,0.5.",
        show_default=False,
    ),
]


@contextmanager
def usage_errors() -> Iterator[None]:
    """Report settings that are refused as bad usage."""
    try:
        yield
    except InputError as error:
        raise typer.BadParameter(str(error)) from error


def by_name(
    plain: Mapping[str, Value | None], option: str, texts: Sequence[str], parse: Callable[[str], Value]
) -> dict[str, Value]:
    """Merge options of single components, such as --nodes, with those of the form ``NAME=VALUE``."""
    given = {name: value for name, value in plain.items() if value is not None}
    others = named(option, texts, parse)
    twice = sorted(given.keys() & others.keys())
    if twice:
        raise typer.BadParameter(f"{twice[0]} is given twice, by --{twice[0]} and by {option}; leave one out.")
    return given | others


def check_ending(option: str, path: Path | None, endings: Sequence[str]) -> None:
    """Refuse a file whose ending is not one of `endings`."""
    if path is not None and not path.is_dir() and path.suffix.lower() not in endings:
        raise typer.BadParameter(f"{option} ends in {', '.join(endings)}, but is {path}; rename it.")


def named(option: str, texts: Sequence[str], parse: Callable[[str], Value]) -> dict[str, Value]:
    """Return ``NAME=VALUE`` options as a mapping."""
    found: dict[str, Value] = {}
    for text in texts:
        # A name may contain "=", a value may not.
        name, equals, value = text.rpartition("=")
        if not equals or not name or name in found:
            raise typer.BadParameter(f"{option} must be NAME=VALUE, once for each component, but is {text!r}.")
        found[name] = parse(value)
    return found


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


def value_range(text: str) -> Sequence[int]:
    """Parse ``20:59`` or ``54:160:2`` (both ends inclusive), ``256,512`` or ``256``."""
    if ":" not in text:
        return [whole(part) for part in text.split(",")]
    parts = [whole(part) for part in text.split(":")]
    if len(parts) > 3 or parts[0] > parts[1]:
        raise typer.BadParameter(f"{text!r} is an empty range; write FIRST:LAST or FIRST:LAST:STEP, FIRST <= LAST.")
    return range(parts[0], parts[1] + 1, *parts[2:])


def heuristic(text: str | None) -> str | tuple[float, ...] | None:
    """Parse a name, or weights separated by commas."""
    if text is None or text in NAMES:
        return text
    if not any(c.isdigit() for c in text):
        raise typer.BadParameter(f"{text!r} is not a heuristic; choose one of {', '.join(NAMES)}, or weights as 1,0.5.")
    return tuple(real(part) for part in text.split(","))
