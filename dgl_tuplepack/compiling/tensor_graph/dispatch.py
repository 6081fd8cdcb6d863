"""Make DGL's free functions call our implementations for a TensorGraph.

Users and DGL's own modules import DGL's functions by name (``from dgl import mean_nodes``), and keep them in dicts. So
the function objects stay, and only their code is replaced, by one line. For a TensorGraph, it calls our implementation;
for a DGLGraph, the original. A tracer follows this line like any Python code.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, NamedTuple, TypeVar

import torch

from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.tracing import is_traced

Function = TypeVar("Function", bound=Callable[..., Any])


class Replacement(NamedTuple):
    """Our implementation of a DGL function: a function of `module`, or a method of its class `owner`.

    `ours` is called if the argument at `position` is of the type `graph_type`. If `graph_type` is None, this argument
    is a tensor; then `ours` is called in traced code, and for tensors on a device that DGL is not built for.
    """

    module: str
    owner: str | None
    name: str
    ours: Callable[..., Any]
    graph_type: type | None
    position: int


class _Patch(NamedTuple):
    """A function whose code is replaced, a copy with its original code, and the global name that the new code calls."""

    function: Any
    original: FunctionType
    entry: str


REPLACEMENTS: list[Replacement] = []
_PATCHES: list[_Patch] = []
_LOCK = threading.Lock()


def replaces(
    module: str, name: str, *, graph_type: type | None, position: int = 0, owner: str | None = None
) -> Callable[[Function], Function]:
    """Register the decorated function as our version of a DGL function; for the arguments see `Replacement`."""

    def register(ours: Function) -> Function:
        REPLACEMENTS.append(Replacement(module, owner, name, ours, graph_type, position))
        return ours

    return register


def install() -> None:
    """Make DGL's free functions accept a `TensorGraph`; they treat DGLGraphs as before.

    The first `TensorGraph` that is made after DGL was imported calls `install`. If you import DGL after the last
    `TensorGraph` was made, call `install` yourself. A second call has no effect.
    """
    load("dgl")
    with _LOCK:
        done = {id(patch.function) for patch in _PATCHES}
        for replacement in REPLACEMENTS:
            function = _find(replacement)
            if function is not None and id(function) not in done:
                _PATCHES.append(_replace(function, replacement))


def restore() -> None:
    """Restore the code that DGL's functions had before `install`.

    Code that was compiled while the functions were replaced stays as it is. The next `TensorGraph` calls `install`.
    """
    with _LOCK:
        while _PATCHES:
            patch = _PATCHES.pop()
            patch.function.__code__ = patch.original.__code__
            del patch.function.__wrapped__
            del patch.function.__globals__[patch.entry]


def is_installed() -> bool:
    """Return whether DGL's free functions accept a `TensorGraph` now."""
    return bool(_PATCHES)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def install_if_dgl_is_imported() -> None:
    """Call `install` if DGL is imported, unless the functions are already replaced; a tracer does not trace this."""
    if not _PATCHES and "dgl" in sys.modules:
        install()


def _find(replacement: Replacement) -> FunctionType | None:
    """Return the function of DGL; None if this version of DGL lacks it, or if its code cannot be replaced."""
    try:
        owner: Any = importlib.import_module(replacement.module)
    except ImportError:
        return None
    if replacement.owner is not None:
        owner = getattr(owner, replacement.owner, None)
    function = getattr(owner, replacement.name, None)
    # The code of a closure has cells; code without cells cannot take its place.
    return function if isinstance(function, FunctionType) and not function.__closure__ else None


def _replace(function: FunctionType, replacement: Replacement) -> _Patch:
    """Replace the code of a function in place, and return the patch that `restore` undoes."""
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
    """Return code with the original's parameters: ``def f(g, x, *, op): return __tuplepack__f(g)(g, x, op=op)``.

    Default values are not part of the code; the function object keeps them.
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
    # Compile the code as a part of this file, since tracers skip code that is in no file.
    module = compile(source, __file__, "exec", dont_inherit=True)
    return next(each for each in module.co_consts if isinstance(each, CodeType))


def _chooser(original: FunctionType, replacement: Replacement) -> Callable[[Any], Callable[..., Any]]:
    """Return a function that maps the argument at ``position`` to our function or to the original function."""
    ours, graph_type = replacement.ours, replacement.graph_type
    if graph_type is not None:
        return lambda graph: ours if isinstance(graph, graph_type) else original
    from dgl import ndarray

    # True if DGL is built for GPUs and finds a GPU.
    has_gpu = bool(ndarray.gpu(0).exist)
    return lambda tensor: ours if is_traced() or not (has_gpu or tensor.device.type == "cpu") else original
