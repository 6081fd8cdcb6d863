"""The limits that a search can try: a lattice of limits that hold every graph.

A "mean graph" is an imaginary graph that has the mean size. Limits of s times the mean size hold s mean graphs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.sizes import components_of_kind

# `Space.ray` raises one component at a time by this fraction.
_SLACK = 0.02

# Limits of one pack as plain integers, in the order of the components.
Point = tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """A lattice of limits with k components."""

    components: tuple[str, ...]
    # Mean size of a graph.
    mean: tuple[float, ...]
    num_graphs: int
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

    def rounded(self, values: Iterable[float]) -> Point:
        """Return the smallest limits of the lattice that are at least `values`.

        Values below `smallest` are first raised to `smallest`, and values above `largest` are lowered to `largest`.
        """
        point = []
        bounds = zip(values, self.smallest, self.largest, self.steps, self.reserve, strict=True)
        for value, least, most, step, reserve in bounds:
            whole = max(least, min(math.ceil(value), most))
            point.append(-(-(whole + reserve) // step) * step - reserve)
        return tuple(point)

    def rounded_down(self, values: Iterable[float]) -> Point:
        """Return the largest limits of the lattice that are at most `values`.

        Values below the lowest limit of the lattice are raised to it. The result may be below `smallest`.
        """
        columns = zip(values, self.steps, self.reserve, strict=True)
        return tuple(max(1, max(1, math.floor(v + reserve) // step) * step - reserve) for v, step, reserve in columns)

    def ray(self, first: float, last: float, number: int) -> list[Point]:
        """Return at most `number` distinct limits for `first` to `last` mean graphs, from few mean graphs to many.

        In some limits, one component is a little larger: if all sizes have nearly the same proportions, packs are
        fuller when only one component limits them.
        """
        k = len(self.mean)
        points = []
        for turn, scale in enumerate(np.linspace(first, last, number).tolist()):
            # Of k + 1 successive turns, the first raises no component, and each of the others raises one.
            slack = [1 + _SLACK * (turn % (k + 1) == 1 + component) for component in range(k)]
            points.append(self.rounded(scale * mean * more for mean, more in zip(self.mean, slack, strict=True)))
        return list(dict.fromkeys(points))

    def neighbours(self, point: Point, scale: float) -> list[Point]:
        """Return limits that differ from `point` by about `scale` mean graphs.

        They are larger or smaller in one component or in all components, or larger in one and smaller in the component
        before or after it (cyclically). These are O(k) limits; with up to three components, they are all such pairs.
        """
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
        near = []
        for change in changes:
            limits = list(same)
            for i, limit in change.items():
                limits[i] = limit
            near.append(tuple(limits))
        return near

    def graphs_in(self, point: Point) -> float:
        """Return how many mean graphs fit within `point`, in the component that has room for the fewest."""
        return min((v / m for v, m in zip(point, self.mean, strict=True) if m > 0), default=float(self.num_graphs))

    def scale_of(self, point: Point) -> float:
        """Return how many mean graphs fit within `point`, in the component that has room for the most."""
        return max((v / m for v, m in zip(point, self.mean, strict=True) if m > 0), default=0.0)

    @property
    def finest(self) -> float:
        """The `scale` at which `neighbours` are one step away in every component."""
        return min((s / m for s, m in zip(self.steps, self.mean, strict=True) if m > 0), default=1.0)


def space_of(histogram: SizeHistogram, multiple_of: int, others: SizeHistogram | None = None) -> Space:
    """Return the lattice of the limits that are worth trying.

    In each component, the content of a pack is a multiple of the greatest common divisor of the sizes. For example, the
    number of edges is even if each edge has a reverse edge. So the limits are multiples of this divisor. If
    `multiple_of` is above 1, the limits are instead all limits whose padded shape, including the reserved nodes, is a
    multiple of `multiple_of`.

    All these limits hold every graph of `histogram` and of `others`. Raise SearchError if slots could overflow int64.
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
    return Space(
        components,
        tuple(total / histogram.num_graphs for total in totals),
        histogram.num_graphs,
        tuple(smallest),
        largest,
        steps,
        reserve,
    )
