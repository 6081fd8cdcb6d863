"""Command line: ``dgl-tuplepack``. Exit codes: 0 done, 1 the work failed, 2 bad usage, 130 interrupted.

Options that are wrong in themselves, or name other components than the graphs have, are bad usage. Whatever is wrong
with files and graphs, or cannot be reached with them, is a failure of the work. `process` tells them apart by the class
of the error: LimitsError and MethodError are bad usage. Settings that raise other classes go through
`options.usage_errors()`.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    # An exception might be lost in the slow imports, and there is nothing to clean up before and after the work.
    # A process that was started to ignore interrupts keeps doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    from dgl_tuplepack.cli.process import run

    sys.exit(run())


def end_at_once(*_: object) -> None:
    """End an interrupted process that has nothing to clean up."""
    os.write(2, b"dgl-tuplepack: interrupted\n")
    os._exit(130)
