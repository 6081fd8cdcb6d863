"""How often torch's tracer has followed functions: what it compiles again, for whatever reason, it traces again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch


class _Traces(threading.local):
    """The number of traces that this thread has made."""

    def __init__(self) -> None:
        self.number = 0


traces = _Traces()


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the same, and counts when it is traced."""
    # The tracer calls it, and takes the result for a constant. Here, since torch loads its compiler for this.
    count = torch.compiler.assume_constant_result(_count)  # type: ignore[no-untyped-call]

    def traced(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            count()
        return function(*args, **kwargs)

    return traced


def _count() -> int:
    traces.number += 1
    return 0
