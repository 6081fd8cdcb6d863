"""The pattern LP, solved by column generation: it gives a lower bound, and patterns with fractional repeats.

The bound is valid even if column generation stops early.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import highspy
import numpy as np

from dgl_tuplepack.planning.bounds.instance import Instance
from dgl_tuplepack.planning.bounds.pricing import Effort, Priced, Pricing, Tabulated, lifted, price
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

# Most patterns that a round adds; pricing by a search may add more (see `_at_once`).
_COLUMNS_PER_ROUND = 200
# Work of the solver for each row of the LP: of each call, and of each simplex iteration. With fewer rows than
# _MANY_ROWS, only a fraction of this work counts, at least _LEAST_SHARE.
_WORK_PER_ROW, _WORK_PER_PIVOT = 1500, 40
_MANY_ROWS, _LEAST_SHARE = 1000, 0.4
# Matrix entries in one unit of work; each iteration of the dual simplex method looks at all entries.
_ENTRIES_PER_WORK = 2
# Most simplex iterations in one call of the solver; the effort is checked after each call.
_PIVOTS = 200
_TOLERANCE = 1e-7
# Values of the solver's option "simplex_strategy".
_DUAL, _PRIMAL = 1, 4


class _Solver(highspy.Highs):
    """HiGHS without output. Its constructor may print a banner as soon as it sets the callbacks."""

    def enableCallbacks(self) -> None:
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]


class PatternLP:
    """Minimise the number of packs that hold all graphs, if a pattern may be repeated a fractional number of times.

    The LP has a row for each size class and a column for each pattern: at first `columns` (graphs of each class, int64
    ``[M, C]``), and the most valuable patterns under the duals `centre`. Each round solves it, and adds patterns that
    `pricing` finds. The duals oscillate, so they are moved towards the duals that prove the best bound so far.

    Source: Gilmore & Gomory 1961, "A linear programming approach to the cutting-stock problem"; smoothing: Wentges
    1997, "Weighted Dantzig-Wolfe decomposition for linear mixed-integer programming".
    """

    def __init__(self, columns: IntArray, centre: Priced, pricing: Pricing = price) -> None:
        self.instance = instance = centre.instance
        self._price = pricing
        # With pricing by a table (`price`), callers round the solution, and solutions of the dual simplex method round
        # better; with pricing by a search, the primal method is faster.
        self._hurry = pricing is not price
        self._at_once = max(_COLUMNS_PER_ROUND, len(instance.counts) // 2 if self._hurry else 0)
        # The best lower bound so far; the value of the last solution, in packs; whether the bound cannot rise further.
        self.bound = centre.bound
        self.value = math.inf
        self.converged = False
        self._repeats = np.zeros(0)
        self._columns: list[IntArray] = []
        # The duals that prove the best bound so far, scaled; and this bound, not rounded up.
        self._centre = centre.scaled
        self._exact = centre.exact
        self._scale = _scale(centre.exact)
        self._solver = self._new_solver()
        # One pattern for each class, which holds graphs of this class only, makes the LP feasible.
        self._add(np.diag(_most_alone(instance)))
        self._add(columns)
        # `contents` returns patterns worth more than 1; under the scaled duals, packs are worth at most 1.
        self._add(centre.contents(centre.scaled * (1 + 1e-6), self._at_once))

    def _new_solver(self) -> Any:
        """Return a solver without columns; the row of each class requires that all graphs of the class are packed."""
        solver: Any = _Solver()  # type: ignore[no-untyped-call]
        options = {"output_flag": False, "threads": 1, "presolve": "off", "random_seed": 0}
        for option, value in (options | {"simplex_iteration_limit": _PIVOTS}).items():
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
        # Row and column of each number that is not 0; much faster than ``np.nonzero(columns)``.
        patterns, classes = np.divmod(np.flatnonzero(columns != 0), columns.shape[1])
        starts = np.searchsorted(patterns, np.arange(len(columns))).astype(np.int32)
        self._solver.addCols(
            len(columns), np.ones(len(columns)), np.zeros(len(columns)), np.full(len(columns), highspy.kHighsInf),
            len(patterns), starts, classes.astype(np.int32), columns[patterns, classes].astype(np.float64),
        )  # fmt: skip
        self._columns.extend(columns)
        # With new columns, the last basis stays primal feasible, so the primal simplex method can continue from it.
        if self._hurry:
            self._solver.setOptionValue("simplex_strategy", _PRIMAL)

    def restrict(self, counts: IntArray) -> None:
        """Set the instance's counts, int64 ``[C]``, >= 0; keep the columns, and the duals that prove the best bound."""
        self.instance = replace(self.instance, counts=counts)
        self._exact = float(counts @ self._centre)
        self._scale = _scale(self._exact)
        number = len(counts)
        rows, most = np.arange(number, dtype=np.int32), np.full(number, highspy.kHighsInf)
        self._solver.changeRowsBounds(number, rows, counts / self._scale, most)
        # With new counts, the last basis stays dual feasible, so the dual simplex method can continue from it.
        self._solver.setOptionValue("simplex_strategy", _DUAL)
        self.bound, self.value, self.converged = 0, math.inf, False

    def solve(self, target: int, effort: Effort, enough: int = 0) -> None:
        """Generate columns until the bound reaches `target` or cannot rise, or a solution has <= `enough` packs."""
        rows = len(self.instance.counts)
        while not effort.exhausted and self.bound < target and not self.converged:
            if not self._solved(effort):
                break
            self.value = self._solver.getInfo().objective_function_value * self._scale
            if self.value <= enough + _TOLERANCE:
                break
            duals = np.clip(np.array(self._solver.getSolution().row_dual), 0.0, 1.0)
            # No duals prove a bound above the value of the LP, rounded up.
            if math.ceil(self.value - _TOLERANCE * max(1.0, self.value)) <= self.bound:
                self.converged = True
                break
            new = self._priced_columns(duals, effort)
            self.converged = not len(new)
            self._add(new)
            effort.spend(rows * len(new))

    def _solved(self, effort: Effort) -> bool:
        """Solve the LP with its current columns, and store the solution; return False if no optimum was found."""
        status = self._run(effort)
        while status == highspy.HighsModelStatus.kIterationLimit and not effort.exhausted:
            status = self._run(effort)
        if status != highspy.HighsModelStatus.kOptimal:
            return False
        self._repeats = np.maximum(np.array(self._solver.getSolution().col_value) * self._scale, 0.0)
        return True

    def _run(self, effort: Effort) -> Any:
        """Call the solver once, for at most _PIVOTS simplex iterations, count its work, and return its status."""
        self._solver.run()
        rows = len(self.instance.counts)
        pivots = max(0, self._solver.getInfo().simplex_iteration_count)
        share = min(max((rows / _MANY_ROWS) ** 3, _LEAST_SHARE), 1.0)
        effort.spend(int(share * rows * (_WORK_PER_ROW + _WORK_PER_PIVOT * pivots)))
        if not self._hurry:
            effort.spend(pivots * self._solver.getNumNz() // _ENTRIES_PER_WORK)
        return self._solver.getModelStatus()

    def _priced_columns(self, duals: FloatArray, effort: Effort) -> IntArray:
        """Return patterns that improve the LP with these `duals`, int64 ``[M, C]``; raise the bound if possible."""
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
        """Return the patterns of the last solution, int64 ``[M, C]``, perhaps none, and their repeats ``[M]``."""
        used = np.flatnonzero(self._repeats > _TOLERANCE)
        columns = np.array([self._columns[at] for at in used.tolist()], dtype=np.int64)
        return columns.reshape(len(used), len(self.instance.counts)), self._repeats[used]


def _scale(packs: float) -> float:
    """Return a divisor for the counts that the solver gets; its absolute tolerances do not suit large counts."""
    return max(1.0, packs / 1e4)


def starting_point(instance: Instance, effort: Effort) -> Tabulated:
    """Return the lifted duals with the highest bound, from one trial for each component."""
    shares = (instance.sizes / instance.limits).T
    return max((lifted(price(instance, duals, effort), effort) for duals in shares), key=lambda priced: priced.exact)


def _most_alone(instance: Instance) -> IntArray:
    """Return for each class how many of its graphs fit into a pack without other graphs, int64 ``[C]``."""
    sizes = np.maximum(instance.sizes, 1)
    most = np.where(instance.sizes > 0, instance.limits // sizes, np.iinfo(np.int64).max).min(axis=1)
    return np.asarray(np.minimum(most, instance.counts), dtype=np.int64)
