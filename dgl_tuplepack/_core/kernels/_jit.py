"""Decorators that compile functions with numba; all kernels use them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import NoneType
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import numba
import numpy as np
from numba import types

from dgl_tuplepack._core.interrupts import interrupts_held

Function = TypeVar("Function", bound=Callable[..., Any])

_SCALARS = {int: types.int64, float: types.float64, bool: types.boolean, np.uint64: types.uint64, NoneType: types.void}
_TUPLE: Any = types.BaseTuple


def jit(function: Function) -> Function:
    """Compile a kernel for the types in its annotations; the kernel runs in one thread, and releases the GIL.

    The kernel is compiled when its module is imported, and numba caches the compiled code on disk.
    """
    hints = get_type_hints(function, include_extras=True)
    result = _numba_type(hints.pop("return"))
    # Calling a numba type with types gives a signature.
    signature = result(*map(_numba_type, hints.values()))
    with interrupts_held():
        try:
            return cast(Function, numba.njit(signature, nogil=True, cache=True)(function))
        except Exception as error:
            # If the kernel itself has an error, the second attempt below raises it again.
            _warn_uncached(getattr(error, "strerror", None) or type(error).__name__)
        return cast(Function, numba.njit(signature, nogil=True)(function))


@functools.cache
def _warn_uncached(reason: str) -> None:
    """Warn that compiled code cannot be cached, once for each reason."""
    warnings.warn(
        f"compiled code cannot be cached ({reason}), so every new process compiles it again, which takes a minute; set "
        "NUMBA_CACHE_DIR to an empty, writable folder with space left.",
        stacklevel=3,
    )


def helper(function: Function) -> Function:
    """Compile a function into each kernel that calls it; only kernels can call it, with arguments of any types."""
    # The wrappers for calls from Python and C would take time to compile.
    njit: Any = numba.njit
    return cast(Function, njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(function))


def _numba_type(hint: Any) -> Any:
    """Return numba's type for an annotation: a scalar, an array type of ``types.py``, or a (named) tuple of these."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if get_origin(hint) is Annotated:
        return get_args(hint)[1]
    # The hint is ``tuple[...]`` or a NamedTuple class.
    named = get_origin(hint) is not tuple
    parts = get_type_hints(hint, include_extras=True).values() if named else get_args(hint)
    return _TUPLE.from_types([_numba_type(each) for each in parts], hint if named else None)
