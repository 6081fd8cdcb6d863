"""The fewest slots whose packs are about as full as packs get."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from dgl_tuplepack.search.evaluation import Evaluation, harmonic_means
from dgl_tuplepack.search.exploration import explore_to_reach
from dgl_tuplepack.search.space import Row, Space
from dgl_tuplepack.search.way import REACH, Way
from dgl_tuplepack.sizes import IntArray

# How far the harmonic mean may stay below the highest, as a fraction of it.
_TOLERANCE = 0.005
# Sizes are nearly equal if the largest graph needs fewer mean graphs than this; every pack then holds several graphs.
_NEARLY_EQUAL, _SEVERAL = 1.5, 8


@dataclass(frozen=True, kw_only=True)
class Smallest(Way):
    """Scale limits along the mean size, then refine around the best.

    Advise the fewest slots per pack among the candidates whose harmonic mean is close to the highest.

    Source: Krell et al. 2022 (arXiv 2209.06354), section 2.5, which scales all limits together, then tunes each,
    and leaves a derivative-free search as future work.
    """

    name = "smallest"

    def search(self, evaluation: Evaluation, space: Space) -> None:
        """Explore the space."""
        explore_to_reach(evaluation, _with_several_graphs(space, evaluation.cap), self)

    def order(self, evaluation: Evaluation) -> IntArray:
        """Alternate between the fewest slots within the tolerance and the highest harmonic means."""
        means, slots = evaluation.harmonic_means, evaluation.slots
        smallest = evaluation.sorted_by(means < _least(evaluation), slots, -means)
        highest = np.lexsort((slots, -means))
        both = np.stack([smallest, highest], axis=1).ravel().tolist()
        return np.array(list(dict.fromkeys(both)), dtype=np.int64)

    def promising(self, evaluation: Evaluation, space: Space, rows: list[Row]) -> list[Row]:
        """Return those of the limits that are within reach and may be worth a plan."""
        most = space.rounded(REACH * space.scale * mean for mean in space.mean)
        inside = [row for row in rows if all(v <= m for v, m in zip(row, most, strict=True))]
        return super().promising(evaluation, space, inside)

    def may_improve(self, evaluation: Evaluation, rows: list[Row]) -> Iterable[bool]:
        """Return whether the harmonic mean can come within the tolerance."""
        return harmonic_means(evaluation.bounds(rows)) >= _least(evaluation)


def _least(evaluation: Evaluation) -> float:
    """Return the lowest harmonic mean within the tolerance of the highest."""
    highest = float(evaluation.harmonic_means.max())
    return highest - _TOLERANCE * highest


def _with_several_graphs(space: Space, cap: int | None) -> Space:
    """If sizes are nearly equal, return the part of the space whose packs hold several graphs, if the cap allows.

    Packs of a single graph would be as full as any, and spend a reserved node on each graph.
    """
    if space.scale >= _NEARLY_EQUAL:
        return space
    several = _SEVERAL if cap is None else min(_SEVERAL, cap)
    return replace(space, smallest=space.rounded(several * mean for mean in space.mean))
