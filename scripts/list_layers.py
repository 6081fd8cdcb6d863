"""Compare every layer of dgl.nn on a DGLGraph and on a TensorGraph, and write docs/reference/layers.md.

    python scripts/list_layers.py [--check [--every N]] [--backend inductor]

`--check` compares the results with the existing page and writes nothing, with `--every` only those of each N-th layer.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer
from layers import cases
from layers.cases import Case
from layers.comparison import Row, compare
from layers.page import graph_layers, page, table_line

from dgl_tuplepack._core.files import write_text
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.compiling.tensor_graph.dispatch import REPLACEMENTS
from dgl_tuplepack.errors import FormatError, InputError, TuplepackError

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "layers.md"
COUNTED = {"Convolutions": cases.CONVOLUTIONS, "Readouts": cases.READOUTS, "Others": cases.OTHERS}
SECTIONS: Mapping[str, Sequence[Case]] = {**COUNTED, "Containers": cases.CONTAINERS, "More settings": cases.SETTINGS}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def list_layers(
    check: Annotated[bool, typer.Option("--check", help="Compare with the existing page; write nothing.")] = False,
    every: Annotated[int, typer.Option(min=1, help="With --check: compare only each N-th layer.")] = 1,
    backend: Annotated[str, typer.Option(help="Backend of torch.compile, such as inductor.")] = "aot_eager",
    out: Annotated[Path, typer.Option(help="Path of the page.")] = PAGE,
) -> None:
    """Compare layers; write or check the page."""
    if every > 1 and not check:
        raise typer.BadParameter("--every is for --check; leave it out.")
    _check_completeness()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    written = _read(out) if check else []
    listed = [(name, case) for name, section in SECTIONS.items() for case in section]
    rows: dict[str, list[Row]] = {name: [] for name in SECTIONS}
    with warnings.catch_warnings():
        # DGL warns about deprecated interfaces that it uses itself.
        warnings.simplefilter("ignore")
        for name, case in progress_bar(listed[::every], desc="layers"):
            rows[name].append(compare(case, backend))
    if every > 1:
        lines = [table_line(row) for section in rows.values() for row in section]
        _check_page(out, [line for line in written if line in lines], lines)
        return
    text = page(rows, tuple(COUNTED), REPLACEMENTS)
    if check:
        _check_page(out, written, text.splitlines())
    else:
        write_text(out, text)
        typer.echo(f"wrote {out}")


def _check_completeness() -> None:
    """Raise unless the rows are exactly the layers of this DGL version that accept a graph."""
    expected, listed = set(graph_layers()), {case.name for all_cases in SECTIONS.values() for case in all_cases}
    if missing := sorted(expected ^ listed):
        raise InputError(f"scripts/layers/cases.py and this version of dgl.nn disagree about {', '.join(missing)}.")


def _read(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror}; write it without --check.") from error


def _check_page(path: Path, written: Sequence[str], expected: Sequence[str]) -> None:
    differing = [f"- {line}" for line in written if line not in expected]
    differing += [f"+ {line}" for line in expected if line not in written]
    if written != expected:
        found = "\n".join(differing) or "the order of its lines"
        raise InputError(f"{path} is out of date; write it again without --check. It differs at:\n{found}")


if __name__ == "__main__":
    try:
        app()
    except TuplepackError as error:
        print(f"list_layers.py: {error}", file=sys.stderr)
        sys.exit(1)
