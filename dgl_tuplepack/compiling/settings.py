"""Checks of the arguments of `tp.compile` that go on to ``torch.compile``."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from typing import Any

import torch

from dgl_tuplepack._checks import shown
from dgl_tuplepack.compiling import torch_private
from dgl_tuplepack.errors import CompileError


def check_torch_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse what ``torch.compile`` does not know, and modes, which exclude options."""
    known = [name for name in inspect.signature(torch.compile).parameters if name != "model"]
    for name in arguments:
        if name not in known:
            raise CompileError(
                f"torch.compile of torch {torch.__version__} has no argument {name!r}; choose from {', '.join(known)}."
            )
    mode = arguments.get("mode")
    if mode not in (None, "default"):
        stands_for = torch_private.options_of_mode(str(mode))
        hint = f"options={stands_for}" if stands_for else "options={...}"
        raise CompileError(
            f"mode={mode!r} cannot be combined with options, which compile() sets (torch refuses both); give {hint} "
            "instead."
        )


def checked_options(options: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the caller by their names in torch; refuse unknown ones."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise CompileError(f"options must be a dict of names to values, but is {shown(options)}; give {{}}, say.")
    known = torch_private.known_options() if is_inductor(arguments) else None
    for name in options:
        # Torch takes hyphens for underscores.
        if known is not None and str(name).replace("-", "_") not in known:
            close = difflib.get_close_matches(str(name), known, 3)
            hint = f"did you mean {' or '.join(close)}?" if close else "torch._inductor.list_options() lists them."
            raise CompileError(f"torch {torch.__version__} has no option {shown(name)} for its compiler; {hint}")
    return {str(name).replace("-", "_"): value for name, value in options.items()}


def is_inductor(arguments: Mapping[str, Any]) -> bool:
    """Return whether torch's own compiler is chosen, the one that has options."""
    return arguments.get("backend") in (None, "inductor")
