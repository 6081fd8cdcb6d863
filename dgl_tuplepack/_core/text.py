"""Make names and paths safe to display; and convert results to CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any


def printable(text: object) -> str:
    """Return `text` on one line, with escapes for characters that are not safe to display."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows, all with the same keys, as CSV text; a nested mapping becomes one column for each of its keys."""
    flat = [_flat(row) for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a row without nested mappings: ``{"limits": {"nodes": 9}}`` becomes ``{"limits_nodes": 9}``."""
    cells: dict[str, Any] = {}
    for name, value in row.items():
        cells |= _flat(value, f"{prefix}{name}_") if isinstance(value, Mapping) else {prefix + name: value}
    return cells
