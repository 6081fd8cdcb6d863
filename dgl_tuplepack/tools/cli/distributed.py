"""``dgl-tuplepack chunk`` and ``partition``: one large graph for `dgl.distributed`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.tools.cli import options
from dgl_tuplepack.tools.cli.output import print_json, print_line, print_table
from dgl_tuplepack.tools.cli.source import open_source

_EDGES, _FEATURES = ("csv", "numpy", "parquet"), ("numpy", "parquet")
_FEW = options.at_most(2**20)

Graphs = Annotated[str, typer.Argument(metavar="SOURCE", help=f"One of: {options.GRAPHS}.", show_default=False)]
Name = Annotated[str, typer.Option("--graph-name", help="Name of the large graph.")]


def chunk(
    source: Graphs,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the chunks.", show_default=False)],
    chunks: Annotated[int, typer.Option(metavar="N", min=1, callback=_FEW, help="Number of chunks.")] = 8,
    edges_as: Annotated[
        str, typer.Option(help=f"Format of edges: one of {', '.join(_EDGES)}.", callback=options.one_of(_EDGES))
    ] = "csv",
    features_as: Annotated[
        str, typer.Option(help=f"Format of features: {' or '.join(_FEATURES)}.", callback=options.one_of(_FEATURES))
    ] = "numpy",
    name: Name = "graphs",
    overwrite: options.Overwrite = False,
    root: options.Root = None,
    as_json: options.Json = False,
) -> None:
    """Write the graphs of SOURCE as one large graph in DGL's chunked graph format.

    All commands accept the folder OUT as SOURCE, and DGL's distributed pipeline reads the folder.
    """
    load("torch")
    from dgl_tuplepack.storage.chunks import write_chunks

    chunked = write_chunks(
        open_source(source, root), out, chunks, edges_as=edges_as, features_as=features_as, name=name,
        overwrite=overwrite,
    )  # fmt: skip
    totals = chunked.sizes.totals()
    if as_json:
        print_json({"chunks": str(out), "graphs": len(chunked), "totals": totals})
    else:
        print_line(f"{out}: {len(chunked):,} graphs, " + ", ".join(f"{n:,} {each}" for each, n in totals.items()))


def partition(
    source: Graphs,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the partition.", show_default=False)],
    parts: Annotated[int, typer.Option(metavar="N", min=1, callback=_FEW, help="Number of parts.", show_default=False)],
    balance: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Balance this split or node mask too, such as train; may be repeated."),
    ] = None,
    name: Name = "graphs",
    overwrite: options.Overwrite = False,
    root: options.Root = None,
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Divide the graphs of SOURCE into balanced parts that dgl.distributed opens; no edge is cut.

    A second run does only what is missing. All commands accept a part, such as OUT/part0, as SOURCE.
    """
    load("torch")
    from dgl_tuplepack.storage.partition import partition as run

    done = run(
        open_source(source, root), out, parts, balance=balance or (), name=name, overwrite=overwrite, workers=workers,
    )  # fmt: skip
    if as_json:
        print_json({**asdict(done), "config": str(done.config)})
        return
    rows = [[each, f"{value:.6f}", f"{done.bound[each]:.6f}"] for each, value in done.imbalance.items()]
    print_table(f"{done.config}: {parts:,} parts", ["largest part / mean", "found", "at least"], rows)
    print_line(f"{len(done.written):,} parts written, {len(done.kept):,} already there and intact; no edge is cut")
