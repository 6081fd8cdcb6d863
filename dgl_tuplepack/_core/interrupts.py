"""Delay Ctrl-C while a library runs Python callbacks: a KeyboardInterrupt in a callback would be lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delay an interrupt (Ctrl-C), which Python delivers to the main thread only, until the block ends."""
    before = signal.getsignal(signal.SIGINT)
    # SIG_IGN and SIG_DFL are not callable.
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    held: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            before(signal.SIGINT, None)
