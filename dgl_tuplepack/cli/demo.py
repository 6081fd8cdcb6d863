"""``dgl-tuplepack demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dgl_tuplepack.cli.app import app
from dgl_tuplepack.cli.output import print_json


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
        print_json(result)
