"""Command line: ``dgl-tuplepack``. Exit codes: 0 done, 1 the work failed, 2 bad usage, 130 interrupted.

Bad usage is what is wrong in the options themselves, or gives limits, ranges and the like for other components than the
graphs have. What is wrong with files and graphs, or out of their reach, is a failure.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    # Nothing is imported before: an interrupt from here on ends without a traceback.
    try:
        from dgl_tuplepack.cli.process import run

        code = run()
    except KeyboardInterrupt:
        code = 130
        if sys.stderr is not None:
            print("dgl-tuplepack: interrupted", file=sys.stderr)
    sys.exit(code)
