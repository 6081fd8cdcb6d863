"""Define the Typer application and its commands.

Every run of the command line imports all commands, so a command imports torch or DGL only inside its function.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from dgl_tuplepack._core.optional import load
from dgl_tuplepack._version import __version__
from dgl_tuplepack.tools.cli import options
from dgl_tuplepack.tools.cli.limits import limits
from dgl_tuplepack.tools.cli.output import print_json
from dgl_tuplepack.tools.cli.pictures import plot, report
from dgl_tuplepack.tools.cli.plan import plan
from dgl_tuplepack.tools.cli.source import sizes
from dgl_tuplepack.tools.cli.store import chunk, info, partition, preprocess, verify


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the two pictures.")] = Path("demo-output"),
    graphs: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=32_901, help="Number of molecules; default: all.")
    ] = None,
    epochs: Annotated[int, typer.Option(metavar="N", min=1, help="Number of training epochs.")] = 1,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Pack synthetic molecules with the sizes of ogbg-molhiv, and train on them; needs no network and no data."""
    # If a package is missing, report it by name before anything else is imported.
    for package in ("torch", "matplotlib"):
        load(package)
    from dgl_tuplepack.tools.demo.run import run_demo

    result = run_demo(Console(stderr=as_json), out, graphs, epochs, seed)
    if as_json:
        print_json(result)


def _with_plain_flags(base: Any) -> Any:
    """Return a class whose flags, --help among them, show no type; newer versions of Typer would show <bool>."""

    class Plain(base):  # type: ignore[misc]
        def get_params(self, ctx: Any) -> Any:
            parameters = super().get_params(ctx)
            for parameter in parameters:
                parameter.metavar = "" if getattr(parameter, "is_flag", False) else parameter.metavar
            return parameters

    return Plain


# Markdown joins the lines of a paragraph, so that help wraps only at the width of the terminal.
app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]}, cls=_with_plain_flags(TyperGroup),
)  # fmt: skip
_PANELS = {
    "From sizes to batches": (sizes, limits, plan, preprocess, info, verify),
    "For dgl.distributed": (chunk, partition),
    "Pictures and a demo": (plot, report, demo),
}
plain_command = _with_plain_flags(TyperCommand)
for panel, commands in _PANELS.items():
    for command in commands:
        app.command(cls=plain_command, rich_help_panel=panel)(command)


def _show_version(requested: bool) -> None:
    if requested:
        print(f"dgl-tuplepack {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version of dgl_tuplepack and exit."
        ),
    ] = False,
) -> None:
    """Pack many small graphs into full, static-shape batches for DGL."""
    if context.invoked_subcommand is None:
        # With rich, `get_help` prints the help itself and returns an empty text.
        print(context.get_help(), end="")
        raise typer.Exit(2)
