"""Command line: ``dgl-tuplepack``. Exit codes: 0 done, 1 the work failed, 2 bad usage."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dgl_tuplepack._version import __version__
from dgl_tuplepack.errors import TuplepackError

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


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the two pictures.")] = Path("demo-output"),
    graphs: Annotated[
        int | None, typer.Option(min=1, max=32_901, help="Take so many of the sizes; default: all.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of training.")] = 1,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Decides everything random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output, tables on error.")] = False,
) -> None:
    """Go the whole way on synthetic molecules of the real ogbg-molhiv sizes: no network, no data needed."""
    from dgl_tuplepack._optional import load

    for package in ("torch", "dgl", "matplotlib"):
        load(package)
    from dgl_tuplepack.demo.run import run_demo

    result = run_demo(Console(stderr=as_json), out, graphs, epochs, seed)
    if as_json:
        print(json.dumps(result, indent=2))


def main() -> None:
    """Run the command line; errors of ours are one line on standard error."""
    try:
        app()
    except TuplepackError as error:
        print(f"dgl-tuplepack: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("dgl-tuplepack: interrupted", file=sys.stderr)
        sys.exit(1)
