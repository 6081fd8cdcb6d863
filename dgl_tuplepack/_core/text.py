"""Names and paths as text for display: they come from files, and may have any characters."""

from __future__ import annotations


def printable(text: object) -> str:
    r"""Return `text` on one line, with escapes for characters that are not safe to display.

    These are control and format characters, line ends, unassigned characters, and surrogates, which represent bytes
    of paths that are not UTF-8.

    Examples
    --------
    >>> print(printable("a\x1b[1mb\n\udcff"))
    a\x1b[1mb\n\udcff
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
