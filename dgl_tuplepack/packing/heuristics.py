"""Heuristics: monotone maps from a size to an integer priority, 0 for an empty remainder.

Source: Krell et al. 2022 (arXiv 2209.06354), section 2.2. Deviations: "minimum" is the true minimum (the
paper's companion code computes the maximum under that name); weights are scaled to integers, and a
callable is tabulated over all sizes inside the limits, so that every priority is exact.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dgl_tuplepack._checks import INT64_MAX, real_number, shown
from dgl_tuplepack.errors import InputError, MethodError
from dgl_tuplepack.kernels.priority import MAXIMUM, MINIMUM, PRODUCT, TABLE, WEIGHTED_SUM, Rule
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.sizes import IntArray, components_of_kind

Heuristic = str | Sequence[float] | Callable[..., int]

NAMES = ("product", "sum", "maximum", "minimum", "node", "edge")

_MOST_TABLE_CELLS = 1 << 24
_EMPTY = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Priority:
    """A heuristic in the form that kernels take; a plan records its `name`."""

    name: str
    kind: int
    weights: IntArray
    table: IntArray

    @property
    def rule(self) -> Rule:
        """The rule with writable arrays, as kernels take them: some executors hand on read-only ones."""
        return Rule(self.kind, np.require(self.weights, requirements="W"), np.require(self.table, requirements="W"))


def as_priority(heuristic: Heuristic, limits: Limits) -> Priority:
    """Translate a heuristic into a priority for remainders in 0..limit.

    It is a name; or k weights >= 0 of a weighted sum; or a callable that takes k integers and returns an integer >= 0,
    0 where all are 0, and never smaller when one of them grows. A MethodError if the name is unknown, priorities could
    overflow int64, or a callable breaks these rules.
    """
    check_heuristic(heuristic)
    if callable(heuristic):
        return _tabulated(heuristic, limits)
    if not isinstance(heuristic, str):
        weights = _integer_weights(heuristic, limits)
        return _weighted(f"weights {tuple(weights)!r}", weights, limits)
    if heuristic == "product":
        return _checked_priority(heuristic, PRODUCT, math.prod(limits.values), limits)
    if heuristic in ("maximum", "minimum"):
        kind, largest = (MAXIMUM, max(limits.values)) if heuristic == "maximum" else (MINIMUM, min(limits.values))
        return _checked_priority(heuristic, kind, largest, limits)
    if heuristic == "sum":
        return _weighted(heuristic, [1] * len(limits.values), limits)
    chosen = components_of_kind(limits.components, heuristic + "s")
    if not chosen:
        raise MethodError(
            f"the heuristic {heuristic!r} needs a component that counts {heuristic}s, but the sizes have "
            f"{list(limits.components)}; choose another heuristic or weights."
        )
    return _weighted(heuristic, [int(i in chosen) for i in range(len(limits.values))], limits)


def names_for(components: Sequence[str]) -> list[str]:
    """Return the names that apply to sizes with these components: "node" and "edge" need some of that kind."""
    return [name for name in NAMES if name not in ("node", "edge") or components_of_kind(components, name + "s")]


def check_heuristic(heuristic: object) -> None:
    """Refuse what cannot be a heuristic, even where the method ignores it."""
    ordered = isinstance(heuristic, Sequence | np.ndarray) and getattr(heuristic, "ndim", 1) == 1
    ordered = ordered and not isinstance(heuristic, bytes)
    function = callable(heuristic) and not isinstance(heuristic, type)
    known = heuristic in NAMES if isinstance(heuristic, str) else ordered or function
    if not known:
        raise MethodError(
            f"unknown heuristic {shown(heuristic)}; choose one of {', '.join(NAMES)}, a tuple of weights, or a "
            "callable."
        )


def _checked_priority(
    name: str, kind: int, largest: int, limits: Limits, weights: IntArray = _EMPTY, table: IntArray = _EMPTY
) -> Priority:
    """Return a priority; refuse one that reaches 2**63 - 1, since kernels add 1 to priorities."""
    if largest >= INT64_MAX:
        raise MethodError(
            f"the heuristic {name!r} overflows int64 for {limits!r}: it reaches {largest}, but must stay below "
            "2**63-1; use another ('sum', 'maximum'), smaller weights, or limits no larger than all graphs need."
        )
    return Priority(name, kind, weights, table)


def _integer_weights(weights: Sequence[float], limits: Limits) -> list[int]:
    """Return the smallest integers in the same proportion, to six digits of the largest weight."""
    k = len(limits.values)
    try:
        numbers = [float(real_number("a weight", w, least=0)) for w in weights]
    except InputError:
        numbers = []
    if len(numbers) != k or not any(numbers):
        raise MethodError(
            f"weights must be {k} finite numbers >= 0 (for {', '.join(limits.components)}), not all 0, "
            f"but are {shown(weights)}."
        )
    largest = Fraction(max(numbers))
    fractions = [(Fraction(w) / largest).limit_denominator(10**6) for w in numbers]
    scaled = [f * math.lcm(*(f.denominator for f in fractions)) for f in fractions]
    common = math.gcd(*(int(s) for s in scaled)) or 1
    return [int(s) // common for s in scaled]


def _weighted(name: str, weights: Sequence[int], limits: Limits) -> Priority:
    largest = sum(w * limit for w, limit in zip(weights, limits.values, strict=True))
    return _checked_priority(name, WEIGHTED_SUM, largest, limits, np.array(weights, dtype=np.int64))


def _tabulated(heuristic: Callable[..., int], limits: Limits) -> Priority:
    name = f"callable {getattr(heuristic, '__name__', type(heuristic).__name__)}"
    shape = tuple(limit + 1 for limit in limits.values)
    if math.prod(shape) > _MOST_TABLE_CELLS:
        raise MethodError(
            f"a callable is tabulated over every size inside the limits, at most {_MOST_TABLE_CELLS} of them, "
            f"but {limits!r} has {math.prod(shape)}; use weights or a named heuristic there."
        )
    try:
        inspect.signature(heuristic).bind(*shape)
    except TypeError as error:
        raise MethodError(
            f"the {name} must take {len(shape)} integers, one for each of {', '.join(limits.components)}, but does not "
            f"({error})."
        ) from error
    except ValueError:
        # Some built-in functions have no signature.
        pass
    table = np.fromiter(
        (_checked(name, size, heuristic(*size)) for size in np.ndindex(shape)), np.int64, math.prod(shape)
    )
    grid = table.reshape(shape)
    if table[0] != 0:
        raise MethodError(f"the {name} must be 0 for an empty remainder, but is {table[0]}; subtract that.")
    for axis, component in enumerate(limits.components):
        falls = np.argwhere(np.diff(grid, axis=axis) < 0)
        if len(falls):
            raise MethodError(
                f"the {name} must not fall when {component} grow, but it does after the size "
                f"{tuple(falls[0].tolist())}; heuristics are monotone."
            )
    strides = np.array([math.prod(shape[i + 1 :]) for i in range(len(shape))], dtype=np.int64)
    return _checked_priority(name, TABLE, int(table.max()), limits, strides, table)


def _checked(name: str, size: tuple[int, ...], value: object) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number <= INT64_MAX:
        raise MethodError(
            f"the {name} must return an integer in 0..2**63-1, but returned {value!r} for the size {size}; "
            "scale and round its result."
        )
    return number
