"""The only numba decorators of the package."""

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

_SCALARS = {
    int: types.int64,
    float: types.float64,
    bool: types.boolean,
    np.uint64: types.uint64,
    NoneType: types.void,
}
_TUPLE: Any = types.BaseTuple


def jit(function: Function) -> Function:
    """Compile a kernel for the types in its annotations; it runs serially, and releases the GIL.

    The kernel is compiled when its module is imported, and numba caches it on disk. So a new worker process loads it
    and does not compile it again. The attribute ``.py_func`` is the plain function.
    """
    hints = get_type_hints(function, include_extras=True)
    result = _numba_type(hints.pop("return"))
    # The other hints are the types of the arguments, in order.
    signature = result(*map(_numba_type, hints.values()))
    with interrupts_held():
        try:
            return cast(Function, numba.njit(signature, nogil=True, cache=True)(function))
        except Exception as error:
            # If only the cache failed, the second attempt below succeeds. If the kernel is wrong, it raises the error.
            _warn_uncached(getattr(error, "strerror", None) or type(error).__name__)
        return cast(Function, numba.njit(signature, nogil=True)(function))


@functools.cache
def _warn_uncached(reason: str) -> None:
    warnings.warn(
        f"compiled code cannot be cached ({reason}), so every start compiles again, which takes a minute; set "
        "NUMBA_CACHE_DIR to an empty, writable folder with space left.",
        stacklevel=3,
    )


def helper(function: Function) -> Function:
    """Make a function callable from kernels only, for any types; it is compiled into each kernel that calls it."""
    # Leave out the wrappers for calls from Python and C, which would take time to compile.
    njit: Any = numba.njit
    return cast(Function, njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(function))


def _numba_type(hint: Any) -> Any:
    """Return numba's type for an annotation: a scalar, an array of ``kernels.types``, or a (named) tuple of these."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if get_origin(hint) is Annotated:
        # The second argument of Annotated is numba's type; see `types.py`.
        return get_args(hint)[1]
    # The hint is ``tuple[...]`` or a NamedTuple class, whose annotations are the types of its fields.
    named = get_origin(hint) is not tuple
    parts = get_type_hints(hint, include_extras=True).values() if named else get_args(hint)
    return _TUPLE.from_types([_numba_type(each) for each in parts], hint if named else None)
