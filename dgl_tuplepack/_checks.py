"""The one check of whole numbers, of switches, and of ids, that callers hand in."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack.errors import InputError, SizesError

INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1

_NAMES = {INT64_MAX: "2**63-1", UINT64_MAX: "2**64-1"}


def whole_number(what: str, value: Any, least: int, most: int = INT64_MAX, error: type[InputError] = InputError) -> int:
    """Return `value` as an int; refuse what is no integer, or outside ``least..most``.

    Raises
    ------
    InputError
        Of the class `error`; names `what`, the value and the range.
    """
    try:
        # Some versions of numpy take their bool for an index.
        number = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        allowed = f"{least}..{_NAMES.get(most, most)}"
        raise error(f"{what} must be an integer in {allowed}, but is {value!r}; give a whole number in that range.")
    return number


def true_or_false(what: str, value: Any, error: type[InputError] = InputError) -> bool:
    """Return `value` as a bool; refuse what is neither Python's nor numpy's: any text or list would count as true.

    Raises
    ------
    InputError
        Of the class `error`; names `what` and the value.
    """
    if not isinstance(value, bool | np.bool_):
        raise error(f"{what} must be True or False, but is {value!r:.100}; give one of the two.")
    return bool(value)


def as_ids(ids: Any, num_graphs: int) -> NDArray[np.int64]:
    """Check ids of graphs and give them as int64 ``[n]``.

    Raises
    ------
    SizesError
        They are no integers, or one is not in 0..num_graphs-1.
    """
    found = as_integers(ids)
    # Seen without a sign, a negative one is too large as well.
    if len(found) and found.astype(np.int64, copy=False).view(np.uint64).max() >= num_graphs:
        outside = found[(found < 0) | (found >= num_graphs)]
        raise SizesError(f"id {outside[0]} is not in 0..{num_graphs - 1}; there are {num_graphs} graphs.")
    return found.astype(np.int64, copy=False)


def as_integers(ids: Any) -> NDArray[np.integer[Any]]:
    """Ids of graphs as an array ``[n]``, whatever their values.

    Raises
    ------
    SizesError
        They are no integers.
    """
    try:
        found = np.asarray(ids)
    except (ValueError, TypeError, RuntimeError):
        # Rows of unequal length, or a tensor that is no plain one on the CPU.
        found = np.empty((1, 1))
    if not found.size:
        found = found.astype(np.int64).reshape(-1)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise SizesError(
            f"ids must be one row of integers, but are {ids!r:.200}; give a list of ids, or a tensor on the CPU "
            "(a loader gives lists with sampler=..., batch_size=None)."
        )
    return found
