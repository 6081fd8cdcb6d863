"""Show progress bars on standard error, if standard error is a terminal."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from tqdm import tqdm

# A bar with ``delay=DELAY`` shows only if the work takes longer than this many seconds.
DELAY = 1.0
# Some steps of planning take about a second for this number of graphs.
_MANY = 10_000_000


def progress_bar(items: Iterable[Any] | None = None, *, hidden: bool = False, **settings: Any) -> Any:
    """Return a tqdm bar over `items` with these `settings`; without `items`, the caller must update it."""
    # Several processes would overwrite each other's bars.
    hidden = hidden or multiprocessing.parent_process() is not None
    if hidden or sys.stderr is None or not sys.stderr.isatty():
        return HiddenBar(() if items is None else items)
    return tqdm(items, **settings)


def notice(text: str, graphs: int = _MANY) -> Any:
    """Show the text in a ``with`` block whose steps cannot be counted; show nothing if it has few `graphs` to do."""
    return progress_bar(desc=text, bar_format="{desc}", leave=False, hidden=graphs < _MANY)


class HiddenBar(contextlib.AbstractContextManager["HiddenBar"]):
    """A bar that shows nothing. tqdm's own takes a lock that a killed process never releases."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def update(self, number: int = 1) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
