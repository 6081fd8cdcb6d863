"""The limits that a search chooses from: a lattice from the smallest that hold every graph upwards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgl_tuplepack._checks import INT64_MAX
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import matching_name
from dgl_tuplepack.sizes import components_of_kind

# The little more that one component gets on the ray.
_SLACK = 0.02

# Maxima of one pack, in the order of the components.
Row = tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """A lattice of limits, k components each.

    Parameters
    ----------
    components
        k names.
    mean
        Mean size of a graph.
    smallest
        Smallest limits, each >= 1; they hold every graph.
    largest
        Limits beyond which nothing can change: one pack holds all graphs.
    steps, reserve
        Limit plus reserve is a multiple of the step, in each component.
    multiples
        What was asked for: 1, or the same as the steps.
    """

    components: tuple[str, ...]
    mean: tuple[float, ...]
    smallest: Row
    largest: Row
    steps: Row
    reserve: Row
    multiples: Row

    @property
    def scale(self) -> float:
        """Mean graphs that limits along the mean size need to hold every graph; 0 where all sizes are 0."""
        return self.scale_of(self.smallest)

    def rounded(self, values: Iterable[float]) -> Row:
        """The smallest limits of the lattice that are at least `values`, up to where one pack holds all."""
        row = []
        bounds = zip(values, self.smallest, self.largest, self.steps, self.reserve, strict=True)
        for value, least, most, step, reserve in bounds:
            whole = max(least, min(math.ceil(value), most))
            row.append(-(-(whole + reserve) // step) * step - reserve)
        return tuple(row)

    def rounded_down(self, values: Iterable[float]) -> Row:
        """The largest limits of the lattice that are at most `values`, or one step; graphs may exceed them."""
        row = []
        for value, step, reserve in zip(values, self.steps, self.reserve, strict=True):
            row.append(max(1, math.floor(value + reserve) // step) * step - reserve)
        return tuple(max(1, v) for v in row)

    def ray(self, first: float, last: float, number: int) -> list[Row]:
        """Distinct limits that hold `first` to `last` mean graphs, `number` at most, rising.

        In turn none of the components, or one of them, gets a little more: where sizes are nearly proportional, packs
        come out fuller if one component alone decides.
        """
        k = len(self.mean)
        rows = []
        for turn, scale in enumerate(np.linspace(first, last, number).tolist()):
            slack = [1 + _SLACK * (turn % (k + 1) == 1 + component) for component in range(k)]
            rows.append(self.rounded(scale * m * more for m, more in zip(self.mean, slack, strict=True)))
        return list(dict.fromkeys(rows))

    def neighbours(self, row: Row, scale: float) -> list[Row]:
        """Limits around `row`, some `scale` mean graphs away: one component, all of them, or one against another."""
        moves = [max(s, round(scale * m / s) * s) for m, s in zip(self.mean, self.steps, strict=True)]
        k = len(row)
        directions = [tuple(sign * (i == j) for j in range(k)) for i in range(k) for sign in (-1, 1)]
        directions += [(-1,) * k, (1,) * k] if k > 1 else []
        directions += [tuple((j == a) - (j == b) for j in range(k)) for a in range(k) for b in range(k) if a != b]
        moved = ([v + d * m for v, d, m in zip(row, direction, moves, strict=True)] for direction in directions)
        return [self.rounded(values) for values in moved]

    def scale_of(self, row: Row) -> float:
        """Mean graphs that limits have room for, in the component with most room; 0 where all sizes are 0."""
        return max((v / m for v, m in zip(row, self.mean, strict=True) if m > 0), default=0.0)

    @property
    def finest(self) -> float:
        """Scale at which neighbours are one step of the lattice away in every component."""
        return min((s / m for s, m in zip(self.steps, self.mean, strict=True) if m > 0), default=1.0)


def by_component(what: str, given: object, components: Sequence[str], *, every: bool) -> dict[str, Any]:
    """What was given for each component, in their order; edge types go by their relation names too.

    Raises
    ------
    SearchError
        It is no mapping, or has other components, or not all of them where `every` one is needed.
    """
    named = given if isinstance(given, Mapping) else {}
    names = {component: matching_name(component, named) for component in components}
    found = {component: named[name] for component, name in names.items() if name is not None}
    unknown = [name for name in named if name not in names.values()]
    missing = [component for component in components if component not in found] if every else []
    wrong = ""
    if not named:
        wrong = f"they are {given!r:.200}"
    elif unknown:
        wrong = f"there is no {' and no '.join(map(repr, unknown)):.200}"
    elif missing:
        wrong = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing"
    if wrong:
        raise SearchError(
            f"{what} are given for each component by its name, but {wrong}; the components are {', '.join(components)}."
        )
    return found


def space_of(histogram: SizeHistogram, multiple_of: int) -> Space:
    """Limits worth trying for a histogram: every whole number that packs can fill, or multiples after padding.

    Sizes have a greatest common divisor, 2 for edges in both directions say; a limit that is no multiple of it can
    never be reached, so the one below is as good.
    """
    components = histogram.components
    nodes = components_of_kind(components, "nodes")
    divisors = np.maximum(np.gcd.reduce(histogram.sizes, axis=0), 1).tolist()
    totals = list(histogram.totals().values())
    steps = tuple(divisors) if multiple_of == 1 else (multiple_of,) * len(components)
    reserve = tuple(int(multiple_of > 1 and i in nodes) for i in range(len(components)))
    largest = tuple(max(1, total) for total in totals)
    if sum(largest) + len(steps) * max(steps) > INT64_MAX:
        raise SearchError(
            f"the graphs have {sum(totals)} slots in all, too many to search limits for with 64-bit integers; "
            "search with a part of the dataset."
        )
    return Space(
        components,
        tuple(total / histogram.num_graphs for total in totals),
        tuple(max(1, value) for value in histogram.maxima().values()),
        largest,
        steps,
        reserve,
        (multiple_of,) * len(components),
    )
