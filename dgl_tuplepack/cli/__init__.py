"""Command line: ``dgl-tuplepack``. Exit codes: 0 done, 1 the work failed, 2 bad usage, 130 interrupted."""

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
from dgl_tuplepack.errors import TuplepackError


def main() -> None:
    """Run the command line; errors of ours are one line on standard error."""
    try:
        app()
    except TuplepackError as error:
        print(f"dgl-tuplepack: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)
    except SystemExit as stopped:
        # Typer turns Ctrl-C into this, without a word.
        if stopped.code == 130:
            print("dgl-tuplepack: interrupted", file=sys.stderr)
        raise
