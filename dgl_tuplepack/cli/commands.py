"""The Typer application, and the list of its commands.

Every start imports all commands, so a command imports what needs torch or DGL inside its function.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dgl_tuplepack._version import __version__
from dgl_tuplepack.cli.demo import demo
from dgl_tuplepack.cli.limits import limits
from dgl_tuplepack.cli.pictures import plot, report
from dgl_tuplepack.cli.plan import plan
from dgl_tuplepack.cli.sizes import sizes
from dgl_tuplepack.cli.store import info, preprocess, verify

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
for command in (demo, limits, report, plot, plan, sizes, preprocess, info, verify):
    app.command()(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"dgl-tuplepack {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Pack many small graphs into full, static-shape batches for DGL."""
