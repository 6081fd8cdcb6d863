"""Run tasks: in this process, on a pool of processes that may die, or on a given executor."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from dgl_tuplepack._interrupts import interrupts_deferred
from dgl_tuplepack.sharding.tasks import Failed, attempt

# Time for a worker to clean up after its task, once the run has ended.
_GRACE_S = 5.0
# Tasks at a time on a given executor; more than most clusters have processes.
_MOST_SUBMITTED = 1024
_DIED = (
    "the process that worked on it died twice, the second time with nothing beside it (killed, or out of memory); "
    "make the shard smaller, or give the machine more memory."
)
Tasks = Mapping[str, tuple[Any, ...]]


class InThisProcess(Executor):
    """Runs each task at once, where it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the task; its future is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Workers:
    """Runs tasks by name on an executor; a context manager.

    `workers` are the processes of a pool of its own (1 works in this process); an `executor` is used instead, and stays
    open.

    A process that dies breaks its whole pool. Then a new pool repeats the tasks that were running, each task alone: the
    one that kills its process fails, the others do not suffer.
    """

    def __init__(self, workers: int, executor: Executor | None = None) -> None:
        # A pool gets one task for each process, so that it is known which tasks were running.
        self._number, self._most = workers, workers if executor is None else _MOST_SUBMITTED
        self._executor = InThisProcess() if executor is None and workers == 1 else executor
        self._pool: Executor | None = None
        self._hold: Connection | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._hold is not None:
            # The workers stop what they are doing, and clean up.
            self._hold.close()
        self._close()

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        if self._hold is not None:
            self._hold.close()
            self._hold = None

    def _submitted(self, task: Callable[..., Any], arguments: tuple[Any, ...]) -> Future[Any]:
        """Submit a task; where the executor is broken already, its error is in the future."""
        try:
            if self._executor is not None:
                return self._executor.submit(attempt, task, *arguments)
            # Processes that are half started would end with tracebacks.
            with interrupts_deferred():
                # Making the pool starts a helper of Python's, which unblocks interrupts; submitting starts the workers.
                pool = self._pool = self._pool or self._new_pool()
                with _interrupts_blocked():
                    return pool.submit(_work, task, *arguments)
        except BrokenExecutor as error:
            future: Future[Any] = Future()
            future.set_exception(error)
            return future

    def _new_pool(self) -> Executor:
        context = multiprocessing.get_context("spawn")
        # Nothing is ever sent: when this end is closed, or its process dies, the workers stop.
        theirs, self._hold = context.Pipe(duplex=False)
        return ProcessPoolExecutor(self._number, context, _begin_worker, (theirs,))

    def run(self, task: Callable[..., Any], tasks: Tasks) -> Iterator[tuple[str, Any]]:
        """Yield name and result, or `Failed`, of each task, as they end."""
        waiting, suspects = dict(tasks), dict[str, tuple[Any, ...]]()
        while waiting:
            yield from self._run_together(task, waiting, suspects)
            while suspects:
                yield self._run_alone(task, *suspects.popitem())

    def _run_together(
        self, task: Callable[..., Any], waiting: dict[str, tuple[Any, ...]], suspects: dict[str, tuple[Any, ...]]
    ) -> Iterator[tuple[str, Any]]:
        """Take tasks from `waiting` until none is left, or the pool breaks; then the tasks it had are `suspects`."""
        running: dict[Future[Any], str] = {}
        begun: dict[str, tuple[Any, ...]] = {}
        broken = False
        try:
            while running or (waiting and not broken):
                while waiting and len(running) < self._most and not broken:
                    name = next(iter(waiting))
                    future = self._submitted(task, waiting[name])
                    begun[name] = waiting.pop(name)
                    running[future] = name
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    name, error = running.pop(future), _error_of(future)
                    if error is None:
                        yield name, future.result()
                    elif self._executor is None and isinstance(error, BrokenExecutor):
                        broken, suspects[name] = True, begun[name]
                    else:
                        yield name, Failed(_shown(error))
        finally:
            for future in running:
                future.cancel()
        if broken:
            self._close()

    def _run_alone(self, task: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
        future = self._submitted(task, arguments)
        error = _error_of(future)
        if isinstance(error, BrokenExecutor):
            self._close()
            return name, Failed(_DIED)
        return name, future.result() if error is None else Failed(_shown(error))


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Let processes that are started begin with Ctrl-C blocked: they import for seconds before they can handle it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _error_of(future: Future[Any]) -> BaseException | None:
    try:
        return future.exception()
    except CancelledError as error:
        return error


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


# What a process of the pool knows of itself: whether it works on a task, and whether the run has ended.
_working, _over = False, False


def _begin_worker(theirs: Connection) -> None:
    """Leave Ctrl-C to the run, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # If the run has ended meanwhile, this ends the process without a word: there is nothing to clean up yet.
    threading.Thread(target=_end_with, args=(theirs,), daemon=True).start()
    signal.signal(signal.SIGTERM, _leave)


def _end_with(theirs: Connection) -> None:
    global _over
    with suppress(EOFError, OSError):
        theirs.recv()
    _over = True
    # A real signal, which ends waiting as well.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    time.sleep(_GRACE_S)
    os._exit(1)


def _leave(*_: object) -> None:
    """End the task, which cleans up; between tasks, leave the pool's queues alone.

    An exception there would leave half a message for the next process. The end of a run sends each process word through
    them; a broken pool may not be able to, and has nothing to clean up.
    """
    if _working:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit
    if not _over:
        os._exit(1)


def _work(task: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task in a process of the pool."""
    global _working
    try:
        _working = True
        if _over:
            raise SystemExit
        return attempt(task, *arguments)
    finally:
        _working = False
