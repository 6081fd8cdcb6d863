"""Results as tables: how each figure is shown follows from the end of its name."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.table import Table

_FRACTIONS = ("spread", "idle", "used", "lost")


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows that have the same keys; fractions in per cent, seconds to the millisecond."""
    table = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        table.add_row(*(_shown(name, value) for name, value in row.items()))
    Console(width=None if sys.stdout.isatty() else 150).print(table)


def _shown(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if name.endswith(_FRACTIONS):
        return f"{value:.2%}"
    return f"{value:.3f}" if name.endswith("_s") else f"{value:,.0f}"
