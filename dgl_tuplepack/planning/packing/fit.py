"""Best fit and first fit decreasing on a histogram, in one compiled loop; the paper's baselines; and their settings.

A heuristic maps a size, or the room in a pack, to a priority, an integer that never falls when a component grows, and
is 0 if all components are 0.

Source: Krell et al. 2022 (arXiv 2209.06354), section 2.2. Differences from the paper: "minimum" is the true minimum,
but the paper's code computes the maximum under that name; and weights are scaled to integers, so that every priority is
exact.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX, UINT64_MAX, real_number, shown, true_or_false, whole_number
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.errors import InputError, MethodError
from dgl_tuplepack.planning.bounds.instance import as_instance, quick_bound
from dgl_tuplepack.planning.bounds.pattern_lp import Effort, effort_of
from dgl_tuplepack.planning.buckets import Buckets
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.plan import PackPlan, Patterns, of_packs
from dgl_tuplepack.planning.sizes import components_of_kind

if TYPE_CHECKING:
    from dgl_tuplepack._core.kernels.types import Rule

# Work of sorting, for each class. A unit of work is a step of the kernel on sizes of two components.
_WORK_PER_CLASS = 40
# The largest number of graphs for next fit: with this many, it needs two GiB of memory and some seconds.
_MOST_GRAPHS = 1 << 25
Heuristic = str | Sequence[float]

NAMES = ("product", "sum", "maximum", "minimum", "node", "edge")


def as_plan(
    patterns: Patterns, histogram: SizeHistogram, limits: Limits, method: str, settings: Settings, *,
    heuristic: str | None = None, bound: int | None = None, buckets: Buckets | None = None,
) -> PackPlan:  # fmt: skip
    """Make a plan from patterns; without a `bound`, it has the bound in closed form."""
    bound = quick_bound(as_instance(histogram, limits)) if bound is None else bound
    arrays = patterns.offsets, patterns.classes, patterns.multiplicities, patterns.repeats
    random_ties = settings.random_ties and heuristic is not None
    return PackPlan(
        histogram, limits, *arrays, bound, method, heuristic, settings.seed, random_ties, buckets=buckets
    )  # fmt: skip


def _fit(method: str, histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Put each graph into an open pack with room for it, largest sizes first; see section 2.2 of the paper.

    "best_fit" chooses the fullest such pack, "first_fit" the emptiest (elsewhere called worst fit), exactly as the
    paper's code. Two of its traits cost packs: once a graph of a size is placed, the other graphs of this size skip
    packs whose room has the same priority as the size; and if no open pack has room for a size, each remaining graph of
    that size opens a new pack. "first_fit_by_text" has no first trait, as in the paper's text. Time near O(G log G) in
    practice for G groups of identical packs; memory O(G k).
    """
    heuristic, rule = as_priority(settings.heuristic, limits)
    patterns = fit_within(method, histogram, limits, rule, settings, Effort(1 << 62))
    assert patterns is not None
    return as_plan(patterns, histogram, limits, method, settings, heuristic=heuristic)


def fit_within(
    method: str, histogram: SizeHistogram, limits: Limits, rule: Rule, settings: Settings, effort: Effort
) -> Patterns | None:
    """Return the patterns that a method of this file makes; None if the effort does not suffice."""
    # Kernels are compiled when they are imported, and not every plan needs these.
    from dgl_tuplepack._core.kernels.histogram_fit import Placing, fit_histogram, patterns_of, priorities

    sorting, per_step = _WORK_PER_CLASS * len(histogram), (1 + len(histogram.components)) / 3
    key = key_of(settings.seed, 0, len(histogram))
    # Sort classes by priority, then size, then count, all descending; with `random_ties`, by priority, then at random.
    ties = [histogram.counts, *histogram.sizes.T[::-1]]
    if settings.random_ties:
        ties = [shuffled(np.arange(len(histogram)), key)]
    order = np.lexsort([*ties, priorities(rule, histogram.sizes)])[::-1].astype(np.int64)
    # groups: one row for each group of identical packs; no rows if the effort did not suffice.
    cap = INT64_MAX if limits.graphs is None else limits.graphs
    placing = Placing(method == "best_fit", method == "first_fit_by_text", settings.random_ties, key)
    groups, steps = fit_histogram(
        histogram.sizes, histogram.counts, order, limits.array, cap, rule, placing,
        int((effort.left - sorting) / per_step),
    )  # fmt: skip
    effort.spend(sorting + int(per_step * steps))
    return Patterns(*patterns_of(groups)) if len(groups) else None


