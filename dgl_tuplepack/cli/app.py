"""The Typer application that the files beside this one add their commands to."""

from __future__ import annotations

from typing import Annotated

import typer

from dgl_tuplepack._version import __version__

app = typer.Typer(
    help="Pack many small graphs into full, static-shape batches for DGL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"dgl-tuplepack {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Pack many small graphs into full, static-shape batches for DGL."""
