"""The one check of whole numbers, and of switches, that callers hand in."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from dgl_tuplepack.errors import InputError

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
