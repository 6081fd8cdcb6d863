"""Run tasks: in this process, on a pool of processes, or on a given executor."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

from dgl_tuplepack.sharding.tasks import Failed, attempt

_DIED = (
    "a process died that worked on it, or on another shard of the pool (killed, or out of memory); run again with "
    "fewer workers, which does only what is missing."
)
Tasks = Mapping[str, tuple[Any, ...]]


@contextmanager
def executor_of(workers: int, executor: Executor | None = None) -> Iterator[Executor | None]:
    """Provide the given executor, which stays open, or a pool of processes; None for one worker: this process."""
    if executor is not None or workers == 1:
        yield executor
        return
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin_worker)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def run(executor: Executor | None, task: Callable[..., Any], tasks: Tasks) -> Iterator[tuple[str, Any]]:
    """Yield name and result, or `Failed`, of each task, as they end."""
    if executor is None:
        yield from ((name, attempt(task, *arguments)) for name, arguments in tasks.items())
        return
    with _interrupts_ignored():
        names = {_submitted(executor, task, arguments): name for name, arguments in tasks.items()}
    try:
        for future in as_completed(names):
            yield names[future], _result_of(future)
    finally:
        for future in names:
            future.cancel()


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Let processes begin with Ctrl-C ignored: while they import, it would end in a traceback of each."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _submitted(executor: Executor, task: Callable[..., Any], arguments: tuple[Any, ...]) -> Future[Any]:
    """Submit a task; if a process has died already, the error is in the future."""
    try:
        return executor.submit(_work, task, *arguments)
    except BrokenExecutor as error:
        future: Future[Any] = Future()
        future.set_exception(error)
        return future


def _result_of(future: Future[Any]) -> Any:
    try:
        return future.result()
    except BrokenExecutor:
        return Failed(_DIED)
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}")


# In a process of the pool: whether the run was interrupted. The pool hands out tasks ahead.
_over = False


def _begin_worker() -> None:
    """Leave Ctrl-C between tasks to the main process, and end when that process is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(task: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task on an executor. Ctrl-C, which every process gets, ends it after cleaning up."""
    global _over
    if threading.current_thread() is not threading.main_thread():
        return attempt(task, *arguments)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return Failed("interrupted") if _over else attempt(task, *arguments)
    except KeyboardInterrupt:
        _over = True
        return Failed("interrupted")
    finally:
        signal.signal(signal.SIGINT, before)
