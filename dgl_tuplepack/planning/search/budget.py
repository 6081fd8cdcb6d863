"""Find the limits with the fewest packs within a budget of slots, or of bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.planning.search.evaluation import Evaluation
from dgl_tuplepack.planning.search.space import Point, Space
from dgl_tuplepack.planning.search.strategy import Strategy, explore
from dgl_tuplepack.planning.sizes import IntArray, components_of_kind

# The smallest multiple of the mean size that is tried, as a fraction of the multiple that spends the whole budget.
_FIRST = 0.8


@dataclass(frozen=True, kw_only=True)
class Budget(Strategy):
    """Advise the limits with the fewest packs (the most graphs per pack) whose padded shape is within the budget."""

    name = "budget"
    # Highest cost of the padded shape of one pack, its reserved nodes included.
    budget: float
    # Component -> cost of one slot, for every component; None: 1 for each.
    cost: Mapping[str, float] | None = None

    def largest_allowed(self, space: Space) -> Point:
        """Return the multiple of the mean size that spends the budget, as limits."""
        return space.rounded_down(self._scale(space) * mean for mean in space.mean)

    def search(self, evaluation: Evaluation, space: Space) -> None:
        """Explore limits that spend most of the budget."""
        smallest, scale = space.rounded(space.smallest), self._scale(space)
        if self._cost_of(space, smallest) > self.budget:
            named = dict(zip(space.components, smallest, strict=True))
            raise SearchError(
                f"the budget of {self.budget:g} is too small: the smallest limits that hold every graph are {named} "
                f"and cost {self._cost_of(space, smallest):g} with the reserved node; raise the budget, or drop the "
                "largest graphs (oversize='drop', --oversize drop)."
            )
        starts = (smallest, *self._filled(space, smallest), *self._spending_all(space, smallest, evaluation.plans // 2))
        explore(evaluation, space, self, _FIRST * scale, scale, starts)

    def order(self, evaluation: Evaluation) -> IntArray:
        """Sort candidates by their number of packs, then by slots per pack."""
        return evaluation.sorted_by(evaluation.packs, evaluation.slots)

    def promising(self, evaluation: Evaluation, space: Space, points: list[Point]) -> list[Point]:
        """Return the limits among `points` that are within the budget and may be worth a plan."""
        allowed = [point for point in points if self._cost_of(space, point) <= self.budget]
        return super().promising(evaluation, space, allowed)

    def may_improve(self, evaluation: Evaluation, points: list[Point]) -> Iterable[bool]:
        """Return, for each of `points`, whether its limits may be better than the best candidate."""
        best = self.order(evaluation)[0]
        best_so_far = int(evaluation.packs[best]), int(evaluation.slots[best])
        bounds = evaluation.bounds_on_packs(points).tolist()
        return [(bound, sum(point)) < best_so_far for point, bound in zip(points, bounds, strict=True)]

    def proposals(self, space: Space, point: Point, scale: float) -> list[Point]:
        """Return the neighbours of `point` (see `Space.neighbours`): first filled up by `_filled`, then unchanged."""
        near = space.neighbours(point, scale)
        return [full for neighbour in near for full in self._filled(space, neighbour)] + near

    def _costs(self, space: Space) -> tuple[list[float], float]:
        """Return the cost of one slot of each component, and the cost of the reserved nodes, one of each type."""
        costs = [1.0] * len(space.components) if self.cost is None else [float(cost) for cost in self.cost.values()]
        return costs, sum(costs[i] for i in components_of_kind(space.components, "nodes"))

    def _cost_of(self, space: Space, point: Point) -> float:
        """Return the cost of the padded shape of a pack with limits `point`."""
        costs, reserved = self._costs(space)
        return reserved + sum(limit * cost for limit, cost in zip(point, costs, strict=True))

    def _scale(self, space: Space) -> float:
        """Return the multiple of the mean size that spends the budget."""
        costs, reserved = self._costs(space)
        # each: cost of a graph of mean size. everything: multiple of the mean size at which one pack holds all graphs.
        each = sum(mean * cost for mean, cost in zip(space.mean, costs, strict=True))
        everything = max((v / m for v, m in zip(space.largest, space.mean, strict=True) if m > 0), default=1.0)
        return min(everything, max(0.0, self.budget - reserved) / each) if each > 0 else everything

    def _spending_all(self, space: Space, smallest: Point, most: int) -> list[Point]:
        """Return all limits of two components that spend the budget, so that neither limit can grow.

        The list is empty if there are not two components, or if there would be more than `most` limits.
        """
        if len(smallest) != 2:
            return []
        # Try each value of the component with fewer values, and spend the rest of the budget on the other component.
        # ends[i]: the highest limit of component i within the budget.
        ends = [self._full(space, smallest, i)[i] for i in range(2)]
        values = [range(first, end + 1, step) for first, end, step in zip(smallest, ends, space.steps, strict=True)]
        # fewer: index of the component with fewer values.
        fewer = int(len(values[1]) < len(values[0]))
        if len(values[fewer]) > most:
            return []
        points = [(smallest[0], value) if fewer else (value, smallest[1]) for value in values[fewer]]
        return [self._full(space, point, 1 - fewer) for point in points]

    def _filled(self, space: Space, point: Point) -> list[Point]:
        """Return, for each component, `point` with this component's limit as high as the budget allows."""
        full = [self._full(space, point, i) for i in range(len(point))]
        return [other for i, other in enumerate(full) if other[i] >= space.smallest[i]]

    def _full(self, space: Space, point: Point, i: int) -> Point:
        """Return `point` with the limit of component `i` as high as the budget allows, given the other limits."""
        cost, most = self._costs(space)[0][i], space.rounded(space.largest)[i]
        if cost > 0:
            others = self._cost_of(space, point) - point[i] * cost
            # If costs overflow to infinity or NaN, the rest of the budget counts as 0.
            most = math.floor(min(most, max(0.0, (self.budget - others) / cost)))
        # Round down: limit + reserve must be a multiple of the step.
        step, reserve = space.steps[i], space.reserve[i]
        return (*point[:i], (most + reserve) // step * step - reserve, *point[i + 1 :])
