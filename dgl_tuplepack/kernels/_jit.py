"""The only numba decorator of the package."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np

from dgl_tuplepack.kernels._cache import keep_compiled

Function = TypeVar("Function", bound=Callable[..., Any])

# Types of arguments that a kernel only reads; arrays that may be written are accepted too.
VECTOR = "Array(int64, 1, 'C', readonly=True)"
MATRIX = "Array(int64, 2, 'C', readonly=True)"
# The same as VECTOR, for signatures that are no text, since records are among their types.
READ_VECTOR = numba.types.Array(numba.types.int64, 1, "C", readonly=True)


def records(dtype: np.dtype[Any], axes: int) -> Any:
    """Type of an argument that is an array of records, and is only read."""
    return numba.types.Array(numba.from_dtype(dtype), axes, "C", readonly=True)


def jit(*signatures: Any) -> Callable[[Function], Function]:
    """Compile for explicit signatures: cached on disk, serial, without the GIL.

    An explicit signature compiles (or loads from the cache) at import, so that a new worker process
    does not compile again; the plain function stays reachable as ``.py_func``. Without a signature it is a part of
    other kernels, and compiled with them.
    """

    def decorate(function: Function) -> Function:
        dispatcher: Any = numba.njit(nogil=True)(function)
        if dispatcher is not function:  # as NUMBA_DISABLE_JIT leaves it
            keep_compiled(dispatcher, cast(FunctionType, function))
            for signature in signatures:
                dispatcher.compile(signature)
            if signatures:
                dispatcher.disable_compile()
        return cast(Function, dispatcher)

    return decorate
