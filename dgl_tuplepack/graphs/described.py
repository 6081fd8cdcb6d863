"""What a transform is, as text: its name and settings, by which another one is told from it."""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack.graphs.values import as_array

# Longer descriptions are cut, and end with a checksum of all of it.
_MOST = 4000
# Levels of objects inside objects.
_MOST_LEVELS = 20
# Their text has all of their value.
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), range, slice)


def description_of(transform: Any) -> str:
    """Return the name of a transform with its settings: equal for equal transforms, in any process.

    An object is its class and its attributes, a function its name, code, defaults and what it encloses; tensors and
    arrays are told by a checksum. What differs only in global variables or in files is not told apart.
    """
    text = _text(transform, ())
    if len(text) <= _MOST:
        return text
    return f"{text[:_MOST]}... sha256 {_digest(text.encode('utf-8', 'surrogatepass'))}"


def _text(value: Any, outer: tuple[int, ...]) -> str:
    if isinstance(value, _PLAIN) and type(value).__module__ == "builtins":
        return repr(value)
    if id(value) in outer or len(outer) > _MOST_LEVELS:
        return "..."
    outer = (*outer, id(value))
    if isinstance(value, np.ndarray | np.generic | Tensor):
        return _of_array(value)
    if isinstance(value, type | types.BuiltinFunctionType | torch.dtype | torch.device | np.dtype):
        return _name(value) if hasattr(value, "__qualname__") else str(value)
    if isinstance(value, functools.partial):
        return f"partial({_joined([value.func, *value.args], outer)}{_settings(value.keywords, outer, ', ')})"
    if isinstance(value, types.MethodType):
        return f"{_text(value.__self__, outer)}.{value.__func__.__name__}"
    if isinstance(value, types.FunctionType):
        return _of_function(value, outer)
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({', '.join(sorted(_text(v, outer) for v in value))})"
    if type(value) in (list, tuple):
        return f"[{_joined(value, outer)}]" if isinstance(value, list) else f"({_joined(value, outer)})"
    if type(value) is dict:
        return "{" + ", ".join(f"{_text(k, outer)}: {_text(v, outer)}" for k, v in value.items()) + "}"
    return f"{_name(type(value))}({_of_object(value, outer)})"


def _of_object(value: Any, outer: tuple[int, ...]) -> str:
    slots = [name for kind in type(value).__mro__ for name in _as_names(kind.__dict__.get("__slots__", ()))]
    attributes = {name: getattr(value, name) for name in slots if hasattr(value, name) and name != "__dict__"}
    attributes |= getattr(value, "__dict__", {})
    # What an object of a class of lists, dicts or numbers holds.
    bases: tuple[Any, ...] = (list, tuple, dict, str, int, float)
    inside = [base(value) for base in bases if isinstance(value, base)]
    return f"{_joined(inside, outer)}{_settings(attributes, outer, ', ' if inside else '')}"


def _as_names(slots: str | Iterable[str]) -> list[str]:
    return [slots] if isinstance(slots, str) else [name for name in slots if name != "__weakref__"]


def _of_function(function: types.FunctionType, outer: tuple[int, ...]) -> str:
    enclosed = []
    for cell in function.__closure__ or ():
        try:
            enclosed.append(cell.cell_contents)
        except ValueError:
            # A name that the enclosing function has not set yet.
            enclosed.append(...)
    settings = {"defaults": function.__defaults__, "keywords": function.__kwdefaults__, "encloses": enclosed}
    given = {name: value for name, value in settings.items() if value}
    return f"{_name(function)}(code {_digest(_code(function.__code__))}{_settings(given, outer, ', ')})"


def _code(code: types.CodeType) -> bytes:
    """Return what a function does: its instructions, constants and names, those of functions inside it too."""
    constants = [_code(c) if isinstance(c, types.CodeType) else _constant(c) for c in code.co_consts]
    return repr((code.co_code, constants, code.co_names, code.co_varnames)).encode("utf-8", "surrogatepass")


def _constant(value: Any) -> str:
    # The order of a set differs between processes.
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def _of_array(value: Any) -> str:
    if isinstance(value, Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        value = as_array(value.to_dense() if value.layout != torch.strided else value)
    else:
        dtype, value = str(value.dtype), np.asarray(value)
    content = repr(value.tolist()).encode() if value.dtype == object else np.ascontiguousarray(value).tobytes()
    shown = repr(value.item()) if value.ndim == 0 else f"sha256 {_digest(content)}"
    return f"array({dtype} {list(value.shape)}, {shown})"


def _settings(values: dict[str, Any], outer: tuple[int, ...], before: str) -> str:
    text = ", ".join(f"{name}={_text(value, outer)}" for name, value in values.items())
    return f"{before}{text}" if text else ""


def _joined(values: Iterable[Any], outer: tuple[int, ...]) -> str:
    return ", ".join(_text(value, outer) for value in values)


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
