"""Argument and return types of kernels: numpy's array types for readers and mypy, numba's types for the compiler.

A kernel only reads an argument of a ``Const...`` type; the caller may pass read-only or writable arrays for it.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numba
import numpy as np
from numpy.typing import DTypeLike, NDArray


def array_type(dtype: DTypeLike, axes: int, *, const: bool = False) -> Any:
    """Return numba's type for a C-contiguous array with `axes` axes, read-only if `const`."""
    return numba.types.Array(numba.from_dtype(np.dtype(dtype)), axes, "C", readonly=const)


IntVector = Annotated[NDArray[np.int64], array_type(np.int64, 1)]
IntMatrix = Annotated[NDArray[np.int64], array_type(np.int64, 2)]
IntCube = Annotated[NDArray[np.int64], array_type(np.int64, 3)]
ConstIntVector = Annotated[NDArray[np.int64], array_type(np.int64, 1, const=True)]
ConstIntMatrix = Annotated[NDArray[np.int64], array_type(np.int64, 2, const=True)]
ConstIntCube = Annotated[NDArray[np.int64], array_type(np.int64, 3, const=True)]
FloatVector = Annotated[NDArray[np.float64], array_type(np.float64, 1)]
FloatMatrix = Annotated[NDArray[np.float64], array_type(np.float64, 2)]

# Kinds of a `Rule`.
PRODUCT, WEIGHTED_SUM, MAXIMUM, MINIMUM = range(4)


class Rule(NamedTuple):
    """A rule that computes a priority from a size ``[k]``; only WEIGHTED_SUM uses `weights` ``[k]``.

    The caller must check that no priority overflows int64.
    """

    kind: int
    weights: IntVector
