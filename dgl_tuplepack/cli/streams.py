"""Standard output and error: any name can be written, and what cannot be written is an error in one line."""

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
    """Standard output, whose errors differ from those of files."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            raise OutputError(
                f"cannot write to standard output: {error.strerror}; the output is not complete."
            ) from error


def install() -> None:
    """Make both streams of the process ones that any text can be written to."""
    if os.name == "posix":
        _occupy_closed()
        if sys.stdout is None or _is_file(sys.stdout):
            sys.stdout = _output(sys.stdout)
    for stream in (sys.stdout, sys.stderr):
        # A stream that somebody else has put there may be of another kind.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def note(text: str) -> None:
    """Say something beside the result, in one line on standard error."""
    # Where this fails there is no place left to say so; the exit code stays.
    with contextlib.suppress(OSError):
        print(f"dgl-tuplepack: {printable(text)}", file=sys.stderr, flush=True)


def finish(code: int) -> int:
    """Write out what waits to be written; return the exit code, which a failure changes."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except (OSError, OutputError) as error:
            # Python tries it again at its end, and complains.
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            if number == 1 and code == 0:
                note(str(error))
                code = 1
    return code


def _occupy_closed() -> None:
    """Take the places of closed streams: the next file that is opened would, and get what is printed."""
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # Lower ones are taken, so this is the place that it gets.
            os.open(os.devnull, mode)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 (open until the end)


def _is_file(stream: TextIO) -> bool:
    buffer = getattr(stream, "buffer", None)
    # Python puts no buffer before some devices.
    raw = getattr(buffer, "raw", buffer)
    return type(raw) is io.FileIO and raw.fileno() == 1


def _output(stream: Any) -> TextIO:
    if stream is not None:
        stream.flush()
    raw = _Output(1, "w", closefd=False)
    encoding = "utf-8" if stream is None else stream.encoding
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, line_buffering=raw.isatty())
