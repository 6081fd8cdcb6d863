"""The checks of arguments that many modules share: numbers, switches, choices, paths, arrays and ids."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Container
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack.errors import FormatError, InputError, SizesError

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
    dimensions: Any = getattr(value, "ndim", 0)
    if isinstance(value, bool | np.bool_) or dimensions or _is_masked(value):
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
    number = as_real(value)
    if number is None or not (math.isfinite(number) and least <= number <= most and above < number < below):
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
    if not is_one_of(oversize, OVERSIZE):
        raise error(f"unknown oversize {shown(oversize)}; choose {' or '.join(map(repr, OVERSIZE))}.")


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


def is_one_of(value: Any, choices: Container[str]) -> bool:
    """Whether `value` is text and among `choices`; an array compares with text element by element."""
    return isinstance(value, str) and value in choices


def as_real(value: Any) -> float | None:
    """`value` as a float, which may be infinite or NaN; None where it is no real number, or beyond any float."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (OverflowError, ValueError):
        # An integer or a fraction beyond 1.8e308.
        return None


def as_path(path: Any) -> Path:
    """Return `path` as a Path.

    Raises
    ------
    FormatError
        It is neither text nor a path of text, has null characters, or cannot be encoded as the name of a file.
    """
    try:
        found: Path | None = Path(path)
        os.fsencode(str(path))
    except (TypeError, UnicodeEncodeError):
        found = None
    if found is None or "\0" in str(found):
        raise FormatError(
            "a path must be text without null characters and lone surrogates, or a pathlib.Path, but is "
            f"{shown(path)}; give one of them."
        )
    return found


def as_array(values: Any, what: str, error: type[InputError] = SizesError) -> NDArray[Any]:
    """Return `values` as a numpy array, of whatever dtype.

    Raises
    ------
    InputError
        Of the class `error`: they form no array, are not at hand (a tensor that is sparse, on another device, of a
        dtype that numpy does not know, or requires grad), or some are masked.
    """
    try:
        array = np.asarray(values)
        # numpy turns Python integers beyond int64 into objects or floats; as objects they can be named.
        if array.dtype.kind in "fO" and isinstance(values, list | tuple):
            array = np.array(values, dtype=object)
    except (ValueError, TypeError, RuntimeError, OverflowError) as cause:
        raise error(f"{what} form no array ({cause!s:.200}); give rows of equal length, of plain numbers.") from cause
    if _is_masked(values):
        raise error(f"{what} are masked in places; fill or remove these values first.")
    return array


def has_truths(values: Any) -> bool:
    """Whether a list, or a list of lists, has True or False among numbers, which numpy would take for 1 and 0."""
    if not isinstance(values, list | tuple):
        return False
    kinds = set(map(type, values))
    if not kinds.isdisjoint({bool, np.bool_}):
        return True
    return not kinds.isdisjoint({list, tuple}) and any(map(has_truths, values))


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
    if has_truths(ids) or _is_masked(ids):
        found = np.empty((1, 1))
    if not found.size:
        found = found.astype(np.int64).reshape(-1)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise SizesError(
            f"ids must be one row of integers, but are {shown(ids, 200)}; give a list of ids, or a tensor on the CPU "
            "(a loader gives lists with sampler=..., batch_size=None)."
        )
    return found
