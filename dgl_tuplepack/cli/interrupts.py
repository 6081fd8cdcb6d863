"""Ctrl-C: one line and exit code 130, wherever it comes, and never a traceback."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

# An interrupt so soon after the first counts as the same one: terminals and wrappers send it twice.
_SAME_S = 1.0

_first_s: float | None = None
_working = False
_say: Callable[[str], None] = print


def install(say: Callable[[str], None]) -> None:
    """Make an interrupt end the process at once, until work begins: there is nothing to clean up yet.

    An exception could be lost in the imports and the compiler.
    """
    global _first_s, _working, _say
    _first_s, _working, _say = None, False, say
    # Only the main thread can set handlers, and a process that was started to ignore interrupts keeps doing so.
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        return
    signal.signal(signal.SIGINT, _interrupt)
    sys.excepthook = _silenced(sys.excepthook)
    threading.excepthook = _silenced(threading.excepthook)
    sys.unraisablehook = _raised_again(sys.unraisablehook)


def begin_work() -> None:
    """Turn later interrupts into one KeyboardInterrupt, so that unfinished work is cleaned up."""
    global _working
    _working = True


def uninstall() -> None:
    """Let the next interrupt end the process at once, without a message."""
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def happened() -> bool:
    """Return whether an interrupt has come."""
    return _first_s is not None


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _first_s
    if not _working:
        _say("interrupted")
        os._exit(130)
    if _first_s is None:
        _first_s = time.monotonic()
        raise KeyboardInterrupt
    # The process is cleaning up after the first; a user who insists need not wait.
    if time.monotonic() - _first_s > _SAME_S:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


def _silenced(hook: Any) -> Any:
    """Return the hook with no output after an interrupt: C code reports the failures that the interrupt causes."""

    def show(*details: Any) -> None:
        if not happened():
            hook(*details)

    return show


def _raised_again(hook: Any) -> Any:
    """Return the hook for exceptions in destructors and callbacks such that interrupts are not lost there."""

    def show(unraisable: Any) -> None:
        global _first_s
        if unraisable.exc_type is KeyboardInterrupt:
            _first_s = None
            _thread.interrupt_main()
        elif not happened():
            hook(unraisable)

    return show
