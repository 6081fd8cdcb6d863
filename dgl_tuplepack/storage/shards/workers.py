"""Run tasks: in this process, on a pool of processes, or on a given executor."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dgl_tuplepack._core.checks import whole_number
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.errors import InputError, ShardsError
from dgl_tuplepack.planning.search.evaluation import available_cores

# Name of a task -> its arguments.
Tasks = Mapping[str, tuple[Any, ...]]
# Submits a function with its arguments, and returns the future of its result.
Submit = Callable[..., Future[Any]]


@dataclass(frozen=True)
class Failed:
    """The cause of a task's failure, as text."""

    cause: str


# An error lists at most this many causes, and at most this many shards for each cause.
_SHOWN = 10
_DIED = Failed(
    "its process, or another process of the pool, died (killed, or out of memory); run again with fewer workers: a new "
    "run does only what is missing."
)
# In a process of the pool: whether the run was interrupted. If so, tasks in the queue must not start.
_interrupted = False


@contextmanager
def submitting(workers: int, executor: Executor | None = None) -> Iterator[Submit | None]:
    """Yield a function that submits a task to the executor or to a pool.

    With one worker and no executor, yield None: `run` then runs the tasks in this process.
    """
    if executor is not None:
        yield lambda *task: executor.submit(_attempt, *task)
    elif workers == 1:
        yield None
    else:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin_worker) as pool:
            yield lambda *task: pool.submit(_work, *task)


def run(submit: Submit | None, task: Callable[..., Any], tasks: Tasks) -> Iterator[tuple[str, Any]]:
    """Yield the name and the result (or `Failed`) of each task as soon as the task ends."""
    if submit is None:
        yield from ((name, _attempt(task, *arguments)) for name, arguments in tasks.items())
        return
    names: dict[Future[Any], str] = {}
    try:
        # Block Ctrl-C while processes start: a process that is interrupted during its imports prints a traceback.
        _hold_interrupts(True)
        try:
            for name, arguments in tasks.items():
                names[submit(task, *arguments)] = name
        except BrokenExecutor:
            # A process has died. Tasks that were not submitted are reported below.
            pass
        finally:
            _hold_interrupts(False)
        # If a process has died, `_attempt` returns `_DIED`.
        yield from ((names[future], _attempt(future.result)) for future in as_completed(names))
    finally:
        # If the caller stops early, cancel all tasks that have not started.
        for future in names:
            future.cancel()
    yield from ((name, _DIED) for name in tasks.keys() - names.values())


def run_all(
    submit: Submit | None, task: Callable[..., Any], tasks: Tasks, unit: str, what: str = "shards"
) -> dict[str, Any]:
    """Return the results of all tasks by name, in the order of the tasks.

    Raise ShardsError if tasks failed. `unit` is the unit of the progress bar, `what` the noun for tasks in messages.
    """
    done = dict(progress_bar(run(submit, task, tasks), total=len(tasks), desc=unit, unit=f" {unit}"))
    refuse({name: done[name].cause for name in tasks if isinstance(done[name], Failed)}, len(tasks), what)
    return {name: done[name] for name in tasks}


def refuse(failed: Mapping[str, str], number: int, what: str = "shards") -> None:
    """Raise ShardsError if `failed` (name of a failed task -> cause) is not empty; `number` counts all tasks."""
    if failed:
        names: dict[str, list[str]] = {}
        for name, cause in failed.items():
            names.setdefault(cause, []).append(name)
        # One line for each cause: thousands of shards may fail for the same cause.
        lines = [f"{_first(same, ', ')}: {cause:.2000}" for cause, same in names.items()]
        causes = "\n- " + _first(lines, "\n- ")
        raise ShardsError(
            f"{len(failed)} of {number} {what} failed; correct the causes and run again: a new run does only what is "
            f"missing.{causes}"
        )


def _first(texts: Sequence[str], separator: str) -> str:
    """Join the first texts, and add the number of the others."""
    more = [f"{len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return separator.join([*texts[:_SHOWN], *more])


def number_of_processes(workers: int | None) -> int:
    """Return the number of processes: `workers`, or one for each core if `workers` is None."""
    return available_cores() if workers is None else whole_number("workers", workers, 1, 4096, InputError)


def _attempt(task: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a task, or `Failed` with the cause: not every exception can be sent between processes."""
    try:
        return task(*arguments)
    except BrokenExecutor:
        return _DIED
    except InputError as error:
        return Failed(str(error))
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}")


def _hold_interrupts(held: bool) -> None:
    """Block or unblock Ctrl-C for this process and the processes that it starts; do nothing on Windows."""
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK if held else signal.SIG_UNBLOCK, {signal.SIGINT})


def _begin_worker() -> None:
    """Set up a process of the pool: Ctrl-C makes later tasks fail, and the process ends when the main process ends."""
    signal.signal(signal.SIGINT, _end_run)
    # Unblock Ctrl-C, which the main process blocked before it started this process.
    _hold_interrupts(False)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait until the main process ends, then end this process at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _end_run(*_: object) -> None:
    """Make every later task of this process fail before it starts. Between tasks, Ctrl-C calls this function."""
    global _interrupted
    _interrupted = True


def _work(task: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a task in a process of the pool, or `Failed`.

    Ctrl-C reaches every process. In a running task it raises KeyboardInterrupt, so that the task can clean up.
    """
    try:
        if not _interrupted:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            return _attempt(task, *arguments)
    except KeyboardInterrupt:
        _end_run()
    finally:
        signal.signal(signal.SIGINT, _end_run)
    return Failed("interrupted")
