"""Run a command as a process: an error becomes one line and an exit code; a closed pipe prints nothing."""

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
        # Names may contain characters that the terminal cannot encode.
        sys.stdout.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_: note(str(message))
        try:
            # Typer turns an interrupt into 130.
            code: int = app(standalone_mode=False) or 0
            _flush()
        except BrokenPipeError:
            return 1
        except Exception as error:
            code = _explained(error)
            # The command may have failed while it wrote, with output left in the buffer.
            with contextlib.suppress(OSError):
                _flush()
    return code


def _flush() -> None:
    """Write the output that is left in the buffer; raise OSError if that fails."""
    try:
        print(end="", flush=True)
    except OSError:
        # Redirect standard output, else Python flushes again at exit and reports the error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise


def _explained(error: Any) -> int:
    """Print in one line why the command failed; return the exit code. Raise an unexpected error again: it is a bug."""
    code, package = 1, (getattr(error, "name", None) or "").partition(".")[0]
    # Typer's errors come from click or from its own copy of click; Typer exports no class for them.
    if hasattr(error, "format_message"):
        advice = "" if error.ctx is None else f" (see {error.ctx.command_path} --help)"
        code, text = error.exit_code, error.format_message() + advice
    elif isinstance(error, TuplepackError):
        # Only options cause these two errors. GraphTooLargeError is a subclass of LimitsError, but its exit code is 1.
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
