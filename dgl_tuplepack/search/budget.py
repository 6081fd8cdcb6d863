"""The largest limits within a budget of slots, or of bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real

import numpy as np

from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.search.evaluation import Evaluation
from dgl_tuplepack.search.exploration import explore
from dgl_tuplepack.search.space import Row, Space, by_component
from dgl_tuplepack.sizes import IntArray, components_of_kind

# Of the budget, the least part that is looked at.
_FIRST = 0.8


class Price:
    """What the padded shape of one pack costs.

    Parameters
    ----------
    budget
        Most that it may cost, above 0.
    cost
        Component -> cost of one slot, >= 0; None: 1 for every slot.
    components
        k names.

    Raises
    ------
    SearchError
        The budget or a cost is no such number, or costs are for other components.
    """

    def __init__(self, budget: float, cost: Mapping[str, float] | None, components: tuple[str, ...]) -> None:
        self.budget = _number("the budget", budget)
        if self.budget == 0:
            raise SearchError(
                "the budget must be above 0, but is 0; give slots, or bytes together with costs (cost=, --cost)."
            )
        given = by_component("costs", dict.fromkeys(components, 1.0) if cost is None else cost, components, every=True)
        self.costs = tuple(_number(f"the cost of {name}", given[name]) for name in components)
        if not any(self.costs):
            raise SearchError("at least one cost must be above 0; without any, everything fits in one pack.")
        nodes = components_of_kind(components, "nodes")
        # One node of each type is reserved for padding.
        self.reserve = sum(self.costs[i] for i in nodes)

    def of(self, row: Row) -> float:
        """Cost of the padded shape of a pack with these limits."""
        return self.reserve + sum(v * c for v, c in zip(row, self.costs, strict=True))

    def allows(self, row: Row) -> bool:
        """Whether the budget is kept."""
        return self.of(row) <= self.budget

    def scale(self, space: Space) -> float:
        """Mean graphs that the budget pays for, at most those of one pack with all graphs."""
        each = sum(m * c for m, c in zip(space.mean, self.costs, strict=True))
        everything = max((v / m for v, m in zip(space.largest, space.mean, strict=True) if m > 0), default=1.0)
        return min(everything, max(0.0, self.budget - self.reserve) / each) if each > 0 else everything


def search_budget(evaluation: Evaluation, space: Space, price: Price, plans: int) -> int:
    """Search limits whose padded shape the budget pays for.

    Raises
    ------
    SearchError
        The budget does not pay for limits that hold the largest graph.
    """
    smallest = space.rounded(space.smallest)
    if not price.allows(smallest):
        named = dict(zip(space.components, smallest, strict=True))
        raise SearchError(
            f"the budget of {price.budget:g} is too small: the smallest limits that hold every graph are {named} and "
            f"cost {price.of(smallest):g} with the reserved node; raise it, or leave graphs out "
            "(oversize='drop', --oversize drop)."
        )
    rule = Affordable(space, price)
    scale = price.scale(space)
    explore(evaluation, space, _FIRST * scale, scale, plans, rule, (smallest, *rule.filled(smallest)))
    return int(rule.order(evaluation)[0])


class Affordable:
    """The fewest packs, that is the most graphs in each, within a budget; of equals the fewest slots."""

    def __init__(self, space: Space, price: Price) -> None:
        self._space, self._price = space, price

    def order(self, evaluation: Evaluation) -> IntArray:
        """Candidates by packs, then by slots per pack."""
        limits = evaluation.limits
        return np.lexsort((*limits.T[::-1], limits.sum(axis=1), evaluation.packs))

    def promising(self, evaluation: Evaluation, rows: list[Row]) -> list[Row]:
        """Limits within the budget."""
        return [row for row in rows if self._price.allows(row)]

    def proposals(self, row: Row, scale: float) -> list[Row]:
        """Neighbours, and what spends the rest of the budget on one of their components."""
        near = self._space.neighbours(row, scale)
        return [full for neighbour in near for full in self.filled(neighbour)] + near

    def filled(self, row: Row) -> list[Row]:
        """The same limits but for one component, which gets all that the others leave of the budget."""
        space, price = self._space, self._price
        rows = []
        for i, cost in enumerate(price.costs):
            others = price.of(row) - row[i] * cost
            most = math.floor((price.budget - others) / cost) if cost > 0 else space.largest[i]
            step, reserve = space.steps[i], space.reserve[i]
            fitting = (min(most, space.largest[i]) + reserve) // step * step - reserve
            if fitting >= space.smallest[i]:
                rows.append((*row[:i], fitting, *row[i + 1 :]))
        return rows


def _number(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        raise SearchError(f"{what} must be a finite number >= 0, but is {value!r}.")
    return float(value)
