"""The Typer application, and the list of its commands.

Every start imports all commands, so a command imports what needs torch or DGL inside its function.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dgl_tuplepack._version import __version__
from dgl_tuplepack.cli.demo import demo
from dgl_tuplepack.cli.limits import limits
from dgl_tuplepack.cli.pictures import plot, report
from dgl_tuplepack.cli.plan import plan
from dgl_tuplepack.cli.sizes import sizes
from dgl_tuplepack.cli.store import info, preprocess, verify
from dgl_tuplepack.cli.streams import note

# Typer takes it from click or from its own copy of click, and has no name for it.
_Refusal: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
for command in (demo, limits, report, plot, plan, sizes, preprocess, info, verify):
    app.command()(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"dgl-tuplepack {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Pack many small graphs into full, static-shape batches for DGL."""


def run_app() -> int:
    """Run the command that the arguments name; return the exit code. Bad usage is one line on standard error."""
    try:
        code = typer.main.get_command(app).main(standalone_mode=False)
    except typer.Abort:
        return 130
    except _Refusal as error:
        return _refuse(error)
    return code if isinstance(code, int) else 0


def _refuse(error: Any) -> int:
    code: int = error.exit_code
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        # Some versions have printed it already.
        print(error.format_message(), end="")
    else:
        advice = "" if context is None else f" (see {context.command_path} --help)"
        note(" ".join(error.format_message().split()) + advice)
    return code
