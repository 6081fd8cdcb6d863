"""The only numba decorator of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

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
        return cast(Function, numba.njit(list(signatures) or None, cache=True, nogil=True)(function))

    return decorate
