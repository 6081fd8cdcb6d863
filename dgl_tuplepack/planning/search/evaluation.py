"""The limits that a search can try, the packs of many candidates at once, counted on all cores, and the result."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX
from dgl_tuplepack._core.files import csv_text, write_text
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.planning.bounds.instance import as_instance, quick_bound
from dgl_tuplepack.planning.bounds.pattern_lp import Effort
from dgl_tuplepack.planning.buckets import all_of, steps_of
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.auto import first_patterns
from dgl_tuplepack.planning.plan import Patterns, harmonic_mean, padded_slots_of, slots_of
from dgl_tuplepack.planning.sizes import components_of_kind

# Limits of one pack as plain integers, in the order of the components.
Point = tuple[int, ...]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
# Units of work (see `Effort`) for all candidates together (about two seconds), and the fewest candidates.
_WORK, _FEWEST = 150_000_000, 5
# More work for each size class, and for each component beyond the first _FEW.
_WORK_PER_CLASS, _WORK_PER_COMPONENT, _FEW = 40, 15_000, 8
# `Space.ray` raises one component at a time by this fraction.
_SLACK = 0.02
# The figures of a candidate that `to_dict` and tables have in common.
_FIGURES = (
    "packs", "graphs_per_pack", "graphs_per_batch", "efficiency", "harmonic_mean", "slots", "empty_slots",
    "padded_slots",
)  # fmt: skip


def affordable(histogram: SizeHistogram, limits: Limits, most: int, bar: Any, plans: int = 1) -> int:
    """Return how many candidates of `plans` plans each may be tried, at most `most`; a plan is like one in `limits`."""
    # An effort of 0 still counts the work, and `first_plan` always finishes.
    effort = Effort(0)
    first_plan(histogram, limits, effort)
    # If this plan took long, show the bar now.
    bar.update(0)
    return max(_FEWEST, min(most, _WORK // (plans * effort.spent)))


def first_plan(histogram: SizeHistogram, limits: Limits, effort: Effort) -> Patterns:
    """Return the patterns of "auto" with an effort of 0; count the work in `effort`."""
    instance = as_instance(histogram, limits)
    more = max(0, len(instance.limits) - _FEW)
    effort.spend(_WORK_PER_CLASS * len(histogram) + _WORK_PER_COMPONENT * more)
    return first_patterns(histogram, limits, instance, quick_bound(instance), 0, effort)[0]


def in_threads(function: Callable[[_Item], _Result], items: Sequence[_Item], bar: Any) -> list[_Result]:
    """Return the result for each item, computed in threads; after an error or interrupt, queued items are skipped."""
    results = []
    with ThreadPoolExecutor(available_cores()) as threads:
        for result in threads.map(function, items):
            results.append(result)
            bar.update()
    return results


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Space:
    """A lattice of limits, with k components, that hold every graph.

    A "mean graph" is an imaginary graph of the mean size. Limits of s times the mean size hold s mean graphs.
    """

    components: tuple[str, ...]
    # Mean size of a graph.
    mean: tuple[float, ...]
    # Smallest limits that hold every graph; each limit is >= 1.
    smallest: Point
    # With these limits, one pack holds all graphs; larger limits change nothing.
    largest: Point
    # Limits are on the lattice if limit + reserve is a multiple of the step in each component. The reserve is 1 if the
    # multiple includes the reserved node of a padded shape, else 0.
    steps: tuple[int, ...]
    reserve: tuple[int, ...]

    @property
    def scale(self) -> float:
        """The smallest number s for which limits of s times the mean size hold every graph."""
        return self.scale_of(self.smallest)

    def limits(self, point: Point, cap: int | None = None) -> Limits:
        """Return the limits `point` as `Limits`, with a cap on graphs."""
        return Limits.from_components(dict(zip(self.components, point, strict=True)), cap)

    def rounded(self, values: Iterable[float]) -> Point:
        """Return the smallest limits of the lattice that are at least `values`, clipped to `smallest`..`largest`."""
        bounds = zip(values, self.smallest, self.largest, strict=True)
        whole = [max(least, min(math.ceil(value), most)) for value, least, most in bounds]
        columns = zip(whole, self.steps, self.reserve, strict=True)
        return tuple(-(-(v + reserve) // step) * step - reserve for v, step, reserve in columns)

    def rounded_down(self, values: Iterable[float]) -> Point:
        """Return the largest limits of the lattice that are at most `values`, or its lowest; maybe below `smallest`."""
        columns = zip(values, self.steps, self.reserve, strict=True)
        return tuple(max(1, max(1, math.floor(v + reserve) // step) * step - reserve) for v, step, reserve in columns)

    def ray(self, first: float, last: float, number: int) -> list[Point]:
        """Return up to `number` limits for `first` to `last` mean graphs; in some, one component is larger."""
        k = len(self.mean)
        points = []
        for turn, scale in enumerate(np.linspace(first, last, number).tolist()):
            # Of k + 1 successive turns, the first raises no component, and each of the others raises one.
            slack = [1 + _SLACK * (turn % (k + 1) == 1 + component) for component in range(k)]
            points.append(self.rounded(scale * mean * more for mean, more in zip(self.mean, slack, strict=True)))
        return list(dict.fromkeys(points))

    def neighbours(self, point: Point, scale: float) -> list[Point]:
        """Return O(k) limits about `scale` mean graphs from `point`: in one, all or two neighbouring components."""
        # moves[i]: distance in component i, at least one step.
        moves = [max(s, round(scale * m / s) * s) for m, s in zip(self.mean, self.steps, strict=True)]
        k, same = len(point), self.rounded(point)
        lower = self.rounded(value - move for value, move in zip(point, moves, strict=True))
        higher = self.rounded(value + move for value, move in zip(point, moves, strict=True))
        # A change is a dict: component -> its new limit.
        changes = [{i: moved[i]} for i in range(k) for moved in (lower, higher)]
        changes += [dict(enumerate(lower)), dict(enumerate(higher))] if k > 1 else []
        pairs = [(a, b) for a in range(k) for b in sorted({(a - 1) % k, (a + 1) % k} - {a})]
        changes += [{a: higher[a], b: lower[b]} for a, b in pairs]
        return [tuple(change.get(i, limit) for i, limit in enumerate(same)) for change in changes]

    def scale_of(self, point: Point) -> float:
        """Return how many mean graphs fit within `point`, in the component that has room for the most."""
        return max(self.multiples(point), default=0.0)

    def multiples(self, point: Point) -> list[float]:
        """Return for each component how many mean graphs fit within `point`; leave out components that are always 0."""
        return [value / mean for value, mean in zip(point, self.mean, strict=True) if mean > 0]


def space_of(histogram: SizeHistogram, multiple_of: int, others: SizeHistogram | None = None) -> Space:
    """Return the lattice of the limits that hold every graph of `histogram` and of `others`.

    The content of a pack is a multiple of the greatest common divisor of the sizes, so the limits are too. If
    `multiple_of` is above 1, the padded shape, including reserved nodes, is instead a multiple of it.
    """
    components = histogram.components
    nodes = components_of_kind(components, "nodes")
    divisors = np.maximum(np.gcd.reduce(histogram.sizes, axis=0), 1).tolist()
    totals = list(histogram.totals().values())
    steps = tuple(divisors) if multiple_of == 1 else (multiple_of,) * len(components)
    reserve = tuple(int(multiple_of > 1 and i in nodes) for i in range(len(components)))
    smallest = [max(1, value) for value in histogram.maxima().values()]
    if others is not None:
        smallest = list(map(max, smallest, others.maxima().values()))
    largest = tuple(map(max, smallest, totals))
    if sum(largest) + len(steps) * max(steps) > INT64_MAX:
        raise SearchError(
            f"the graphs have {sum(totals)} nodes and edges in total, too many for a search with 64-bit integers; "
            "search with fewer graphs."
        )
    mean = tuple(total / histogram.num_graphs for total in totals)
    return Space(components, mean, tuple(smallest), largest, steps, reserve)


@dataclass(frozen=True)
class Candidate:
    """Limits of one or several shapes that a search tried, and how many packs its plan within these limits has."""

    # `Limits`, or `Buckets` of several shapes, with the requested cap on graphs; and the number of packs of each shape.
    limits: Any
    packs_of_shapes: tuple[int, ...]
    num_graphs: int
    # Component -> sum over all graphs.
    totals: Mapping[str, int]
    packs_per_batch: int = 1

    @property
    def packs(self) -> int:
        """Number of packs P of the plan."""
        return sum(self.packs_of_shapes)

    @property
    def graphs_per_pack(self) -> float:
        """Mean number of graphs in a pack, N / P."""
        return self.num_graphs / self.packs

    @property
    def graphs_per_batch(self) -> float:
        """Mean number of graphs in a batch on a single rank; all packs of a batch have the same shape."""
        return self.num_graphs / sum(steps_of(self.packs_of_shapes, self.packs_per_batch, drop_last=False))

    @property
    def slots(self) -> int:
        """Slots of one pack of the largest shape: the sum of the limits."""
        return sum(all_of(self.limits)[-1].values)

    @property
    def epoch_slots(self) -> dict[str, int]:
        """Component -> slots of all packs, not counting reserved slots."""
        return slots_of(all_of(self.limits), self.packs_of_shapes)

    @property
    def padded_slots(self) -> int:
        """Node and edge slots of an epoch with one pack per batch, including a reserved node of each type per batch."""
        return padded_slots_of(self.epoch_slots, self.packs)

    @property
    def efficiency(self) -> dict[str, float]:
        """Component -> real content / slots of all packs, a fraction in [0, 1]."""
        return {name: self.totals[name] / slots for name, slots in self.epoch_slots.items()}

    @property
    def harmonic_mean(self) -> float:
        """Harmonic mean of the efficiencies; components that are 0 in all graphs do not count."""
        return harmonic_mean(self.efficiency)

    @property
    def empty_slots(self) -> dict[str, int]:
        """Component -> slots that hold padding in one epoch, not counting reserved slots."""
        return {name: slots - self.totals[name] for name, slots in self.epoch_slots.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        figures = {name: getattr(self, name) for name in _FIGURES}
        return {"limits": self.limits.to_dict(), "packs_of_shapes": list(self.packs_of_shapes), **figures}

    def _cells(self) -> dict[str, Any]:
        """Return a row of the table, column -> value."""
        shapes = all_of(self.limits)
        ends = [""] if len(shapes) == 1 else [f" {number}" for number in range(len(shapes))]
        limits = {f"limit{end}": each.maxima for end, each in zip(ends, shapes, strict=True)}
        packs = {f"packs{end}": number for end, number in zip(ends, self.packs_of_shapes, strict=True)}
        return {**limits, **packs, **{name: getattr(self, name) for name in _FIGURES}}


@dataclass(frozen=True, eq=False)
class LimitsSearch(Sequence[Candidate]):
    """The result of `search_limits`: a sequence of `Candidate`, by ascending limits; with several shapes, best first.

    `way` is the strategy ("smallest", "target", "graphs_per_batch" or "budget"), and `aim` its settings as plain data.
    """

    way: str
    aim: Mapping[str, Any]
    candidates: tuple[Candidate, ...] = field(repr=False)
    # Index of the candidate that the search advises.
    best_index: int
    # Each number of the padded shape of a pack is a multiple of this.
    multiple_of: int = 1
    # Number of graphs that were left out (oversize="drop").
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, index: Any) -> Any:
        return self.candidates[index]

    @property
    def best(self) -> Candidate:
        """The candidate that the search advises; see `search_limits` for the rule."""
        return self.candidates[self.best_index]

    @property
    def components(self) -> tuple[str, ...]:
        """Names of the components."""
        return tuple(self.best.totals)

    @property
    def packs_per_batch(self) -> int:
        """Number of packs in a batch, for `PackBatchSampler`; 1 unless the search was for `graphs_per_batch`."""
        return self.best.packs_per_batch

    @property
    def graphs_per_batch(self) -> float:
        """Mean number of graphs in a batch of `packs_per_batch` packs within the best limits."""
        return self.best.graphs_per_batch

    @property
    def pareto_indices(self) -> list[int]:
        """Indices of the candidates of the Pareto front, ascending in slots per pack and in harmonic mean."""
        front: list[int] = []
        means = [candidate.harmonic_mean for candidate in self]
        for index in sorted(range(len(self)), key=lambda index: (self[index].slots, -means[index])):
            if not front or means[index] > means[front[-1]]:
                front.append(index)
        return front

    @property
    def pareto(self) -> list[Candidate]:
        """Candidates of the Pareto front: no other candidate has a higher harmonic mean without more slots per pack."""
        return [self[index] for index in self.pareto_indices]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: the settings, the best candidate, the Pareto front, and all candidates."""
        return {
            "way": self.way, "aim": dict(self.aim), "multiple_of": self.multiple_of, "graphs": self.best.num_graphs,
            "dropped": self.dropped, "packs_per_batch": self.packs_per_batch,
            "graphs_per_batch": self.graphs_per_batch, "best": self.best.to_dict(),
            "pareto": [c.to_dict() for c in self.pareto], "candidates": [c.to_dict() for c in self],
        }  # fmt: skip

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the table as CSV text, one row for each candidate; if a path is given, also write the text to it.

        Columns: limits and packs of each shape; figures of `Candidate`; "pareto" and "best", 1 or 0.
        """
        front = self.pareto_indices
        ends = ({"pareto": int(row in front), "best": int(row == self.best_index)} for row in range(len(self)))
        text = csv_text([{**candidate._cells(), **end} for candidate, end in zip(self, ends, strict=True)])
        if path is not None:
            write_text(path, text)
        return text

    def __repr__(self) -> str:
        best = self.best
        of_shapes = zip(best.packs_of_shapes, all_of(best.limits), strict=True)
        packs = ", ".join(f"{number} packs of {limits!r}" for number, limits in of_shapes)
        fractions = ", ".join(f"{name} {value:.2%}" for name, value in best.efficiency.items())
        dropped = f", {self.dropped} graphs dropped" if self.dropped else ""
        return (
            f"LimitsSearch({self.way!r}, {len(self)} candidates, best: {packs}, graphs per batch "
            f"{self.graphs_per_batch:.1f}, packs per batch {self.packs_per_batch}, efficiency: {fractions}, "
            f"harmonic mean {best.harmonic_mean:.2%}{dropped})"
        )
