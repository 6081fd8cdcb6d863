"""Run a command as a process: report an error in one line, ignore a closed pipe, and return an exit code."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from typing import Any

from dgl_tuplepack._core.optional import EXTRAS, missing
from dgl_tuplepack.errors import LimitsError, MethodError, TuplepackError
from dgl_tuplepack.tools.cli.commands import app
from dgl_tuplepack.tools.cli.output import note


def run() -> int:
    """Run the command in `sys.argv`; return its exit code, 130 for an interrupt."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of components may contain characters that the terminal cannot encode.
        sys.stdout.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_: note(str(message))
        try:
            # If the user interrupts the command, Typer returns 130.
            code: int = app(standalone_mode=False) or 0
            _flush()
        except BrokenPipeError:
            return 1
        except Exception as error:
            code = _explained(error)
            # The command may have failed after it printed text that is still in the buffer.
            with contextlib.suppress(OSError):
                _flush()
    return code


def _flush() -> None:
    """Write the buffered text of standard output; raise OSError if the write fails."""
    try:
        print(end="", flush=True)
    except OSError:
        # Python flushes again at exit. Redirect standard output, so that the second flush cannot fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise


def _explained(error: Any) -> int:
    """Print one line that states why the command failed, and return the exit code; raise an unexpected error again."""
    code, package = 1, (getattr(error, "name", None) or "").partition(".")[0]
    # A usage error is of click, or of Typer's private copy of click, so recognise it by its method.
    if hasattr(error, "format_message"):
        advice = "" if error.ctx is None else f" (see {error.ctx.command_path} --help)"
        code, text = error.exit_code, error.format_message() + advice
    elif isinstance(error, TuplepackError):
        # GraphTooLargeError is a LimitsError too, but not bad usage.
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
