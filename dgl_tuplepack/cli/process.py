"""The process around a command: errors end in one line and an exit code, a closed pipe in none."""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Any

import typer

from dgl_tuplepack._optional import EXTRAS, missing
from dgl_tuplepack.cli.commands import app
from dgl_tuplepack.cli.output import note
from dgl_tuplepack.errors import LimitsError, MethodError, TuplepackError

# Typer takes it from click or from its own copy of click, and has no name for it.
_Refusal: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def run() -> int:
    """Run the command that the arguments of this process name; return the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names may have characters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_: note(str(message))
        code = typer.main.get_command(app).main(standalone_mode=False)
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:
            # Otherwise Python flushes again when it ends, and complains.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise
    return code if isinstance(code, int) else 0


def explained(error: Exception) -> int:
    """Note in one line why the command failed; return the exit code. Raise errors that are faults of the program."""
    code, package = 1, (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, BrokenPipeError):
        return code
    if type(error).__name__ == "NoArgsIsHelpError":
        # Some versions have printed it already.
        print(error.format_message(), end="")  # type: ignore[attr-defined]
        return 2
    if isinstance(error, _Refusal):
        advice = "" if error.ctx is None else f" (see {error.ctx.command_path} --help)"
        code, text = error.exit_code, error.format_message() + advice
    elif isinstance(error, TuplepackError):
        # Only options raise these two; GraphTooLargeError, a subclass, exits with 1.
        code, text = 2 if type(error) in (LimitsError, MethodError) else 1, str(error)
    elif isinstance(error, ImportError) and package in EXTRAS:
        text = str(missing(package, error))
    elif isinstance(error, OSError):
        path = error.filename or "a file"
        text = f"cannot use {path}: {error.strerror or error}; check the path and the disk."
    elif isinstance(error, MemoryError):
        text = "there is not enough memory; use fewer or smaller graphs, or a machine with more memory."
    else:
        raise error
    note(" ".join(text.split()))
    return code
