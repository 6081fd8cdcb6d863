"""Progress bars: on standard error, and only if it is a terminal."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm


def progress_bar(items: Iterable[Any] | None = None, *, hidden: bool = False, **settings: Any) -> Any:
    """Return a bar of tqdm over `items`, or one that is updated by hand; `settings` are tqdm's."""
    # Several processes at once would write over each other's bars.
    hidden = hidden or multiprocessing.parent_process() is not None
    return tqdm(items, disable=hidden or sys.stderr is None or not sys.stderr.isatty(), **settings)