def none(histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Put every graph into its own pack."""
    number = len(histogram)
    alone = Patterns(np.arange(number + 1), np.arange(number), np.ones(number, dtype=np.int64), histogram.counts)
    return as_plan(alone, histogram, limits, "none", settings)


def _by_one_kind(kind: str, histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Pack by best fit within the limits on nodes (`kind` "node") or on edges only, with the priority of that kind.

    The plan has the other limits raised to the largest content of its packs.
    """
    counted = components_of_kind(histogram.components, kind + "s")
    if not counted:
        raise MethodError(
            f"the method '{kind}_only' needs a component that counts {kind}s, but the sizes have "
            f"{list(histogram.components)}; choose another method."
        )
    # No pack can exceed the total of a component, so the total as a limit means "no limit".
    loose = {name: max(total, 1) for name, total in histogram.totals().items()}
    kept = {limits.components[column]: limits.values[column] for column in counted}
    relaxed = Limits.from_components(loose | kept, limits.graphs)
    plan = _fit("best_fit", histogram, relaxed, replace(settings, heuristic=kind))
    needed = map(max, limits.values, plan.effective_limits.values)
    raised = Limits.from_components(dict(zip(limits.components, needed, strict=True)), limits.graphs)
    return as_plan(plan.patterns, histogram, raised, f"{kind}_only", settings)


def next_fit(histogram: SizeHistogram, limits: Limits, settings: Settings) -> PackPlan:
    """Shuffle all graphs, and fill one pack after the other; time O(N k), memory O(N), at most 2^25 graphs.

    Source: Johnson 1973, "Near-optimal bin packing algorithms" (next fit), on randomly ordered items.
    """
    from dgl_tuplepack._core.kernels.next_fit import next_fit_offsets

    if histogram.num_graphs > _MOST_GRAPHS:
        raise MethodError(
            f"next fit packs graphs one by one, at most {_MOST_GRAPHS:,} of them, but there are "
            f"{histogram.num_graphs:,}; choose a method that works on the histogram ('auto', 'best_fit', 'first_fit')."
        )
    # items: the class of each graph. Pack p holds items[pack_offsets[p]:pack_offsets[p + 1]].
    items = shuffled(np.repeat(np.arange(len(histogram)), histogram.counts), key_of(settings.seed, 0, 0))
    cap = INT64_MAX if limits.graphs is None else limits.graphs
    pack_offsets = next_fit_offsets(histogram.sizes, items, limits.array, cap)
    packs = np.repeat(np.arange(len(pack_offsets) - 1), np.diff(pack_offsets))
    return as_plan(of_packs(packs, items), histogram, limits, "next_fit", settings)


def as_priority(heuristic: Heuristic, limits: Limits) -> tuple[str, Rule]:
    """Return the name that a plan records for a heuristic, or for k weights, and its rule; or raise MethodError."""
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
    return name, Rule(kind, np.array(weights, dtype=np.int64))


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
        allowed = effort_of(self.effort, self.time_limit)
        object.__setattr__(self, "work", self.work or allowed)


Method = Callable[[SizeHistogram, Limits, Settings], PackPlan]

FITS: dict[str, Method] = {
    **{method: partial(_fit, method) for method in ("best_fit", "first_fit", "first_fit_by_text")},
    "none": none, "node_only": partial(_by_one_kind, "node"), "edge_only": partial(_by_one_kind, "edge"),
    "next_fit": next_fit,
}  # fmt: skip
