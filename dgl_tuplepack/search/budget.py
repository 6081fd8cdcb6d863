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
        self.budget = _number(budget)
        if not self.budget > 0:
            raise SearchError(
                f"the budget must be a finite number above 0, but is {budget!r}; give slots, or bytes together with "
                "costs (cost=, --cost)."
            )
        given = by_component("costs", dict.fromkeys(components, 1.0) if cost is None else cost, components, every=True)
        self.costs = tuple(_number(given[name]) for name in components)
        for name, price in zip(components, self.costs, strict=True):
            if not price >= 0:
                raise SearchError(f"the cost of {name} must be a finite number >= 0, but is {given[name]!r}.")
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
    starts = (smallest, *rule.filled(smallest), *rule.spent(smallest, plans // 2))
    explore(evaluation, space, _FIRST * scale, scale, plans, rule, starts)
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
        """Limits within the budget that may need fewer packs, by the bound on them, or as many with fewer slots."""
        allowed = [row for row in rows if self._price.allows(row)]
        if not evaluation.found:
            return allowed
        best = self.order(evaluation)[0]
        known = int(evaluation.packs[best]), int(evaluation.limits[best].sum())
        bounds = evaluation.bounds_on_packs(allowed).tolist()
        return [row for row, bound in zip(allowed, bounds, strict=True) if (bound, sum(row)) < known]

    def proposals(self, row: Row, scale: float) -> list[Row]:
        """Neighbours, and what spends the rest of the budget on one of their components."""
        near = self._space.neighbours(row, scale)
        return [full for neighbour in near for full in self.filled(neighbour)] + near

    def spent(self, smallest: Row, most: int) -> list[Row]:
        """Of two components, all limits of which none can grow within the budget, if there are at most so many."""
        if len(smallest) != 2:
            return []
        ends = [self._most(smallest, i) for i in range(2)]
        values = [range(v, end + 1, step) for v, end, step in zip(smallest, ends, self._space.steps, strict=True)]
        if min(map(len, values)) > most:
            return []
        if len(values[0]) <= len(values[1]):
            return [(value, self._most((value, smallest[1]), 1)) for value in values[0]]
        return [(self._most((smallest[0], value), 0), value) for value in values[1]]

    def filled(self, row: Row) -> list[Row]:
        """The same limits but for one component, which gets all that the others leave of the budget."""
        full = [self._most(row, i) for i in range(len(row))]
        least = self._space.smallest
        return [(*row[:i], full[i], *row[i + 1 :]) for i in range(len(row)) if full[i] >= least[i]]

    def _most(self, row: Row, i: int) -> int:
        """Largest limit of component `i` that the budget pays for beside the other limits of `row`."""
        space, price = self._space, self._price
        cost, everything = price.costs[i], space.rounded(space.largest)[i]
        others = price.of(row) - row[i] * cost
        most = min(everything, math.floor((price.budget - others) / cost)) if cost > 0 else everything
        step, reserve = space.steps[i], space.reserve[i]
        return (most + reserve) // step * step - reserve


def _number(value: object) -> float:
    """The value; not a number where it is no finite one."""
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    return number if math.isfinite(number) else math.nan
