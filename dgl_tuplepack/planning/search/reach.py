"""Search without a batch size or a budget: try limits up to a multiple of what the largest graph needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.planning.search.evaluation import Evaluation, harmonic_means
from dgl_tuplepack.planning.search.space import Point, Space
from dgl_tuplepack.planning.search.strategy import Strategy, explore
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

# The largest limits that are tried are REACH times the smallest multiple of the mean size that holds every graph.
REACH = 3.0
# The harmonic mean of the advised limits may be lower than the highest harmonic mean by this fraction.
_TOLERANCE = 0.005
# If `Space.scale` is below _NEARLY_EQUAL, limits must have room for _SEVERAL graphs of mean size.
_NEARLY_EQUAL, _SEVERAL = 1.5, 8


@dataclass(frozen=True, kw_only=True)
class Smallest(Strategy):
    """Advise the limits with the fewest slots per pack, among limits with nearly the highest harmonic mean.

    Source: Krell et al. 2022 (arXiv 2209.06354), section 2.5, which scales all limits together, then tunes each,
    and leaves a derivative-free search as future work.
    """

    name = "smallest"

    def search(self, evaluation: Evaluation, space: Space) -> None:
        """Explore the space; if sizes are nearly equal, try only limits that hold several graphs of mean size."""
        _explore(evaluation, _with_several_graphs(space, evaluation.cap), self)

    def order(self, evaluation: Evaluation) -> IntArray:
        """Alternate between two orders: by slots, candidates within the tolerance first; and by harmonic mean."""
        means, slots = evaluation.harmonic_means, evaluation.slots
        smallest = evaluation.sorted_by(means < _least(evaluation), slots, -means)
        highest = np.lexsort((slots, -means))
        both = np.stack([smallest, highest], axis=1).ravel().tolist()
        return np.array(list(dict.fromkeys(both)), dtype=np.int64)

    def promising(self, evaluation: Evaluation, space: Space, points: list[Point]) -> list[Point]:
        """Return the limits among `points` that are not too large (see `REACH`) and may be worth a plan."""
        most = space.rounded(REACH * space.scale * mean for mean in space.mean)
        inside = [point for point in points if all(limit <= top for limit, top in zip(point, most, strict=True))]
        return super().promising(evaluation, space, inside)

    def may_improve(self, evaluation: Evaluation, points: list[Point]) -> Iterable[bool]:
        """Return, for each of `points`, whether its harmonic mean can be at least `_least`."""
        return harmonic_means(evaluation.bounds(points)) >= _least(evaluation)


def _least(evaluation: Evaluation) -> float:
    """Return the lowest harmonic mean that is within the tolerance of the highest harmonic mean."""
    highest = float(evaluation.harmonic_means.max())
    return highest - _TOLERANCE * highest


def _with_several_graphs(space: Space, cap: int | None) -> Space:
    """Return the space; if sizes are nearly equal, keep only limits with room for several graphs of mean size.

    Packs of a single graph would be as full as other packs, but they would need a reserved node for each graph.
    """
    if space.scale >= _NEARLY_EQUAL:
        return space
    several = _SEVERAL if cap is None else min(_SEVERAL, cap)
    return replace(space, smallest=space.rounded(several * mean for mean in space.mean))


@dataclass(frozen=True, kw_only=True)
class Target(Strategy):
    """Advise the limits with the fewest slots per pack, among limits whose efficiencies reach a target."""

    name = "target"
    # Lowest harmonic mean of the efficiencies, in (0, 1]; or component -> lowest efficiency.
    target: float | Mapping[str, float]

    def search(self, evaluation: Evaluation, space: Space) -> None:
        """Explore the space; raise SearchError if no candidate reaches the target."""
        _explore(evaluation, space, self)
        best = int(self.order(evaluation)[0])
        if self._lacking(evaluation, evaluation.efficiency)[best] > 0:
            candidate = evaluation.candidate(list(evaluation.results)[best])
            each = self.target if isinstance(self.target, Mapping) else {"a harmonic mean of": self.target}
            target = ", ".join(f"{name} {value:g}" for name, value in each.items())
            reached = ", ".join(f"{name} {value:.4f}" for name, value in candidate.efficiency.items())
            raise SearchError(
                f"the target of {target} is out of reach: the best is {reached}, harmonic mean "
                f"{candidate.harmonic_mean:.4f}, at {candidate.limits!r} among limits up to {REACH:g} times what the "
                "largest graph needs; lower the target, or give graphs_per_batch or a budget instead."
            )

    def _lacking(self, evaluation: Evaluation, efficiency: FloatArray) -> FloatArray:
        """Return how far efficiencies ``[M, k]`` are below the target, ``[M]``; <= 0 if they reach it."""
        if not isinstance(self.target, Mapping):
            return self.target - harmonic_means(efficiency)
        least = np.array([self.target.get(name, 0.0) for name in evaluation.histogram.components])
        return np.asarray((least - efficiency).max(axis=1, where=least > 0, initial=-math.inf))

    def order(self, evaluation: Evaluation) -> IntArray:
        """Sort candidates that reach the target by slots per pack; then the others, the closest to the target first."""
        lacking = np.maximum(self._lacking(evaluation, evaluation.efficiency), 0)
        return evaluation.sorted_by(lacking, evaluation.slots, -evaluation.harmonic_means)

    def may_improve(self, evaluation: Evaluation, points: list[Point]) -> Iterable[bool]:
        """Return, for each of `points`, whether it can reach the target with fewer slots than the best candidate.

        If no candidate reaches the target yet: whether it can get as close to the target as the closest candidate.
        """
        lacking_so_far = self._lacking(evaluation, evaluation.efficiency)
        closest = max(0.0, float(lacking_so_far.min()))
        slots = int(evaluation.slots.min(where=lacking_so_far <= 0, initial=INT64_MAX))
        lacking = self._lacking(evaluation, evaluation.bounds(points)).tolist()
        return [less <= closest and sum(point) < slots for point, less in zip(points, lacking, strict=True)]


def _explore(evaluation: Evaluation, space: Space, strategy: Strategy) -> None:
    """Explore multiples of the mean size: from the smallest that holds every graph to `REACH` times as much.

    Smaller multiples are tried too, each with its components raised to what the largest graph needs.
    """
    below = space.ray(space.scale / REACH, space.scale, max(2, evaluation.plans // 25))
    explore(evaluation, space, strategy, space.scale, REACH * space.scale, (space.rounded(space.mean), *below))
