"""Compare every layer of dgl.nn on a DGLGraph and on a TensorGraph, and write docs/layers.md.

    python scripts/list_layers.py [--check] [--only NAME] [--backend inductor]

`--check` compares the page with what is found and writes nothing; `--only` takes one layer, and prints its lines or
checks that the page has them.
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

from dgl_tuplepack._files import write_text
from dgl_tuplepack._progress import progress_bar
from dgl_tuplepack.errors import FormatError, InputError, TuplepackError
from dgl_tuplepack.tensor_graph.dispatch import replacements

PAGE = Path(__file__).resolve().parents[1] / "docs" / "layers.md"
COUNTED = {
    "Convolutions": cases.CONVOLUTIONS,
    "Readouts": cases.READOUTS,
    "Others": cases.OTHERS,
}
SECTIONS: Mapping[str, Sequence[Case]] = {**COUNTED, "Containers": cases.CONTAINERS, "More settings": cases.SETTINGS}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def list_layers(
    check: Annotated[bool, typer.Option("--check", help="Compare the page, and write nothing.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Print rows of this layer; may be repeated.")] = None,
    backend: Annotated[str, typer.Option(help="Backend of torch.compile, such as inductor.")] = "aot_eager",
    out: Annotated[Path, typer.Option(help="The page.")] = PAGE,
) -> None:
    """Compare all layers; write the page, or check it."""
    _check_completeness()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    listed = [(name, case) for name, section in SECTIONS.items() for case in section]
    chosen = [(name, case) for name, case in listed if not only or case.name in only]
    if unknown := sorted({*(only or ())} - {case.name for _, case in chosen}):
        raise typer.BadParameter(
            f"the page lists no layer {unknown[0]!r}; it names those that can be chosen.", param_hint="--only"
        )
    rows: dict[str, list[Row]] = {name: [] for name in SECTIONS}
    with warnings.catch_warnings():
        # DGL warns about its own use of older interfaces.
        warnings.simplefilter("ignore")
        for name, case in progress_bar(chosen, desc="layers"):
            rows[name].append(compare(case, backend))
    lines = [table_line(row) for section in rows.values() for row in section]
    text = page(rows, tuple(COUNTED), replacements())
    if check:
        _check_page(out, lines if only else text.splitlines(), whole=not only)
    elif only:
        typer.echo("\n".join(lines))
    else:
        write_text(out, text)
        typer.echo(f"wrote {out}")


def _check_completeness() -> None:
    """Every layer of this version of DGL that takes a graph has a row, and no other."""
    expected, listed = set(graph_layers()), {case.name for all_cases in SECTIONS.values() for case in all_cases}
    if missing := sorted(expected ^ listed):
        raise InputError(f"scripts/layers/cases.py and this version of dgl.nn disagree about {', '.join(missing)}.")


def _check_page(path: Path, expected: Sequence[str], *, whole: bool) -> None:
    """Check that the page has these lines, and with ``whole`` no others."""
    try:
        written = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror}; write it without --check.") from error
    differing = [f"- {line}" for line in written if whole and line not in expected]
    differing += [f"+ {line}" for line in expected if line not in written]
    if differing or (whole and written != list(expected)):
        found = "\n".join(differing) or "the order of its lines"
        raise InputError(f"{path} is not what layers do now; write it again without --check. It differs at:\n{found}")


if __name__ == "__main__":
    try:
        app()
    except TuplepackError as error:
        print(f"list_layers.py: {error}", file=sys.stderr)
        sys.exit(1)
