"""The checks of arguments that many modules share: numbers, switches, choices and ids."""

from __future__ import annotations

import math
import operator
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack.errors import InputError, SizesError

INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1

# What to do with graphs that exceed the limits.
OVERSIZE = ("error", "drop")

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
        allowed, given = f"{least}..{_NAMES.get(most, most)}", shown(value)
        raise error(f"{what} must be an integer in {allowed}, but is {given}; give a whole number in that range.")
    return number


def real_number(
    what: str,
    value: Any,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
    hint: str = "give a number in that range.",
    error: type[InputError] = InputError,
) -> float:
    """Return `value` as a Python number, integers as int; refuse values that are not finite or outside the range.

    Parameters
    ----------
    what
        Name of the value in the message.
    value
        Any real number of Python or numpy that a float can represent, but no bool.
    least, most
        Inclusive bounds.
    above, below
        Exclusive bounds.
    hint
        End of the message: what to do.
    error
        Class of the error.

    Raises
    ------
    InputError
        Of the class `error`; names `what`, the value and the range.
    """
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.nan
    if not (math.isfinite(number) and least <= number <= most and above < number < below):
        bounds = ((">=", least), ("above", above), ("at most", most), ("below", below))
        allowed = " and ".join(f"{word} {bound:g}" for word, bound in bounds if math.isfinite(bound))
        raise error(f"{what} must be a finite number{allowed and ' '}{allowed}, but is {shown(value)}; {hint}")
    return int(value) if isinstance(value, Integral) else number


def check_oversize(oversize: Any, error: type[InputError] = InputError) -> None:
    """Refuse anything but "error" and "drop".

    Raises
    ------
    InputError
        Of the class `error`; names the value.
    """
    if not isinstance(oversize, str) or oversize not in OVERSIZE:
        raise error(f"unknown oversize {shown(oversize)}; choose {' or '.join(map(repr, OVERSIZE))}.")


def shown(value: Any) -> str:
    """Return a value as it stands in a message, shortened."""
    try:
        text = repr(value)
    except ValueError:
        # Python does not write out integers of thousands of digits.
        return "an integer of thousands of digits"
    return text if len(text) <= 100 else f"{text[:100]}..."


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
