"""Show results as tables and save them; the suffix of a column's name decides its format."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

_FRACTIONS = ("spread", "idle", "used", "lost")


def in_a_folder(path: Path | None) -> Path | None:
    """Return `path`; refuse it before the measurement, not after it, if its folder does not exist."""
    if path is not None and not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"the folder {path.parent} does not exist; create it first, or choose another file.")
    return path


JsonOption = Annotated[
    Path | None, typer.Option("--json", dir_okay=False, callback=in_a_folder, help="Write all results to this file.")
]


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows: fractions in per cent, seconds with three decimals, other floats below 100 with two."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(_shown(name, row.get(name, "")) for name in columns))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def write_json(path: Path | None, results: list[dict[str, Any]]) -> None:
    """Write the results of a command to the file given by ``--json``, if any."""
    if path is not None:
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _shown(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if name.endswith(_FRACTIONS):
        return f"{value:.2%}"
    if name.endswith("_s"):
        return f"{value:.3f}"
    return f"{value:,.2f}" if isinstance(value, float) and value < 100 else f"{value:,.0f}"
