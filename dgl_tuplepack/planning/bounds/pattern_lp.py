"""The pattern LP by column generation: a bound that is valid whenever it stops, and the patterns of its solution."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import highspy
import numpy as np

from dgl_tuplepack.planning.bounds.effort import Effort
from dgl_tuplepack.planning.bounds.instance import Instance
from dgl_tuplepack.planning.bounds.pricing import Priced, Pricing, Tabulated, lifted, price
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

# At most this many patterns are added in a round; more if there are many classes and packs are priced by a search.
_COLUMNS_PER_ROUND = 200
# Work of the simplex method for each row: in each slice of iterations, and in each iteration. With fewer rows than
# _MANY_ROWS, only a share of this work counts, at least _LEAST_SHARE.
_WORK_PER_ROW = 1500
_WORK_PER_PIVOT = 40
_MANY_ROWS, _LEAST_SHARE = 1000, 0.4
# Matrix entries that count as a unit of work: the dual simplex method looks at all entries in each iteration.
_ENTRIES_PER_WORK = 2
# At most this many simplex iterations are in a slice; the effort is checked after each slice.
_PIVOTS = 200
_TOLERANCE = 1e-7
# Values of the solver's option "simplex_strategy".
_DUAL, _PRIMAL = 1, 4


class PatternLP:
    """Minimise the number of packs, where patterns may repeat a fractional number of times and must hold every graph.

    The LP has a row for each size class and a column for each pattern found so far. It starts with the patterns
    `columns`, int64 ``[M, C]``, and patterns for the priced duals `centre` of the instance.

    Each round solves the LP from a warm start, prices its duals once or a few times, and adds patterns. The duals
    oscillate from round to round, so they are smoothed towards the duals of the best bound so far (`centre` at first).

    Source: Gilmore & Gomory 1961, "A linear programming approach to the cutting-stock problem"; smoothing: Wentges
    1997, "Weighted Dantzig-Wolfe decomposition for linear mixed-integer programming".
    """

    def __init__(self, columns: IntArray, centre: Priced, pricing: Pricing = price) -> None:
        self.instance = instance = centre.instance
        self._price = pricing
        # With pricing by a table, solutions will be rounded, which works better with the dual simplex method. Without a
        # table, speed matters more.
        self._hurry = pricing is not price
        self._at_once = max(_COLUMNS_PER_ROUND, len(instance.counts) // 2 if self._hurry else 0)
        self.bound = centre.bound
        self.value = math.inf
        self.converged = False
        self._repeats = np.zeros(0)
        self._columns: list[IntArray] = []
        self._centre = centre.scaled
        self._exact = centre.exact
        self._scale = _scale(centre.exact)
        self._solver = self._new_solver()
        # These patterns, one for each class, make the LP feasible: any graphs can be packed with them.
        self._add(np.diag(_most_alone(instance)))
        self._add(columns)
        # No pack is worth more than 1 under scaled duals; raise them a little, so that the best packs exceed 1.
        self._add(centre.contents(centre.scaled * (1 + 1e-6), self._at_once))

    def _new_solver(self) -> Any:
        """Return a solver without columns; a row for each class ensures that at least all of its graphs are packed."""
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("presolve", "off"),
            ("random_seed", 0),
            ("simplex_iteration_limit", _PIVOTS),
        ):
            solver.setOptionValue(option, value)
        rows = len(self.instance.counts)
        none = np.zeros(0)
        solver.addRows(
            rows, self.instance.counts / self._scale, np.full(rows, highspy.kHighsInf),
            0, np.zeros(rows, dtype=np.int32), none.astype(np.int32), none,
        )  # fmt: skip
        return solver

    def _add(self, columns: IntArray) -> None:
        """Add patterns, int64 ``[M, C]``, as columns of the LP."""
        if not len(columns):
            return
        # patterns[i], classes[i]: pattern and class of entry i, the i-th number that is not 0. Much faster than
        # `np.nonzero` of integers in 2-D.
        patterns, classes = np.divmod(np.flatnonzero(columns != 0), columns.shape[1])
        # starts[m]: first entry of pattern m.
        starts = np.searchsorted(patterns, np.arange(len(columns))).astype(np.int32)
        self._solver.addCols(
            len(columns), np.ones(len(columns)), np.zeros(len(columns)), np.full(len(columns), highspy.kHighsInf),
            len(patterns), starts, classes.astype(np.int32), columns[patterns, classes].astype(np.float64),
        )  # fmt: skip
        self._columns.extend(columns)
        # The last basis stays primal feasible, so the primal simplex method can continue from it.
        if self._hurry:
            self._solver.setOptionValue("simplex_strategy", _PRIMAL)

    def restrict(self, counts: IntArray) -> None:
        """Replace the counts of the instance, each >= 0; keep the columns, and the duals that smoothing uses."""
        self.instance = replace(self.instance, counts=counts)
        self._exact = float(counts @ self._centre)
        self._scale = _scale(self._exact)
        rows = np.arange(len(counts), dtype=np.int32)
        self._solver.changeRowsBounds(
            len(counts), rows, counts / self._scale, np.full(len(counts), highspy.kHighsInf)
        )  # fmt: skip
        # The last basis stays dual feasible, so the dual simplex method can continue from it.
        self._solver.setOptionValue("simplex_strategy", _DUAL)
        self.bound, self.value, self.converged = 0, math.inf, False

    def solve(self, target: int, effort: Effort, enough: int = 0) -> None:
        """Generate columns until the bound reaches `target` or cannot rise further, or the effort is used up.

        Also stop when a solution of the LP has at most `enough` packs, fractions of packs included.
        """
        rows = len(self.instance.counts)
        while not effort.exhausted and self.bound < target and not self.converged:
            if not self._solved(effort):
                break
            self.value = self._solver.getInfo().objective_function_value * self._scale
            if self.value <= enough + _TOLERANCE:
                break
            duals = np.clip(np.array(self._solver.getSolution().row_dual), 0.0, 1.0)
            # The best possible bound is the value of the LP, rounded up.
            if math.ceil(self.value - _TOLERANCE * max(1.0, self.value)) <= self.bound:
                self.converged = True
                break
            new = self._priced_columns(duals, effort)
            self.converged = not len(new)
            self._add(new)
            effort.spend(rows * len(new))

    def _solved(self, effort: Effort) -> bool:
        """Solve the LP of the columns so far, in slices of iterations; return False if it was not solved to the end."""
        rows = len(self.instance.counts)
        while True:
            self._solver.run()
            pivots = self._solver.getInfo().simplex_iteration_count
            share = min(max((rows / _MANY_ROWS) ** 3, _LEAST_SHARE), 1.0)
            effort.spend(int(share * rows * (_WORK_PER_ROW + _WORK_PER_PIVOT * max(0, pivots))))
            if not self._hurry:
                effort.spend(max(0, pivots) * self._solver.getNumNz() // _ENTRIES_PER_WORK)
            # Unless the slice ended at its limit of iterations, the LP is solved, or cannot be solved.
            if self._solver.getModelStatus() != highspy.HighsModelStatus.kIterationLimit:
                break
            if effort.exhausted:
                return False
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return False
        self._repeats = np.maximum(np.array(self._solver.getSolution().col_value) * self._scale, 0.0)
        return True

    def _priced_columns(self, duals: FloatArray, effort: Effort) -> IntArray:
        """Return columns that improve the LP, perhaps none; smooth the duals less and less until some are found."""
        for smoothing in (0.5, 0.2, 0.0):
            priced = self._price(self.instance, smoothing * self._centre + (1 - smoothing) * duals, effort)
            if priced.exact > self._exact:
                self._exact, self._centre = priced.exact, priced.scaled
            self.bound = max(self.bound, priced.bound)
            new = priced.contents(duals, self._at_once)
            if len(new):
                return new
        return new

    def solution(self) -> tuple[IntArray, FloatArray]:
        """Return the patterns that the last solution uses, int64 ``[M, C]``, and their repeats, float64 ``[M]``.

        M is 0 if no LP was solved.
        """
        used = np.flatnonzero(self._repeats > _TOLERANCE)
        columns = np.array([self._columns[at] for at in used.tolist()], dtype=np.int64)
        return columns.reshape(len(used), len(self.instance.counts)), self._repeats[used]


def _scale(packs: float) -> float:
    """Return a divisor for the counts in the solver, so that they are not too large for its absolute tolerances."""
    return max(1.0, packs / 1e4)


def starting_point(instance: Instance, effort: Effort) -> Tabulated:
    """Return the lifted duals (see `lifted`) with the best bound, after a trial for each component.

    In a trial, the dual of a class before lifting is its size in that component, divided by the limit.
    """
    shares = (instance.sizes / instance.limits).T
    return max((lifted(price(instance, duals, effort), effort) for duals in shares), key=lambda priced: priced.exact)


def _most_alone(instance: Instance) -> IntArray:
    """Return how many graphs of each class a pack of only this class can hold, int64 ``[C]``."""
    sizes = np.maximum(instance.sizes, 1)
    most = np.where(instance.sizes > 0, instance.limits // sizes, np.iinfo(np.int64).max).min(axis=1)
    return np.asarray(np.minimum(most, instance.counts), dtype=np.int64)
