"""Recompute the paper's Tables 1 and 2 and Figure 5, next to the printed figures.

    python scripts/reproduce_paper.py --root DIR --histograms DIR --out docs/results

Every available dataset of the paper gets a section. Datasets come from OGB's folders in `--root` (ogbg_molhiv, for
example), from files of `SizeHistogram.save` in `--histograms` (ogbg-molpcba.json), or from the packaged example.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from reproduction.datasets import find
from reproduction.page import dataset_section, page
from reproduction.paper import PAPER

from dgl_tuplepack._core.files import write_text
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.errors import FormatError, TuplepackError

ROOT = Path(__file__).resolve().parents[1]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def reproduce(
    root: Annotated[Path | None, typer.Option(help="Folder of OGB's dataset folders.")] = None,
    histograms: Annotated[Path | None, typer.Option(help="Folder of saved histograms.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the page and its pictures.")] = ROOT / "docs" / "results",
) -> None:
    """Write paper.md and its pictures."""
    for folder in (root, histograms):
        if folder is not None and not folder.is_dir():
            raise FormatError(f"{folder} is not a folder; give one that exists.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FormatError(f"cannot create the folder {out}: {error.strerror}; choose another with --out.") from error
    sections, absent = [], []
    for printed in progress_bar(PAPER, desc="datasets"):
        found = find(printed.name, root, histograms)
        if found is None:
            absent.append(printed.name)
        else:
            sections.append(dataset_section(printed, *found, out))
    write_text(out / "paper.md", page(sections, absent))
    print(f"wrote {out / 'paper.md'}: {len(sections)} of the paper's {len(PAPER)} datasets")


if __name__ == "__main__":
    try:
        app()
    except TuplepackError as error:
        print(f"reproduce_paper.py: {error}", file=sys.stderr)
        sys.exit(1)
