"""The limits that a search can try: a lattice that begins at the smallest limits that hold every graph.

A "mean graph" has the mean size; limits along the mean size hold the same number of mean graphs in each component.
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

# On a ray, one component at a time is larger by this fraction; see `Space.ray`.
_SLACK = 0.02

# A point of the lattice: maxima of one pack, in the order of the components.
Point = tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """A lattice of limits, k components each."""

    components: tuple[str, ...]
    # Mean size of a graph.
    mean: tuple[float, ...]
    # Number of graphs whose sizes have this mean.
    num_graphs: int
    # Smallest limits, each >= 1; they hold every graph.
    smallest: Point
    # With these limits, one pack holds all graphs; larger limits change nothing.
    largest: Point
    # In each component, limit + reserve is a multiple of the step.
    steps: tuple[int, ...]
    reserve: tuple[int, ...]

    @property
    def scale(self) -> float:
        """The smallest number s for which limits of s times the mean size hold every graph.

        It is 0 if all sizes are 0.
        """
        return self.scale_of(self.smallest)

    def rounded(self, values: Iterable[float]) -> Point:
        """Return the smallest limits of the lattice that are at least `values`.

        Values are first raised to `smallest` or lowered to `largest`.
        """
        point = []
        bounds = zip(values, self.smallest, self.largest, self.steps, self.reserve, strict=True)
        for value, least, most, step, reserve in bounds:
            whole = max(least, min(math.ceil(value), most))
            point.append(-(-(whole + reserve) // step) * step - reserve)
        return tuple(point)

    def rounded_down(self, values: Iterable[float]) -> Point:
        """Return the largest limits of the lattice that are at most `values`, but at least the first step.

        Some graphs may not fit within these limits.
        """
        columns = zip(values, self.steps, self.reserve, strict=True)
        return tuple(max(1, max(1, math.floor(v + reserve) // step) * step - reserve) for v, step, reserve in columns)

    def ray(self, first: float, last: float, number: int) -> list[Point]:
        """Return at most `number` distinct limits that hold `first` to `last` mean graphs, in ascending order.

        Exact multiples of the mean size alternate with multiples in which one component is a little larger: if sizes
        are nearly proportional, packs are fuller when only one component is binding.
        """
        k = len(self.mean)
        points = []
        for turn, scale in enumerate(np.linspace(first, last, number).tolist()):
            # slack[i]: factor of component i. Of k + 1 successive turns, the first raises no component, and each of the
            # others raises one.
            slack = [1 + _SLACK * (turn % (k + 1) == 1 + component) for component in range(k)]
            points.append(self.rounded(scale * mean * more for mean, more in zip(self.mean, slack, strict=True)))
        return list(dict.fromkeys(points))

    def neighbours(self, point: Point, scale: float) -> list[Point]:
        """Return limits about `scale` mean graphs away from `point`.

        They are larger or smaller in one component or in all, or larger in one component and smaller in another.
        """
        # moves[i]: distance in component i, at least a step. A direction has -1, 0 or 1 for each component.
        moves = [max(s, round(scale * m / s) * s) for m, s in zip(self.mean, self.steps, strict=True)]
        k = len(point)
        directions = [tuple(sign * (i == j) for j in range(k)) for i in range(k) for sign in (-1, 1)]
        directions += [(-1,) * k, (1,) * k] if k > 1 else []
        directions += [tuple((j == a) - (j == b) for j in range(k)) for a in range(k) for b in range(k) if a != b]
        moved = ([v + d * m for v, d, m in zip(point, direction, moves, strict=True)] for direction in directions)
        return [self.rounded(values) for values in moved]

    def graphs_in(self, point: Point) -> float:
        """Return how many mean graphs fit within limits, by the component with the least room.

        If all sizes are 0, return the number of all graphs.
        """
        return min((v / m for v, m in zip(point, self.mean, strict=True) if m > 0), default=float(self.num_graphs))

    def scale_of(self, point: Point) -> float:
        """Return how many mean graphs fit within limits, by the component with the most room; 0 if all sizes are 0."""
        return max((v / m for v, m in zip(point, self.mean, strict=True) if m > 0), default=0.0)

    @property
    def finest(self) -> float:
        """Largest `scale` for which `neighbours` are only one step of the lattice away in every component."""
        return min((s / m for s, m in zip(self.steps, self.mean, strict=True) if m > 0), default=1.0)


def space_of(histogram: SizeHistogram, multiple_of: int, others: SizeHistogram | None = None) -> Space:
    """Return the limits worth trying: limits that packs can fill exactly.

    If `multiple_of` is above 1, return instead the limits whose padded shape, including the reserved nodes, is a
    multiple of it. All these limits hold every graph of the histogram, and every graph of `others`, which are not
    packed. The content of a pack is a multiple of the greatest common divisor of the sizes (2 for edges in both
    directions, for example), so any other limit is only as good as the next lower multiple. Raise SearchError if slots
    overflow int64.
    """
    components = histogram.components
    nodes = components_of_kind(components, "nodes")
    divisors = np.maximum(np.gcd.reduce(histogram.sizes, axis=0), 1).tolist()
    totals = list(histogram.totals().values())
    steps = tuple(divisors) if multiple_of == 1 else (multiple_of,) * len(components)
    # The reserved node of each type counts towards a padded shape, so it matters only for multiples.
    reserve = tuple(int(multiple_of > 1 and i in nodes) for i in range(len(components)))
    smallest = [max(1, value) for value in histogram.maxima().values()]
    if others is not None:
        smallest = list(map(max, smallest, others.maxima().values()))
    largest = tuple(map(max, smallest, totals))
    if sum(largest) + len(steps) * max(steps) > INT64_MAX:
        raise SearchError(
            f"the graphs have {sum(totals)} slots in total, too many for a search with 64-bit integers; "
            "search with a part of the dataset."
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
