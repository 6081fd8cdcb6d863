"""Settings of the packing methods; and heuristics: maps from a size, or from the room in a pack, to a priority.

Priorities are integers. They never fall when a component grows, and are 0 if all components are 0.

Source: Krell et al. 2022 (arXiv 2209.06354), section 2.2. Differences from the paper: "minimum" is the true minimum,
but the paper's code computes the maximum under that name; and weights are scaled to integers, so that every priority is
exact.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX, UINT64_MAX, real_number, shown, true_or_false, whole_number
from dgl_tuplepack.errors import InputError, MethodError
from dgl_tuplepack.planning.bounds.pattern_lp import Effort, check_effort, work_of
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
    """Translate a name, or k weights of a sum, into a priority for sizes within `limits`, or raise MethodError."""
    from dgl_tuplepack._core.kernels.types import MAXIMUM, MINIMUM, PRODUCT, WEIGHTED_SUM, Rule

    check_heuristic(heuristic)
    name, values = heuristic, limits.values
    kinds: dict[Any, tuple[int, Callable[[Sequence[int]], int]]] = {
        "product": (PRODUCT, math.prod), "maximum": (MAXIMUM, max), "minimum": (MINIMUM, min)
    }  # fmt: skip
    weights: list[int] = []
    if not isinstance(name, str):
        weights = _integer_weights(name, limits)
        name = f"weights {tuple(weights)!r}"
    elif name not in kinds:
        chosen = range(len(values)) if name == "sum" else components_of_kind(limits.components, name + "s")
        if not chosen:
            raise MethodError(
                f"the heuristic {name!r} needs a component that counts {name}s, but the sizes have "
                f"{list(limits.components)}; choose another heuristic or weights."
            )
        weights = [int(i in chosen) for i in range(len(values))]
    kind, highest = kinds.get(name, (WEIGHTED_SUM, lambda values: sum(map(operator.mul, weights, values))))
    # Kernels add 1 to a priority.
    if highest(values) >= INT64_MAX:
        raise MethodError(
            f"the heuristic {name!r} overflows int64 for {limits!r}: it reaches {highest(values)}, but must stay below "
            "2**63-1; use another heuristic ('sum', 'maximum'), smaller weights, or limits no larger than the totals "
            "of all graphs."
        )
    return Priority(name, Rule(kind, np.array(weights, dtype=np.int64)))


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
    multiple = math.lcm(*(fraction.denominator for fraction in fractions))
    scaled = [int(fraction * multiple) for fraction in fractions]
    common = math.gcd(*scaled) or 1
    return [whole // common for whole in scaled]


@dataclass(frozen=True)
class Settings:
    """Checked settings; see `pack` for their meaning. Each method uses only some of them."""

    heuristic: Heuristic = "product"
    seed: int = 0
    random_ties: bool = False
    effort: float = 1.0
    time_limit: float | None = None
    # The work that may still be done, shared by the plans of all shape buckets. None: from `effort` and `time_limit`.
    work: Effort = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_heuristic(self.heuristic)
        object.__setattr__(self, "seed", whole_number("seed", self.seed, 0, UINT64_MAX, MethodError))
        object.__setattr__(self, "random_ties", true_or_false("random_ties", self.random_ties, MethodError))
        check_effort(self.effort, self.time_limit)
        if self.work is None:
            deadline = None if self.time_limit is None else time.monotonic() + self.time_limit
            object.__setattr__(self, "work", Effort(work_of(self.effort), deadline))
