"""Run tasks: in this process, on a pool of processes, or on a given executor."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from dgl_tuplepack.errors import InputError

Tasks = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Failed:
    """The cause of a failure."""

    cause: str


_DIED = Failed(
    "a process died that worked on it, or on another shard of the pool (killed, or out of memory); run again with "
    "fewer workers, which does only what is missing."
)
# In a process of the pool: whether the run was interrupted. The pool hands out tasks ahead.
_over = False


@contextmanager
def executor_of(workers: int, executor: Executor | None = None) -> Iterator[Executor | None]:
    """Provide the given executor, which stays open, or a pool of processes; None for one worker: this process."""
    if executor is not None or workers == 1:
        yield executor
    else:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin_worker) as pool:
            yield pool


def run(executor: Executor | None, task: Callable[..., Any], tasks: Tasks) -> Iterator[tuple[str, Any]]:
    """Yield name and result, or `Failed`, of each task, as they end."""
    if executor is None:
        yield from ((name, _attempt(task, *arguments)) for name, arguments in tasks.items())
        return
    names: dict[Future[Any], str] = {}
    # Processes begin with Ctrl-C ignored: while they import, it would end in a traceback of each.
    with _on_interrupt(signal.SIG_IGN), suppress(BrokenExecutor):
        for name, arguments in tasks.items():
            names[executor.submit(_work, task, *arguments)] = name
    try:
        yield from ((names[future], _attempt(future.result)) for future in as_completed(names))
    finally:
        for future in names:
            future.cancel()
    # A process died before these were submitted.
    yield from ((name, _DIED) for name in tasks.keys() - names.values())


def _attempt(task: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a task, or its failure as text: not every exception can be sent between processes."""
    try:
        return task(*arguments)
    except BrokenExecutor:
        return _DIED
    except InputError as error:
        return Failed(str(error))
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}")


def _work(task: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task on an executor. Ctrl-C, which every process gets, ends it after cleaning up."""
    global _over
    try:
        with _on_interrupt(signal.default_int_handler):
            return Failed("interrupted") if _over else _attempt(task, *arguments)
    except KeyboardInterrupt:
        _over = True
        return Failed("interrupted")


@contextmanager
def _on_interrupt(handler: Any) -> Iterator[None]:
    """Handle Ctrl-C in another way; only the main thread of a process can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _begin_worker() -> None:
    """Leave Ctrl-C between tasks to the main process, and end when that process is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
