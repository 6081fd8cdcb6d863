"""Command line: ``dgl-tuplepack``. Exit codes: 0 done, 1 the work failed, 2 bad usage, 130 interrupted.

Options that are wrong in themselves, or name other components than the graphs have, are bad usage. Whatever is wrong
with files and graphs, or cannot be reached with them, is a failure of the work. The class of the error tells them
apart: LimitsError and MethodError are bad usage. Settings that raise other classes go through `options.usage_errors()`.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    code = 130
    try:
        # These imports are slow, so an interrupt often comes here.
        from dgl_tuplepack.cli.process import explained, run

        try:
            # Typer turns KeyboardInterrupt into 130.
            code = run()
        except Exception as error:
            code = explained(error)
    except KeyboardInterrupt:
        pass
    if code == 130 and sys.stderr is not None:
        print("dgl-tuplepack: interrupted", file=sys.stderr)
    sys.exit(code)
