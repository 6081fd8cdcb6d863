"""Command line: ``dgl-tuplepack``. Exit codes: 0 done, 1 the work failed, 2 bad usage, 130 interrupted.

Bad usage is what is wrong in the options themselves, or gives limits, ranges and the like for other components than the
graphs have. What is wrong with files and graphs, or out of their reach, is a failure.
"""

from __future__ import annotations

import sys

# Each file adds its commands to the application.
from dgl_tuplepack.cli import demo as _demo  # noqa: F401
from dgl_tuplepack.cli import limits as _limits  # noqa: F401
from dgl_tuplepack.cli import pictures as _pictures  # noqa: F401
from dgl_tuplepack.cli import plan as _plan  # noqa: F401
from dgl_tuplepack.cli import sizes as _sizes  # noqa: F401
from dgl_tuplepack.cli import store as _store  # noqa: F401
from dgl_tuplepack.cli.app import app
from dgl_tuplepack.errors import LimitsError, MethodError, TuplepackError


def main() -> None:
    """Run the command line; errors of ours are one line on standard error."""
    try:
        app()
    except TuplepackError as error:
        print(f"dgl-tuplepack: {' '.join(str(error).split())}", file=sys.stderr)
        # Of these two classes no file or graph is the cause; a graph that is too large has a class of its own.
        sys.exit(2 if type(error) in (LimitsError, MethodError) else 1)
    except SystemExit as stopped:
        # Typer turns Ctrl-C into this, without a word.
        if stopped.code == 130:
            print("dgl-tuplepack: interrupted", file=sys.stderr)
        raise
