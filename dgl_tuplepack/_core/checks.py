"""Argument checks: each returns the value in its usual type, or raises an error, of the class `error` if it has this.

`what` is the name of the argument, for the message. `shown` and `printable` make values safe to display.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack.errors import FormatError, InputError, SizesError

INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1

# Allowed values of the argument `oversize`.
OVERSIZE = ("error", "drop")

_NAMES = {INT64_MAX: "2**63-1", UINT64_MAX: "2**64-1"}


def whole_number(what: str, value: Any, least: int, most: int = INT64_MAX, error: type[InputError] = InputError) -> int:
    """Return `value` as an int; raise `error` for anything but an integer in ``least..most``."""
    number = as_integer(value)
    if number is None or not least <= number <= most:
        allowed = f"{least}..{_NAMES.get(most, most)}"
        raise error(
            f"{what} must be an integer in {allowed}, but is {shown(value)}; give a whole number in that range."
        )
    return number


def as_integer(value: Any) -> int | None:
    """Return `value` as an int if it is an integer of Python or numpy, or a 0-d integer array or tensor; else None."""
    # `operator.index` accepts bools, and tensors of shape [1].
    dimensions: Any = getattr(value, "ndim", 0)
    is_truth = isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool")
    if is_truth or dimensions:
        return None
    try:
        return operator.index(value)
    except (TypeError, ValueError):
        return None


def shown(value: Any, length: int = 100) -> str:
    """Return `value` for a message: its repr on one line, cut off at `length` characters."""
    try:
        text = " ".join(map(str.strip, repr(value).splitlines()))
    except Exception:
        # An error in a repr must not replace the error whose message is being made.
        text = f"a {type(value).__name__}"
    return text if len(text) <= length else f"{text[: length - 3]}..."


def printable(text: object) -> str:
    """Return `text` on one line, with escapes for characters that are not safe to display."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def real_number(
    what: str, value: Any, *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf,
    hint: str = "give a number in that range.", error: type[InputError] = InputError,
) -> float:  # fmt: skip
    """Return `value` as an int if it is an integer, else as a float; raise `error` unless it is a finite real number.

    `least` and `most` are inclusive bounds, `above` is an exclusive bound.
    """
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except (OverflowError, ValueError):
        # An integer or a fraction above 1.8e308.
        number = math.inf
    if not (math.isfinite(number) and least <= number <= most and above < number):
        bounds = ((">=", least), ("above", above), ("at most", most))
        allowed = " and ".join(f"{word} {bound:g}" for word, bound in bounds if math.isfinite(bound))
        raise error(f"{what} must be a finite number{allowed and ' '}{allowed}, but is {shown(value)}; {hint}")
    return int(value) if isinstance(value, Integral) else number


def true_or_false(what: str, value: Any, error: type[InputError] = InputError) -> bool:
    """Return `value` as a bool; raise `error` unless it is a bool of Python or numpy."""
    if not isinstance(value, bool | np.bool_):
        raise error(f"{what} must be True or False, but is {shown(value)}; give one of the two.")
    return bool(value)


def choice(what: str, value: Any, choices: Iterable[str], error: type[InputError] = InputError) -> str:
    """Return `value`; raise `error` unless it is one of the strings `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise error(f"unknown {what} {shown(value)}; choose {' or '.join(map(repr, choices))}.")
    return value


def as_path(path: Any) -> Path:
    """Return `path` as a Path; raise FormatError if it is neither text nor a path, or has a null character."""
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        raise FormatError(
            f"a path must be text or a pathlib.Path, without null characters, but is {shown(path)}; give such a path."
        )
    return Path(path)


def as_array(values: Any, what: str, error: type[InputError] = SizesError) -> NDArray[Any]:
    """Return `values` as a numpy array of any dtype; raise `error` if numpy cannot convert them."""
    try:
        array = np.asarray(values)
        # numpy may turn Python integers above int64 into floats; an object array keeps them.
        if array.dtype.kind in "fO" and isinstance(values, list | tuple):
            array = np.array(values, dtype=object)
    except (ValueError, TypeError, RuntimeError, OverflowError) as cause:
        raise error(
            f"{what} do not form an array ({cause!s:.200}); give rows of equal length, of plain numbers."
        ) from cause
    return array


def as_ids(ids: Any, num_graphs: int) -> NDArray[np.int64]:
    """Return ids of graphs, or the positions of True in a mask, as int64 ``[n]``; raise SizesError for other values.

    Ids are integers in 0..`num_graphs` - 1.
    """
    row = as_integers(ids, num_graphs)
    signed = row.astype(np.int64, copy=False)
    # Viewed as unsigned integers, negative ids become too large.
    if len(row) and signed.view(np.uint64).max() >= num_graphs:
        outside = row[(row < 0) | (row >= num_graphs)]
        raise SizesError(f"id {outside[0]} is not in 0..{num_graphs - 1}; there are {num_graphs} graphs.")
    return signed


def as_split(ids: Any, num_graphs: int) -> NDArray[np.int64]:
    """Return the ids of a split, as `as_ids`; raise SizesError for a mask of numbers, which would repeat graphs."""
    found = as_ids(ids, num_graphs)
    if len(found) == num_graphs > 2 and found.max() < 2:
        raise SizesError(
            f"a split has a 0 or a 1 for each of the {num_graphs} graphs, so it is a mask, and ids are expected here; "
            "give the mask as True and False, np.asarray(mask, dtype=bool), or give ids."
        )
    return found


def as_integers(ids: Any, mask_length: int | None = None) -> NDArray[Any]:
    """Return ids of graphs as an array ``[n]``; raise SizesError unless they are one row of integers.

    If `mask_length` is given, a row of that many bools is a mask, and the positions of True are returned.
    """
    row: NDArray[Any]
    try:
        row = np.asarray(ids)
    except (ValueError, TypeError, RuntimeError):
        # A row of floats, which the check below refuses.
        row = np.empty(1)
    # A list of Python ints, such as the ids of a loader's batch, needs no further checks.
    if row.dtype == np.int64 and type(ids) is list and set(map(type, ids)) == {int}:
        return row
    if row.dtype == bool and mask_length is not None:
        if row.shape != (mask_length,):
            raise SizesError(
                f"a mask of graphs has shape {list(row.shape)}, but there are {mask_length} graphs; give one True or "
                "False for each graph, or ids."
            )
        return np.flatnonzero(row)
    # numpy converts an empty list to an array of floats.
    row = row if row.size else row.astype(np.int64).reshape(-1)
    if row.ndim != 1 or row.dtype.kind not in "iu":
        raise SizesError(
            f"ids must be one row of integers, but are {shown(ids, 200)}; give a list of ids, or a tensor on the CPU "
            "(torch's DataLoader passes lists if it is made with sampler=..., batch_size=None)."
        )
    return row
