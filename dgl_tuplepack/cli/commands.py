"""All commands together: each file adds its own to the application."""

from __future__ import annotations

from typing import Any

import typer

from dgl_tuplepack.cli import demo as _demo  # noqa: F401
from dgl_tuplepack.cli import limits as _limits  # noqa: F401
from dgl_tuplepack.cli import pictures as _pictures  # noqa: F401
from dgl_tuplepack.cli import plan as _plan  # noqa: F401
from dgl_tuplepack.cli import sizes as _sizes  # noqa: F401
from dgl_tuplepack.cli import store as _store  # noqa: F401
from dgl_tuplepack.cli.app import app
from dgl_tuplepack.cli.streams import note

# Typer brings it from click or from its own copy of it, and has no name for it.
_Refusal: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


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
