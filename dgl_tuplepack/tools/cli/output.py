"""Output of commands: tables for people, JSON or CSV for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dgl_tuplepack._core.checks import printable


def note(text: str) -> None:
    """Print one line on standard error."""
    typer.echo(f"dgl-tuplepack: {printable(text)}", err=True)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    print(json.dumps(document, indent=2))


def save_to(path: Path | None, save: Callable[[Path], None]) -> None:
    """Save a result if a path is given, and report the path."""
    if path is not None:
        save(path)
        note(f"wrote {path}")


def print_line(line: str) -> None:
    """Print one line, with control characters escaped."""
    print(printable(line))


def print_csv(text: str) -> None:
    """Print CSV text in UTF-8, whatever the encoding of the terminal."""
    typer.echo(text.encode("utf-8"), nl=False)


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]], best: int | None = None) -> None:
    """Print a table with its first column left-aligned; mark row `best` by colour and by the word "best"."""
    if best is not None:
        headings, rows = [*headings, ""], [[*row, "best" if at == best else ""] for at, row in enumerate(rows)]
    cells = [[printable(shown(cell)) for cell in row] for row in rows]
    # Names may look like markup, so every cell is plain text.
    parts, console, frame = [[heading] for heading in headings], Console(), 3 * len(headings) + 1
    columns = [[row[at] for row in cells] for at in range(len(headings))]
    whole = [all(cell[:1].isdigit() or cell in ("", "best") for cell in column) for column in columns]
    widths = [max(map(cell_len, lines + column)) for lines, column in zip(parts, columns, strict=True)]
    # In a narrow terminal, numbers stay whole: headings get a line for each word, and cells may lose their padding.
    if sum(widths) + frame > console.width:
        parts = [heading.split() for heading in headings]
        unbroken = [lines + column * is_whole for lines, column, is_whole in zip(parts, columns, whole, strict=True)]
        widths = [max(map(cell_len, texts), default=1) for texts in unbroken]
        console.width = max(console.width, sum(widths) + len(headings) + 1)
    table = Table(title=_text(title, "table.title"), title_justify="left", show_header=any(headings))
    table.padding = (0, int(sum(widths) + frame <= console.width))
    for number, lines in enumerate(parts):
        heading = Text("\n").join(map(_text, lines))
        table.add_column(heading, justify="right" if number else "left", overflow="fold", no_wrap=whole[number])
    for number, row in enumerate(cells):
        table.add_row(*map(_text, row), style="bold green" if number == best else None)
    console.print(table)


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text), style)


def shown(value: Any) -> str:
    """Return the text of a cell: thousands separators in numbers, two decimals for floats."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def of_batches(graphs: float, packs: int) -> str:
    """Return the mean number of graphs of a batch and its number of packs as text."""
    return f"batches of {graphs:.1f} graphs on average: {packs} pack{'s' if packs > 1 else ''} each"


def percent(fraction: float) -> str:
    """Return a fraction as a percentage."""
    return f"{fraction:.2%}"
