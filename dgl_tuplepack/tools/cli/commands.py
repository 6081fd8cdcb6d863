"""Define the Typer application and its commands, and run a command as a process.

How data flows: `main` (`__init__.py`) calls `run`, which calls Typer with `sys.argv`. `options.py` defines and parses
the options that commands share. `sources.py` opens SOURCE, as a `Source` of graphs or as a `SizeHistogram`. Commands
call public functions: `inspection.py` describes batches, those in `planned.py` search for limits and pack, those in
`store.py` write and check data on disk, and those in `pictures.py` draw (`../plots.py`) or write a page
(`../report.py`). Results become plain data, which
`output.py` prints as tables for people, or as JSON or CSV. An error becomes one line and an exit code.

Every run of the command line imports all commands, so a command imports torch or DGL only inside its function.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from dgl_tuplepack._core.optional import EXTRAS, load, missing
from dgl_tuplepack._version import __version__
from dgl_tuplepack.errors import LimitsError, MethodError, TuplepackError
from dgl_tuplepack.tools.cli import options
from dgl_tuplepack.tools.cli.inspection import inspect
from dgl_tuplepack.tools.cli.output import note, print_json
from dgl_tuplepack.tools.cli.pictures import plot, report
from dgl_tuplepack.tools.cli.planned import limits, plan
from dgl_tuplepack.tools.cli.sources import sizes
from dgl_tuplepack.tools.cli.store import chunk, info, partition, preprocess, verify


def demo(
    out: Annotated[Path, options.out("Folder for the two pictures.")] = Path("demo-output"),
    graphs: Annotated[int | None, options.number("Number of molecules; default: all.", max=32_901)] = None,
    epochs: Annotated[int, options.number("Number of training epochs.")] = 1,
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
    "From sizes to batches": (inspect, sizes, limits, plan, preprocess, info, verify),
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


_VERSION: Any = typer.Option(
    "--version", callback=_show_version, is_eager=True, help="Print the version of dgl_tuplepack and exit."
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, _VERSION] = False,
) -> None:
    """Pack many small graphs into full, static-shape batches for DGL, PyG and JAX."""
    if context.invoked_subcommand is None:
        # With rich, `get_help` prints the help itself and returns an empty text.
        print(context.get_help(), end="")
        raise typer.Exit(2)


def run() -> int:
    """Run the command in `sys.argv`; return its exit code, 130 for an interrupt."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of components may contain characters that the terminal cannot encode.
        sys.stdout.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_: note(str(message))
        try:
            # If the user interrupts the command, Typer returns 130.
            code: int = app(standalone_mode=False) or 0
            _flush()
        except BrokenPipeError:
            return 1
        except Exception as error:
            code = _explained(error)
            # The command may have failed after it printed text that is still in the buffer.
            with contextlib.suppress(OSError):
                _flush()
    return code


def _flush() -> None:
    """Write the buffered text of standard output; raise OSError if the write fails."""
    try:
        print(end="", flush=True)
    except OSError:
        # Python flushes again at exit. Redirect standard output, so that the second flush cannot fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise


def _explained(error: Any) -> int:
    """Print one line that states why the command failed, and return the exit code; raise an unexpected error again."""
    code, package = 1, (getattr(error, "name", None) or "").partition(".")[0]
    # A usage error is of click, or of Typer's private copy of click, so recognise it by its method.
    if hasattr(error, "format_message"):
        advice = "" if error.ctx is None else f" (see {error.ctx.command_path} --help)"
        code, text = error.exit_code, error.format_message() + advice
    elif isinstance(error, TuplepackError):
        # GraphTooLargeError is a LimitsError too, but not bad usage.
        code, text = 2 if type(error) in (LimitsError, MethodError) else 1, str(error)
    elif isinstance(error, ImportError) and package in EXTRAS:
        text = str(missing(package, error))
    elif isinstance(error, OSError):
        path = error.filename or "a file"
        text = f"cannot use {path}: {error.strerror or error}; check the path and the disk."
    elif isinstance(error, MemoryError):
        text = "there is not enough memory; use fewer or smaller graphs, or a machine with more memory."
    else:
        raise error
    note(" ".join(text.split()))
    return code
