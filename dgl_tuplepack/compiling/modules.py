"""Find the modules that a function may call, and restore their attributes and buffers after a call."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

# The search goes this deep into nested objects, and skips containers with more elements than this: an object that
# holds a model, such as a trainer, may hold a whole dataset too.
_MAX_DEPTH, _MAX_LENGTH = 3, 1000


def modules_of(*values: Any) -> list[nn.Module]:
    """Return the modules in `values`; for functions, also the modules in their closures, globals and ``self``."""
    found: dict[nn.Module, None] = {}
    for value in values:
        _add_modules(value, found, set(), 0)
    return [*found]


def _add_modules(value: Any, found: dict[nn.Module, None], seen: set[int], depth: int) -> None:
    """Add the modules in a value to `found`, recursively."""
    try:
        is_plain = isinstance(value, Tensor | str | bytes | int | float | type | types.ModuleType)
    except ReferenceError:
        # The value is a weak proxy of an object that no longer exists.
        return
    if is_plain or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, nn.Module):
        found.update(dict.fromkeys(value.modules()))
    depth += not isinstance(value, types.FunctionType | types.MethodType | functools.partial)
    if depth <= _MAX_DEPTH:
        for each in _held_by(value):
            _add_modules(each, found, seen, depth)


def _held_by(value: Any) -> Iterable[Any]:
    """Return the objects that a value refers to directly; for functions, also the globals that their code uses."""
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, types.MethodType):
        return value.__self__, value.__func__
    if isinstance(value, types.FunctionType):
        # A cell of a closure is empty until its variable is assigned.
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
        names = {name for code in _codes(value.__code__) for name in code.co_names}
        used = [value.__globals__[name] for name in sorted(names) if name in value.__globals__]
        # Torch modules that are attributes of a Python module, as in ``package.model(x)``.
        inner = [vars(each).get(name) for each in used if isinstance(each, types.ModuleType) for name in names]
        used += [each for each in inner if isinstance(each, nn.Module)]
        return [*cells, *used, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if isinstance(value, dict):
        return value.values() if len(value) <= _MAX_LENGTH else ()
    if isinstance(value, list | tuple | set):
        return value if len(value) <= _MAX_LENGTH else ()
    attributes = vars(value).values() if hasattr(value, "__dict__") else ()
    if isinstance(value, nn.Module):
        # `_add_modules` has added the submodules, except submodules in plain lists and tuples.
        return [each for each in attributes if isinstance(each, list | tuple)]
    return attributes


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code object of a function, and the code objects of the functions that it defines."""
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


def problem_of(modules: Iterable[nn.Module]) -> str:
    """Return why a function with these modules cannot be called twice, or an empty string if it can."""
    for module in modules:
        if isinstance(module, DistributedDataParallel):
            return "DistributedDataParallel expects one backward pass per call: wrap the compiled module in it"
        if any(map(is_lazy, module.parameters(recurse=False))):
            return f"{type(module).__name__} has no parameters yet: call the model once first"
    return ""


@contextmanager
def modules_kept(modules: Iterable[nn.Module]) -> Iterator[None]:
    """On exit, restore the attributes and buffers of modules, such as running statistics, counters and caches."""
    before = [
        (module, dict(vars(module)), {n: (b, b.detach().clone()) for n, b in module.named_buffers(recurse=False)})
        for module in modules
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for module, attributes, buffers in before:
                _restore(module, attributes, buffers)


def _restore(module: nn.Module, attributes: dict[str, Any], buffers: dict[str, tuple[Tensor, Tensor]]) -> None:
    """Restore the attributes and the buffers of a module; `buffers` holds (buffer, copy of its values) by name."""
    for name in vars(module).keys() - attributes.keys():
        del vars(module)[name]
    vars(module).update(attributes)
    for name, (buffer, values) in buffers.items():
        if not torch.equal(buffer, values):
            buffer.copy_(values)
        # The call may have put another tensor in the place of the buffer.
        if getattr(module, name) is not buffer:
            setattr(module, name, buffer)


def buffers_of(modules: Iterable[nn.Module]) -> dict[tuple[int, str], Tensor]:
    """Return the buffers of modules, keyed by the position of the module and the name of the buffer."""
    return {(i, name): each for i, module in enumerate(modules) for name, each in module.named_buffers(recurse=False)}
