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
    number = as_integer(value)
    if number is None or not least <= number <= most:
        allowed = f"{least}..{_NAMES.get(most, most)}"
        raise error(
            f"{what} must be an integer in {allowed}, but is {shown(value)}; give a whole number in that range."
        )
    return number


def as_integer(value: Any) -> int | None:
    """`value` as an int, where it is one integer: of Python or numpy, or a 0-dimensional array or tensor; else None."""
    # True counts as 1 almost everywhere, also in arrays and tensors; a row of one number is still a row.
    if isinstance(value, bool | np.bool_) or getattr(value, "ndim", 0) or _is_masked(value):
        return None
    if str(getattr(value, "dtype", "")).endswith("bool"):
        return None
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        # RuntimeError: a tensor without values ("meta").
        return None


def _is_masked(value: Any) -> bool:
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any())


def shown(value: Any, length: int = 100) -> str:
    """`value` for a message: its repr, cut off, whatever it is."""
    try:
        text = repr(value)
    except Exception:
        # It must not hide the message it is for: Python refuses to write integers of more than 4,300 digits.
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= length else f"{text[: length - 3]}..."


def true_or_false(what: str, value: Any, error: type[InputError] = InputError) -> bool:
    """Return `value` as a bool; refuse what is neither Python's nor numpy's: any text or list would count as true.

    Raises
    ------
    InputError
        Of the class `error`; names `what` and the value.
    """
    if not isinstance(value, bool | np.bool_):
        raise error(f"{what} must be True or False, but is {shown(value)}; give one of the two.")
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
