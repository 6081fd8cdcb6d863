"""``dgl-tuplepack demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dgl_tuplepack.cli import options
from dgl_tuplepack.cli.output import print_json


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the two pictures.")] = Path("demo-output"),
    graphs: Annotated[int | None, typer.Option(min=1, max=32_901, help="Number of molecules; default: all.")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of training.")] = 1,
    seed: options.Seed = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON on standard output, and tables on standard error.")
    ] = False,
) -> None:
    """Go the whole way on synthetic molecules of the real ogbg-molhiv sizes: no network, no data needed."""
    from dgl_tuplepack._optional import load

    for package in ("torch", "matplotlib"):
        load(package)
    from dgl_tuplepack.demo.run import run_demo

    result = run_demo(Console(stderr=as_json), out, graphs, epochs, seed)
    if as_json:
        print_json(result)
