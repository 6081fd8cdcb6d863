"""DGL's free functions look at the type of their graph first: what is not a DGLGraph goes to an implementation of ours.

Users import DGL's functions by name (``from dgl import mean_nodes``), keep them in dicts and in partial functions, and
DGL's own modules do. So the function objects stay, and their code is replaced: `install` gives each function in the
table of replacements a code of one line that calls a dispatcher, and keeps the code of before in a function
of its own, which the dispatcher calls with the same arguments for every DGLGraph. Everyone who holds the function gets
this, whether it was imported before or after, and a tracer follows it as it follows any Python function. `restore`
gives the functions their code back.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Replacement:
    """What takes the place of a function of DGL for some of its calls.

    ``owner`` is the module of the function, or a class in it. ``kind`` is the type of the argument at ``position`` for
    which ``ours`` is called; with ``None``, ``ours`` is called in code that is traced, and on devices for which DGL is
    not built.
    """

    module: str
    owner: str | None
    name: str
    ours: Callable[..., Any]
    kind: type | None
    position: int


@dataclass(frozen=True)
class _Patch:
    """A function whose code is replaced, and what it was before."""

    function: FunctionType
    original: FunctionType
    entry: str


_REPLACEMENTS: list[Replacement] = []
_PATCHES: list[_Patch] = []
_LOCK = threading.Lock()


def replaces(
    module: str, name: str, *, kind: type | None, position: int = 0, owner: str | None = None
) -> Callable[[Function], Function]:
    """Register the decorated function for a function of DGL; the arguments are those of `Replacement`."""

    def register(ours: Function) -> Function:
        _REPLACEMENTS.append(Replacement(module, owner, name, ours, kind, position))
        return ours

    return register


def install() -> bool:
    """Let DGL's free functions take a `TensorGraph`; DGLGraphs are treated as before.

    The first `TensorGraph` that is made after DGL was imported does it. Call it where DGL is imported later than that.
    Doing it twice does it once; `restore` undoes it.

    Returns
    -------
    bool
        Always true.
    """
    from dgl_tuplepack._optional import load

    load("dgl")
    with _LOCK:
        done = {id(patch.function) for patch in _PATCHES}
        for replacement in _REPLACEMENTS:
            function = _find(replacement)
            if function is not None and id(function) not in done:
                _PATCHES.append(_replace(function, replacement))
    return True


def restore() -> None:
    """Give all functions of DGL the code back that they had before `install`.

    What was compiled in between keeps what was traced. The next `TensorGraph` installs the functions again.
    """
    with _LOCK:
        while _PATCHES:
            patch = _PATCHES.pop()
            patch.function.__defaults__ = patch.original.__defaults__
            patch.function.__kwdefaults__ = patch.original.__kwdefaults__
            patch.function.__code__ = patch.original.__code__
            del patch.function.__wrapped__  # type: ignore[attr-defined]
            del patch.function.__globals__[patch.entry]


def replacements() -> tuple[Replacement, ...]:
    """Return the table of all functions that are replaced."""
    return tuple(_REPLACEMENTS)


def is_installed() -> bool:
    """Return whether DGL's free functions take a `TensorGraph` now."""
    return bool(_PATCHES)


def _install_beside_dgl() -> bool:
    """Install the functions if DGL is imported; return whether they are installed."""
    return bool(_PATCHES) or ("dgl" in sys.modules and install())


# Torch 2.0 does not have this module.
_compiler: Any = getattr(torch, "compiler", None)
# A tracer calls the function, and does not trace it.
install_beside_dgl = _compiler.assume_constant_result(_install_beside_dgl) if _compiler else _install_beside_dgl


def is_traced() -> bool:
    """Whether torch.compile traces this call."""
    return _compiler is not None and _compiler.is_compiling()


def _find(replacement: Replacement) -> FunctionType | None:
    """Return the function of DGL, if this version of it has one."""
    try:
        owner: Any = importlib.import_module(replacement.module)
    except ImportError:
        return None
    if replacement.owner is not None:
        owner = getattr(owner, replacement.owner, None)
    function = getattr(owner, replacement.name, None)
    return function if isinstance(function, FunctionType) else None


def _replace(function: FunctionType, replacement: Replacement) -> _Patch:
    original = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    original.__doc__ = function.__doc__
    original.__module__ = function.__module__
    original.__qualname__ = function.__qualname__
    entry = f"__tuplepack_{replacement.owner or ''}_{replacement.name}"
    function.__globals__[entry] = _dispatcher(original, replacement)
    # `inspect` shows the signature and the source of the original.
    function.__wrapped__ = original  # type: ignore[attr-defined]
    code = _template.__code__.replace(co_names=(entry,), co_name=function.__name__)
    # The new code takes no defaults, and the old code never runs without them.
    function.__code__ = code
    function.__defaults__ = function.__kwdefaults__ = None
    return _Patch(function, original, entry)


def _template(*arguments: Any, **keywords: Any) -> Any:
    """Call the dispatcher; its one global name is replaced by the name of the dispatcher in the function's module."""
    return _entry(*arguments, **keywords)  # type: ignore[name-defined]  # noqa: F821


def _dispatcher(original: FunctionType, replacement: Replacement) -> Callable[..., Any]:
    ours, kind, position = replacement.ours, replacement.kind, replacement.position
    name = original.__code__.co_varnames[position]
    if kind is None:
        return _of_tensors(original, ours)

    def dispatch(*arguments: Any, **keywords: Any) -> Any:
        graph = arguments[position] if len(arguments) > position else keywords.get(name)
        return (ours if isinstance(graph, kind) else original)(*arguments, **keywords)

    return dispatch


def _of_tensors(original: FunctionType, ours: Callable[..., Any]) -> Callable[..., Any]:
    from dgl import ndarray

    has_gpu = bool(ndarray.gpu(0).exist)

    def dispatch(*arguments: Any, **keywords: Any) -> Any:
        if is_traced():
            return ours(*arguments, **keywords)
        first = arguments[0] if arguments else next(iter(keywords.values()), None)
        elsewhere = not has_gpu and isinstance(first, torch.Tensor) and first.device.type != "cpu"
        return (ours if elsewhere else original)(*arguments, **keywords)

    return dispatch
