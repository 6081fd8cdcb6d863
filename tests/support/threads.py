"""Run the same in several threads that begin together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Run = Callable[[int, Any, threading.Barrier], Any]


def at_the_same_time(run: Run, arguments: list[Any]) -> list[Any]:
    """Results of `run(number, argument, barrier)` in one thread for each argument; their first error is raised."""
    barrier = threading.Barrier(len(arguments))
    results: list[Any] = [None] * len(arguments)
    errors: list[Exception] = []

    def guarded(number: int) -> None:
        try:
            results[number] = run(number, arguments[number], barrier)
        except Exception as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(len(arguments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise min(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError))
    return results
