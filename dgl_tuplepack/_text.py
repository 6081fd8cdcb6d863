"""Names and paths as text to show, whatever characters they hold; rows as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any


def printable(text: object) -> str:
    r"""`text` on one line, with escapes in place of whatever a terminal or a page would obey or could not encode.

    These are control and format characters, line ends, characters without a meaning, and surrogates, which stand for
    the bytes of paths that are not UTF-8.

    Examples
    --------
    >>> print(printable("a\x1b[1mb\n\udcff"))
    a\x1b[1mb\n\udcff
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return CSV of rows that have the same keys; a mapping inside becomes one column for each of its keys."""
    flat = [_flat(row) for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            cells |= _flat(value, f"{prefix}{name}_")
        else:
            cells[prefix + name] = value
    return cells
