"""Command line: ``dgl-tuplepack``. Exit codes: 0 done, 1 the work failed, 2 bad usage, 130 interrupted.

Options that are wrong in themselves, or name other components than the graphs have, are bad usage. Whatever is wrong
with files and graphs, or cannot be reached with them, is a failure of the work. The class of the error tells them
apart: LimitsError and MethodError are bad usage. Settings that raise other classes go through `options.usage_errors()`.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    try:
        # These imports are slow, so an interrupt often comes here.
        from dgl_tuplepack.tools.cli.process import run

        code = run()
    except KeyboardInterrupt:
        code = 130
    if code == 130:
        print("dgl-tuplepack: interrupted", file=sys.stderr)
    sys.exit(code)
