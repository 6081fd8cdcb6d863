"""Limits and other numbers for each component, as written on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import typer

Value = TypeVar("Value")

HeuristicOption = Annotated[
    str | None,
    typer.Option(
        "--heuristic",
        metavar="NAME",
        help="product, sum, maximum, minimum, node, edge, or weights as 1,0.5.",
        show_default=False,
    ),
]


def named(option: str, texts: Sequence[str], parse: Callable[[str], Value]) -> dict[str, Value]:
    """``NAME=VALUE`` options as a mapping."""
    found: dict[str, Value] = {}
    for text in texts:
        # Component names may hold "=" no more than values do.
        name, equals, value = text.rpartition("=")
        if not equals or not name or name in found:
            raise typer.BadParameter(f"{option} {text!r} must be written once for each component, as NAME=VALUE.")
        found[name] = parse(value)
    return found


def whole(text: str) -> int:
    """A whole number >= 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise typer.BadParameter(f"{text!r} is no whole number above 0.")
    return number


def real(text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no number.") from None


def value_range(text: str) -> Sequence[int]:
    """``20:59``, ``54:160:2`` (both ends inclusive), ``256,512`` or ``256``."""
    if ":" not in text:
        return [whole(part) for part in text.split(",")]
    parts = [whole(part) for part in text.split(":")]
    if len(parts) > 3 or parts[0] > parts[1]:
        raise typer.BadParameter(f"{text!r} is an empty range; write FIRST:LAST or FIRST:LAST:STEP, FIRST <= LAST.")
    return range(parts[0], parts[1] + 1, *parts[2:])


def heuristic(text: str | None) -> str | tuple[float, ...] | None:
    """A name, or weights separated by commas."""
    if text is None or not any(c.isdigit() for c in text):
        return text
    return tuple(real(part) for part in text.split(","))
