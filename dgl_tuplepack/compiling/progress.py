"""A line on the terminal while torch compiles, which takes seconds and says nothing by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dgl_tuplepack._progress import HiddenBar, progress_bar


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show `what` with the seconds that pass, on standard error, if that is a terminal."""
    done = threading.Event()
    with progress_bar(desc=what, bar_format="{desc}: {elapsed}", leave=False) as bar:
        if isinstance(bar, HiddenBar):
            # Without a thread: torch starts processes while it compiles.
            yield
            return

        def tick() -> None:
            while not done.wait(0.5):
                bar.refresh()

        thread = threading.Thread(target=tick, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
