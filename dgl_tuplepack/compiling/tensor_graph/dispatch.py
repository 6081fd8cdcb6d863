"""DGL's free functions look at the type of their graph first: what is not a DGLGraph goes to an implementation of ours.

Users import DGL's functions by name (``from dgl import mean_nodes``), keep them in dicts and in partial functions, and
DGL's own modules do. So the function objects stay, and their code is replaced: `install` gives each function in the
table of replacements a code of one line, which calls our implementation for a TensorGraph and the original, with the
same arguments, for everything else. Everyone who holds the function gets this, whether it was imported before or after,
and a tracer follows it as it follows any Python function. `restore` gives the functions their code back.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, TypeVar

import torch

from dgl_tuplepack._core.tracing import is_traced

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Replacement:
    """What takes the place of a function of DGL for some of its calls.

    ``owner`` is a class in the module that has the function, or None. ``kind`` is the type of the argument at
    ``position`` for which ``ours`` is called. With None that argument is a tensor, and ``ours`` is called in code that
    is traced, and on devices for which DGL is not built.
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


def install() -> None:
    """Let DGL's free functions take a `TensorGraph`; DGLGraphs are treated as before.

    The first `TensorGraph` that is made after DGL was imported does it. Call it where DGL is imported later than that.
    Doing it twice does it once; `restore` undoes it.
    """
    from dgl_tuplepack._core.optional import load

    load("dgl")
    with _LOCK:
        done = {id(patch.function) for patch in _PATCHES}
        for replacement in _REPLACEMENTS:
            function = _find(replacement)
            if function is not None and id(function) not in done:
                _PATCHES.append(_replace(function, replacement))


def restore() -> None:
    """Give all functions of DGL the code back that they had before `install`.

    What was compiled in between keeps what was traced. The next `TensorGraph` installs the functions again.
    """
    with _LOCK:
        while _PATCHES:
            patch = _PATCHES.pop()
            patch.function.__code__ = patch.original.__code__
            del patch.function.__wrapped__  # type: ignore[attr-defined]
            del patch.function.__globals__[patch.entry]


def replacements() -> tuple[Replacement, ...]:
    """Return the table of all functions that are replaced."""
    return tuple(_REPLACEMENTS)


def is_installed() -> bool:
    """Return whether DGL's free functions take a `TensorGraph` now."""
    return bool(_PATCHES)


def _install_beside_dgl() -> None:
    """Install the functions if DGL is imported."""
    if not _PATCHES and "dgl" in sys.modules:
        install()


# A tracer calls the function, and does not trace it.
install_beside_dgl: Any = torch.compiler.assume_constant_result(_install_beside_dgl)  # type: ignore[no-untyped-call]


def _find(replacement: Replacement) -> FunctionType | None:
    """Return the function of DGL, if this version of it has one."""
    try:
        owner: Any = importlib.import_module(replacement.module)
    except ImportError:
        return None
    if replacement.owner is not None:
        owner = getattr(owner, replacement.owner, None)
    function = getattr(owner, replacement.name, None)
    # A closure has cells that other code does not have.
    return function if isinstance(function, FunctionType) and not function.__closure__ else None


def _replace(function: FunctionType, replacement: Replacement) -> _Patch:
    original = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    for name in ("__kwdefaults__", "__doc__", "__module__", "__qualname__"):
        setattr(original, name, getattr(function, name))
    entry = f"__tuplepack_{replacement.owner or ''}_{replacement.name}"
    function.__globals__[entry] = _chooser(original, replacement)
    # `inspect` shows the source of the original.
    function.__wrapped__ = original  # type: ignore[attr-defined]
    function.__code__ = _code(original, replacement, entry)
    return _Patch(function, original, entry)


def _code(original: FunctionType, replacement: Replacement, entry: str) -> CodeType:
    """Return code with the parameters of the original, which passes them to the function that is chosen for them.

    ``def f(g, x, *, op): return __tuplepack__f(g)(g, x, op=op)``, for example. The defaults stay with the function.
    """
    parameters = inspect.signature(original).parameters
    declared = [str(each.replace(default=each.empty, annotation=each.empty)) for each in parameters.values()]
    passed = [
        f"{name}={name}" if each.kind is each.KEYWORD_ONLY else text
        for (name, each), text in zip(parameters.items(), declared, strict=True)
    ]
    kinds = [each.kind for each in parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        declared.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    graph = list(parameters)[replacement.position]
    source = f"def {original.__name__}({', '.join(declared)}): return {entry}({graph})({', '.join(passed)})"
    # Tracers pass over code that is in no file, and tracebacks show a line of one.
    lines = "\n" * (_code.__code__.co_firstlineno - 1)
    module = compile(lines + source, __file__, "exec", dont_inherit=True)
    return next(each for each in module.co_consts if isinstance(each, CodeType))


def _chooser(original: FunctionType, replacement: Replacement) -> Callable[[Any], Callable[..., Any]]:
    ours, kind = replacement.ours, replacement.kind
    if kind is None:
        return _of_tensors(original, ours)

    def choose(graph: Any) -> Callable[..., Any]:
        return ours if isinstance(graph, kind) else original

    return choose


def _of_tensors(original: FunctionType, ours: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    from dgl import ndarray

    has_gpu = bool(ndarray.gpu(0).exist)

    def choose(tensor: Any) -> Callable[..., Any]:
        if is_traced() or not (has_gpu or tensor.device.type == "cpu"):
            return ours
        return original

    return choose
