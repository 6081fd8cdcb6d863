"""The process around a command: errors and Ctrl-C end in one line and an exit code, a closed pipe in none."""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from typing import Any

import typer

from dgl_tuplepack._optional import EXTRAS, missing
from dgl_tuplepack.cli import end_at_once
from dgl_tuplepack.cli.commands import app
from dgl_tuplepack.cli.output import note
from dgl_tuplepack.errors import LimitsError, MethodError, TuplepackError

# Typer takes it from click or from its own copy of click, and has no name for it.
_Refusal: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

_interrupted = False


def run() -> int:
    """Run the command that the arguments of this process name; return the exit code."""
    global _interrupted
    _interrupted, code = False, 130
    for stream in (sys.stdout, sys.stderr):
        # Names may have any characters, and standard streams may be of another kind.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    may_interrupt = signal.getsignal(signal.SIGINT) is end_at_once
    if may_interrupt:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda message, *_: note(str(message))
            # Typer turns KeyboardInterrupt into 130.
            returned = typer.main.get_command(app).main(standalone_mode=False)
            code = returned if isinstance(returned, int) else 0
    except BaseException as error:
        # An interrupt may have become another error on its way, inside an import for instance.
        if not _interrupted:
            code = _explain(error)
    if may_interrupt:
        signal.signal(signal.SIGINT, end_at_once)
    if code == 130:
        note("interrupted")
    return _finish(code)


def _interrupt(*_: object) -> None:
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


def _explain(error: BaseException) -> int:
    """Note in one line why the command failed; return the exit code. Raise errors that are faults of the program."""
    if isinstance(error, TuplepackError):
        note(" ".join(str(error).split()))
        # Only options raise these two; GraphTooLargeError, a subclass, exits with 1.
        return 2 if type(error) in (LimitsError, MethodError) else 1
    if type(error).__name__ == "NoArgsIsHelpError":
        # Some versions have printed it already.
        print(error.format_message(), end="")  # type: ignore[attr-defined]
        return 2
    if isinstance(error, _Refusal):
        advice = "" if error.ctx is None else f" (see {error.ctx.command_path} --help)"
        note(" ".join(error.format_message().split()) + advice)
        return int(error.exit_code)
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] in EXTRAS:
        note(str(missing((error.name or "").partition(".")[0], error)))
    elif isinstance(error, OSError):
        path = "a file" if error.filename is None else error.filename
        note(f"cannot use {path}: {error.strerror or error}; check the path and the disk.")
    elif isinstance(error, MemoryError):
        note("there is not enough memory; use fewer or smaller graphs, or a machine with more memory.")
    else:
        raise error
    return 1


def _finish(code: int) -> int:
    """Flush standard output; return the exit code, which a failure changes."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        # Otherwise Python flushes again when it ends, and complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if code == 0 and not isinstance(error, BrokenPipeError):
            note(f"cannot write to standard output: {error.strerror}; the output is not complete.")
        return code or 1
    return code
