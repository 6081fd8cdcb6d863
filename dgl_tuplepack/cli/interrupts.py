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

# A second interrupt so soon after the first one is the same: terminals and wrappers send it twice.
_SAME_S = 1.0

_first_s: float | None = None
_working = False
_say: Callable[[str], None] = print


def install(say: Callable[[str], None]) -> None:
    """End the process at the first interrupt, until work begins: there is nothing to clean up yet.

    An exception could be lost on its way out of the imports and the compiler.
    """
    global _first_s, _working, _say
    _first_s, _working, _say = None, False, say
    # Only the main thread may, and who started the process ignoring interrupts wants it so.
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        return
    signal.signal(signal.SIGINT, _interrupt)
    sys.excepthook = _silenced(sys.excepthook)
    threading.excepthook = _silenced(threading.excepthook)
    sys.unraisablehook = _raised_again(sys.unraisablehook)


def begin_work() -> None:
    """From here on, turn interrupts into one KeyboardInterrupt, so that what was begun is cleaned up."""
    global _working
    _working = True


def uninstall() -> None:
    """Let the next interrupt end the process at once, without a word."""
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def happened() -> bool:
    """Whether an interrupt has come."""
    return _first_s is not None


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _first_s
    if not _working:
        _say("interrupted")
        os._exit(130)
    if _first_s is None:
        _first_s = time.monotonic()
        raise KeyboardInterrupt
    # The first one is being cleaned up after; who insists need not wait.
    if time.monotonic() - _first_s > _SAME_S:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


def _silenced(hook: Any) -> Any:
    """A hook that shows what else fails, but not what an interrupt makes fail: C code prints it before it goes on."""

    def show(*details: Any) -> None:
        if not happened():
            hook(*details)

    return show


def _raised_again(hook: Any) -> Any:
    """A hook for exceptions in destructors and callbacks: the interrupt would be lost there."""

    def show(unraisable: Any) -> None:
        global _first_s
        if unraisable.exc_type is KeyboardInterrupt:
            _first_s = None
            _thread.interrupt_main()
        elif not happened():
            hook(unraisable)

    return show
