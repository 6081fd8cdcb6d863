"""Heuristics: monotone maps from a size, or from the room left in a pack, to an integer priority.

If the room is 0 in all components, its priority is 0.

Source: Krell et al. 2022 (arXiv 2209.06354), section 2.2. Differences from the paper: "minimum" is the true minimum,
but the paper's code computes the maximum under that name; and weights are scaled to integers, so that every priority is
exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX, real_number, shown
from dgl_tuplepack.errors import InputError, MethodError
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.sizes import components_of_kind

if TYPE_CHECKING:
    from dgl_tuplepack._core.kernels.types import Rule

Heuristic = str | Sequence[float]

NAMES = ("product", "sum", "maximum", "minimum", "node", "edge")


@dataclass(frozen=True)
class Priority:
    """A heuristic as a rule for kernels, and the `name` that a plan records."""

    name: str
    rule: Rule


def as_priority(heuristic: Heuristic, limits: Limits) -> Priority:
    """Translate a name, or k weights >= 0 of a weighted sum, into a priority; sizes and rooms must be within `limits`.

    Raise MethodError if the name or the weights cannot be used, or if priorities could overflow int64.
    """
    check_heuristic(heuristic)
    if not isinstance(heuristic, str):
        weights = _integer_weights(heuristic, limits)
        return _weighted(f"weights {tuple(weights)!r}", weights, limits)
    if heuristic == "product":
        return _checked_priority(heuristic, math.prod(limits.values), limits)
    if heuristic in ("maximum", "minimum"):
        largest = max(limits.values) if heuristic == "maximum" else min(limits.values)
        return _checked_priority(heuristic, largest, limits)
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
    """Return the heuristics that can be used with these components."""
    return [name for name in NAMES if name not in ("node", "edge") or components_of_kind(components, name + "s")]


def check_heuristic(heuristic: object) -> None:
    """Raise MethodError unless `heuristic` is one of NAMES or a sequence; `as_priority` checks the weights in it."""
    ordered = isinstance(heuristic, Sequence | np.ndarray) and getattr(heuristic, "ndim", 1) == 1
    valid = heuristic in NAMES if isinstance(heuristic, str) else ordered and not isinstance(heuristic, bytes)
    if not valid:
        raise MethodError(
            f"unknown heuristic {shown(heuristic)}; choose one of {', '.join(NAMES)}, or a tuple of weights."
        )


def _checked_priority(name: str, largest: int, limits: Limits, weights: Sequence[int] = ()) -> Priority:
    """Return a priority; raise MethodError if `largest`, its largest value, reaches 2**63 - 1: kernels add 1 to it."""
    if largest >= INT64_MAX:
        raise MethodError(
            f"the heuristic {name!r} overflows int64 for {limits!r}: it reaches {largest}, but must stay below "
            "2**63-1; use another heuristic ('sum', 'maximum'), smaller weights, or limits no larger than the totals "
            "of all graphs."
        )
    from dgl_tuplepack._core.kernels.types import MAXIMUM, MINIMUM, PRODUCT, WEIGHTED_SUM, Rule

    kind = {"product": PRODUCT, "maximum": MAXIMUM, "minimum": MINIMUM}.get(name, WEIGHTED_SUM)
    return Priority(name, Rule(kind, np.array(weights, dtype=np.int64)))


def _integer_weights(weights: Sequence[float], limits: Limits) -> list[int]:
    """Return the smallest integers with the ratios of the weights, each rounded to 1e-6 of the largest weight."""
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
    fractions = [(Fraction(number) / largest).limit_denominator(10**6) for number in numbers]
    scaled = [fraction * math.lcm(*(other.denominator for other in fractions)) for fraction in fractions]
    common = math.gcd(*(int(whole) for whole in scaled)) or 1
    return [int(whole) // common for whole in scaled]


def _weighted(name: str, weights: Sequence[int], limits: Limits) -> Priority:
    """Return the priority of a weighted sum, with one weight for each component."""
    largest = sum(weight * limit for weight, limit in zip(weights, limits.values, strict=True))
    return _checked_priority(name, largest, limits, weights)
