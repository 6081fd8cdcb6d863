"""Delay Ctrl-C while a library runs Python callbacks: a KeyboardInterrupt in a callback would be lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delay an interrupt (Ctrl-C) until the block ends.

    In threads other than the main thread, do nothing: Python delivers interrupts only to the main thread.
    """
    before = signal.getsignal(signal.SIGINT)
    # A handler that is not callable (SIG_IGN, SIG_DFL) raises no exception, so there is nothing to delay.
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    held: list[int] = []
    # During the block, only record that an interrupt came.
    signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        # Deliver the delayed interrupt, even if the block failed.
        if held:
            before(signal.SIGINT, None)
