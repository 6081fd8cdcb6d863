"""Standard output and error: any name can be written, and output that cannot be written is an error in one line."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any, TextIO

from dgl_tuplepack._text import printable
from dgl_tuplepack.errors import TuplepackError


class OutputError(TuplepackError):
    """Standard output is closed, full, or nobody reads it any longer."""


class _Output(io.FileIO):
    """Standard output; its errors differ from those of files."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            raise OutputError(
                f"cannot write to standard output: {error.strerror}; the output is not complete."
            ) from error


def install() -> None:
    """Set up both streams of the process so that any text can be written to them."""
    if os.name == "posix":
        _occupy_closed()
        if sys.stdout is None or _is_file(sys.stdout):
            sys.stdout = _output(sys.stdout)
    for stream in (sys.stdout, sys.stderr):
        # Somebody else may have put a stream of another kind there.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def note(text: str) -> None:
    """Print one line beside the result, on standard error."""
    # If this fails, nothing can report it; the exit code stays.
    with contextlib.suppress(OSError):
        print(f"dgl-tuplepack: {printable(text)}", file=sys.stderr, flush=True)


def finish(code: int) -> int:
    """Flush both streams; return the exit code, which a failure changes."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except (OSError, OutputError) as error:
            # Otherwise Python flushes again when it ends, and complains.
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            if number == 1 and code == 0:
                note(str(error))
                code = 1
    return code


def _occupy_closed() -> None:
    """Occupy the numbers of closed streams; otherwise the next file to be opened would get what is printed."""
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # All lower numbers are in use, so the file gets this one.
            os.open(os.devnull, mode)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 (open until the end)


def _is_file(stream: TextIO) -> bool:
    buffer = getattr(stream, "buffer", None)
    # For some devices, Python does not use a buffer.
    raw = getattr(buffer, "raw", buffer)
    return type(raw) is io.FileIO and raw.fileno() == 1


def _output(stream: Any) -> TextIO:
    if stream is not None:
        stream.flush()
    raw = _Output(1, "w", closefd=False)
    encoding = "utf-8" if stream is None else stream.encoding
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, line_buffering=raw.isatty())
