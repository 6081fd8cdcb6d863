"""Signatures of calls: what compiled code depends on in the arguments, such as shapes and Python numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dgl_tuplepack._core.checks import shown


def signature_of(value: Any) -> Any:
    """Return a hashable value, equal for two arguments with the same containers, shapes, types and Python numbers."""
    if isinstance(value, Tensor):
        # Sparse tensors have no strides.
        strides = value.stride() if value.layout == torch.strided else value.layout
        return value.shape, strides, value.dtype, value.device
    if isinstance(value, tuple | list):
        return type(value), tuple(map(signature_of, value))
    if isinstance(value, dict):
        return type(value), tuple((name, signature_of(each)) for name, each in value.items())
    if isinstance(value, int | float | complex | str | None):
        # NaN does not equal itself, but its text does.
        return type(value), repr(value) if value != value else value
    return type(value)


def leaves_of(value: Any, path: str, objects: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) for each value inside nested containers, and inside objects that are nested up to `objects`.

    Paths are written as in Python code: ``batch.src``, ``features['x']``, ``sizes[0]``.
    """
    if isinstance(value, tuple | list):
        field_names = getattr(value, "_fields", None)
        for i, each in enumerate(value):
            yield from leaves_of(each, f"{path}.{field_names[i]}" if field_names else f"{path}[{i}]", objects)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from leaves_of(each, f"{path}[{name!r}]", objects)
    elif objects and hasattr(value, "__dict__") and not isinstance(value, Tensor | nn.Module | type):
        for name, each in vars(value).items():
            yield from leaves_of(each, f"{path}.{name}", objects - 1)
    else:
        yield path, value


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return nested tuples, lists and dicts with `function` applied to each value inside them."""
    if type(value) is dict:
        return {name: mapped(each, function) for name, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(each, function) for each in value))
    # The results of torch's functions with several, such as `max`, are tuples of own types.
    if type(value) in (tuple, list) or type(value).__module__ == "torch.return_types":
        return type(value)([mapped(each, function) for each in value])
    return function(value)


def tensors_of(value: Any, path: str) -> dict[str, Tensor]:
    """Return the tensors in nested containers and objects by their paths."""
    # Three levels of objects are enough for PyG's batches.
    return {name: each for name, each in leaves_of(value, path, objects=3) if isinstance(each, Tensor)}


def arguments_of(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return path -> value for each value inside the arguments of a call; a path begins with a parameter's name."""
    try:
        named: Mapping[str, Any] = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        # The arguments do not fit, and the call will fail; or the function, such as torch.relu, has no signature.
        named = {**{f"argument {i + 1}": each for i, each in enumerate(args)}, **kwargs}
    return dict(leaf for name, value in named.items() for leaf in leaves_of(value, name))


def described(value: Any) -> str:
    """Describe a value for a message: ``int64 [4016] on cpu``, ``3.5``, or the name of a type."""
    if isinstance(value, Tensor):
        layout = ""
        if value.layout != torch.strided:
            layout = f" ({value.layout})"
        elif not value.is_contiguous():
            layout = f" with strides {list(value.stride())}"
        return f"{value.dtype} {list(value.shape)}{layout} on {value.device}".replace("torch.", "")
    return shown(value) if is_number(value) or isinstance(value, str | bool | None) else type(value).__name__


def is_number(value: Any) -> bool:
    """Return whether a value is a Python number, which compiled code treats as a constant."""
    return isinstance(value, int | float | complex) and not isinstance(value, bool)


def device_of(values: Iterable[Any]) -> str:
    """Return the device type of the first float tensor, or else of the first tensor; "cpu" if there is no tensor."""
    tensors = [each for each in values if isinstance(each, Tensor)]
    floats = [each for each in tensors if each.is_floating_point()]
    return (floats or tensors)[0].device.type if tensors else "cpu"


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (path, description before, description now) for each path whose two descriptions differ."""
    paths = [*before, *(path for path in now if path not in before)]
    pairs = ((path, before.get(path, "nothing"), now.get(path, "nothing")) for path in paths)
    return [(path, old, new) for path, old, new in pairs if old != new]
