"""Shape buckets: two to four limits in ascending order, for batches of several static shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX
from dgl_tuplepack.errors import LimitsError
from dgl_tuplepack.planning.limits import Limits, as_limits
from dgl_tuplepack.planning.sizes import BoolArray, GraphSizes, IntArray

FEWEST, MOST = 2, 4


class Buckets(tuple[Limits, ...]):
    """Two to four limits of the same components, smallest first; anything else raises `LimitsError`.

    From one shape to the next, the limits and the cap on graphs never fall, and at least one of them rises.

    Examples
    --------
    >>> Buckets([Limits(nodes=100, edges=220), Limits(nodes=222, edges=502)]).smallest_for([[101, 200]], [1]).tolist()
    [1]
    """

    __slots__ = ()

    def __new__(cls, limits: Sequence[Limits]) -> Buckets:
        """Check the limits."""
        buckets = super().__new__(cls, map(as_limits, limits))
        if not FEWEST <= len(buckets) <= MOST:
            raise LimitsError(
                f"shape buckets need {FEWEST} to {MOST} limits, but {len(buckets)} were given; give Limits for one "
                "shape, or [small, large]."
            )
        for lower, upper in pairwise(buckets):
            if lower.components != upper.components:
                raise LimitsError(
                    f"limits for {list(lower.components)} are followed by limits for {list(upper.components)}; give "
                    "the same components, in the same order, in all of them."
                )
            below, above = _bounds(lower), _bounds(upper)
            if below == above or any(a > b for a, b in zip(below, above, strict=True)):
                raise LimitsError(
                    f"limits of several shapes must ascend, but {lower!r} are followed by {upper!r}; no limit, and no "
                    "cap on graphs, may be lower than in the previous shape, and at least one must be larger."
                )
        return buckets

    def __getnewargs__(self) -> tuple[list[Limits]]:
        return ([*self],)

    @property
    def largest(self) -> Limits:
        """Limits of the last shape; every graph must be within them."""
        return self[-1]

    @property
    def components(self) -> tuple[str, ...]:
        """Names of the components."""
        return self.largest.components

    def aligned(self, components: Sequence[str]) -> Buckets:
        """Return the same limits, in the order of `components` and under these names; see `Limits.aligned`."""
        return Buckets([limits.aligned(components) for limits in self])

    def filled(self, components: Sequence[str], fill: Mapping[str, int]) -> Buckets:
        """Return aligned limits; missing limits of edges come from `fill`; see `Limits.filled`."""
        return Buckets([limits.filled(components, fill) for limits in self])

    def fits(self, sizes: GraphSizes | Any) -> BoolArray:
        """Return for each graph whether it alone is within the largest limits, bool ``[N]``."""
        return self.largest.fits(sizes)

    def check(self, sizes: GraphSizes | Any, counts: IntArray | None = None) -> None:
        """Raise an error if any graph alone exceeds the largest limits; see `Limits.check`."""
        self.largest.check(sizes, counts)

    def smallest_for(self, contents: Any, graphs: Any) -> IntArray:
        """Return the index of the smallest shape for each content ``[Q, k]`` of ``graphs[i]`` graphs, int64 ``[Q]``."""
        # Limits ascend, so the index of the smallest shape that fits is the number of shapes that are too small.
        held = np.column_stack([contents, graphs])
        shapes = np.zeros(len(held), dtype=np.int64)
        for limits in self[:-1]:
            shapes += (held > _bounds(limits)).any(axis=1)
        return shapes

    def to_dict(self) -> list[dict[str, Any]]:
        """Return plain data for JSON."""
        return [limits.to_dict() for limits in self]

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self))})"


Shapes = Limits | Sequence[Limits]


def as_shapes(limits: object) -> Limits | Buckets:
    """Return limits of one shape unchanged, and a list of limits as `Buckets`; raise LimitsError for anything else."""
    if isinstance(limits, Buckets):
        return limits
    if isinstance(limits, list | tuple) and any(isinstance(each, Limits) for each in limits):
        return Buckets(limits)
    return as_limits(limits)


def all_of(limits: Limits | Buckets) -> tuple[Limits, ...]:
    """Return the limits of every shape, smallest first."""
    return limits if isinstance(limits, Buckets) else (limits,)


def shapes_from_dict(document: Any) -> Limits | Buckets:
    """Make limits of one or several shapes from the result of their `to_dict`."""
    return Buckets(list(map(Limits.from_dict, document))) if isinstance(document, list) else Limits.from_dict(document)


def num_steps(packs: int, packs_per_step: int, drop_last: bool) -> int:
    """Return the number of steps of one shape in an epoch; `packs_per_step` counts the packs of all ranks."""
    return packs // packs_per_step if drop_last else -(-packs // packs_per_step)


def steps_of(packs: Sequence[int], packs_per_step: int, drop_last: bool) -> list[int]:
    """Return the number of steps of each shape; `packs` has the packs of each shape before `promotions`."""
    packs_after = [*packs]
    for shape, target, moved in promotions(packs, packs_per_step, drop_last):
        packs_after[shape] -= moved
        packs_after[target] += moved
    return [num_steps(number, packs_per_step, drop_last) for number in packs_after]


def promotions(packs: Sequence[int], packs_per_step: int, drop_last: bool) -> list[tuple[int, int, int]]:
    """Return moves of packs to larger shapes, in order: (shape, target shape, number of packs).

    Packs left over after the full steps of a shape move to the first larger shape whose last step has room for all of
    them. With `drop_last`, they move to the next larger shape, with one whole step more if the larger shapes together
    could not fill a step otherwise.
    """
    # Start at the smallest shape: packs that moved may move again.
    packs_now, moves = [*packs], []
    for shape in range(len(packs_now) - 1):
        rest, larger = packs_now[shape] % packs_per_step, range(shape + 1, len(packs_now))
        if drop_last:
            above = sum(packs_now[other] for other in larger)
            if 0 < above < packs_per_step - rest and packs_now[shape] >= packs_per_step:
                rest += packs_per_step
            fitting = [shape + 1]
        else:
            # Shapes whose last step has room for `rest` more packs.
            fitting = [other for other in larger if -packs_now[other] % packs_per_step >= rest]
        if rest and fitting:
            packs_now[fitting[0]] += rest
            moves.append((shape, fitting[0], rest))
    return moves


def _bounds(limits: Limits) -> tuple[int, ...]:
    """Return the limits, then the cap on graphs; a missing cap counts as INT64_MAX."""
    return *limits.values, INT64_MAX if limits.graphs is None else limits.graphs
