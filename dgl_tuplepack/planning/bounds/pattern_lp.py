"""The pattern LP, solved by column generation: it gives a lower bound, and patterns with fractional repeats.

The bound is valid even if column generation stops early. The dual of a size class is the worth of one of its graphs; a
pack is worth as much as its graphs together. *Pricing* finds the most valuable packs, and the bound that they give: a
pattern improves the LP if its packs are worth more than 1 under the duals of the LP's solution.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import highspy
import numpy as np

from dgl_tuplepack._core.checks import real_number
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.planning.bounds.instance import Instance
from dgl_tuplepack.planning.sizes import FloatArray, IntArray, exact_sum

# Units of work in an effort of 1. A unit takes about ten nanoseconds.
_WORK = 50_000_000
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
# Duals, at most 1 each, are rounded down to multiples of 2**-SHIFT.
SHIFT = 40
# Most cells of a table for pricing (128 MiB), and about how many cells one call of a kernel updates (in some 20 ms).
_MOST_CELLS, _SLICE_CELLS = 1 << 24, 1 << 26
# Cells updated in one unit of work: in a table of up to _LARGE cells, which fits into the cache, and in a larger one.
_LARGE, _CELLS_PER_WORK, _LARGE_CELLS_PER_WORK = 1 << 17, 64, 16
# The most steps of the search for packs that begin with one class, and the number of classes in a call of the kernel.
_MOST_STEPS, _CLASSES_PER_SLICE = 50_000, 64
# With fewer components than this number, a step takes as long as with this number.
_FEWEST_COMPONENTS = 3
# `linear_duals` returns packs that use more than 1 / _FULL of the limit of one component.
_FULL = 1.1
# 1 in units of 2**-SHIFT, plus a margin, since the duals of the LP's solution are inexact.
_ONE = (1 << SHIFT) + (1 << (SHIFT - 24))


class Effort:
    """The work that a search may still do; it is also used up when ``time.monotonic()`` reaches `deadline`.

    Work done in a portion is subtracted from the portion and from the whole effort. A search chooses its steps by its
    portion; the whole effort only decides when it stops. So a larger whole effort begins with the same steps.
    """

    def __init__(self, work: int, deadline: float | None = None, whole: Effort | None = None) -> None:
        self.left = work
        self._given = work
        self._deadline = deadline
        self._whole = whole

    def spend(self, work: int) -> None:
        """Subtract work that has been done."""
        self.left -= work
        if self._whole is not None:
            self._whole.spend(work)

    @property
    def spent(self) -> int:
        """Work done so far."""
        return self._given - self.left

    def affords(self, work: int) -> bool:
        """Return whether a step of `work` may begin; if the whole effort has less left, use it up, to stop."""
        whole = self if self._whole is None else self._whole
        if work > whole.left:
            whole.spend(whole.left)
        return not self.exhausted

    @property
    def exhausted(self) -> bool:
        """Whether the search should stop."""
        late = self._deadline is not None and time.monotonic() >= self._deadline
        return self.left <= 0 or late or (self._whole is not None and self._whole.exhausted)

    def portion(self, work: int) -> Effort:
        """Return a portion of this effort, with an allowance of `work`."""
        return Effort(work, whole=self)


def effort_of(effort: float, time_limit: float | None) -> Effort:
    """Return the work that arguments of `pack` allow from now on; raise MethodError unless both are numbers >= 0."""
    real_number("the effort", effort, least=0, hint="1 is the default of pack.", error=MethodError)
    if time_limit is None:
        return Effort(work_of(effort))
    hint = "give seconds, or None for no time limit."
    seconds = real_number("the time limit", time_limit, least=0, hint=hint, error=MethodError)
    return Effort(work_of(effort), time.monotonic() + seconds)


def work_of(effort: float) -> int:
    """Return the units of work of an effort."""
    return int(min(effort, 1e9) * _WORK)


class _Solver(highspy.Highs):
    """HiGHS without output. Its constructor may print a banner as soon as it sets the callbacks."""

    def enableCallbacks(self) -> None:
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]


class PatternLP:
    """Minimise the number of packs that hold all graphs, if a pattern may be repeated a fractional number of times.

    The LP has a row for each size class and a column for each pattern: at first `columns`, int64 ``[M, C]``, and the
    most valuable patterns under the duals `centre`. Each round solves it, and adds patterns that `pricing` finds. The
    duals oscillate, so they are moved towards the duals that prove the best bound so far.

    Source: Gilmore & Gomory 1961, "A linear programming approach to the cutting-stock problem"; smoothing: Wentges
    1997, "Weighted Dantzig-Wolfe decomposition for linear mixed-integer programming".
    """

    def __init__(self, columns: IntArray, centre: Priced, pricing: Pricing) -> None:
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
        fitting = instance.limits // np.maximum(instance.sizes, 1)
        alone = np.where(instance.sizes > 0, fitting, np.iinfo(np.int64).max).min(axis=1)
        self._add(np.diag(np.minimum(alone, instance.counts)))
        self._add(columns)
        # `contents` returns patterns worth more than 1; under the scaled duals, packs are worth at most 1.
        self._add(centre.contents(centre.scaled * (1 + 1e-6), self._at_once))

    def _new_solver(self) -> Any:
        """Return a solver without columns; the row of each class requires that all graphs of the class are packed."""
        solver: Any = _Solver()  # type: ignore[no-untyped-call]
        settings = {"threads": 1, "presolve": "off", "random_seed": 0, "simplex_iteration_limit": _PIVOTS}
        for option, value in {"output_flag": False, **settings}.items():
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
        rows, status = len(self.instance.counts), highspy.HighsModelStatus.kIterationLimit
        share = min(max((rows / _MANY_ROWS) ** 3, _LEAST_SHARE), 1.0)
        while status == highspy.HighsModelStatus.kIterationLimit:
            self._solver.run()
            pivots = max(0, self._solver.getInfo().simplex_iteration_count)
            effort.spend(int(share * rows * (_WORK_PER_ROW + _WORK_PER_PIVOT * pivots)))
            if not self._hurry:
                effort.spend(pivots * self._solver.getNumNz() // _ENTRIES_PER_WORK)
            status = self._solver.getModelStatus()
            if effort.exhausted:
                break
        if status == highspy.HighsModelStatus.kOptimal:
            self._repeats = np.maximum(np.array(self._solver.getSolution().col_value) * self._scale, 0.0)
        return bool(status == highspy.HighsModelStatus.kOptimal)

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


@dataclass(frozen=True, eq=False)
class Priced(ABC):
    """Duals of an instance, the bound that they prove, and patterns of high worth under them."""

    instance: Instance
    # Worth of a graph of each class in units of 2**-SHIFT, int64 [C].
    duals: IntArray
    # No pack is worth more than this number, in units of 2**-SHIFT; 0 if no such number is known.
    most: int

    @property
    def exact(self) -> float:
        """The lower bound that the duals prove, not rounded up; a float, so only approximate. 0 if `most` is 0."""
        return exact_sum(self.duals, self.instance.counts) / self.most if self.most else 0.0

    @property
    def bound(self) -> int:
        """The lower bound that the duals prove: the worth of all graphs / `most`, rounded up. 0 if `most` is 0."""
        return -(-exact_sum(self.duals, self.instance.counts) // self.most) if self.most else 0

    @property
    def scaled(self) -> FloatArray:
        """The duals, scaled so that no pack is worth more than 1, float64 ``[C]``."""
        return self.duals / max(self.most, 1)

    @abstractmethod
    def contents(self, duals: FloatArray, most: int) -> IntArray:
        """Return up to `most` patterns, int64 ``[M, C]``, that are worth more than 1 under `duals`, float64 ``[C]``.

        The patterns are among the best under this object's own duals.
        """


# A function that clips duals to 0..1, prices the duals, and subtracts its work from the effort: `price` or `by_search`.
Pricing = Callable[[Instance, FloatArray, Effort], Priced]


@dataclass(frozen=True, eq=False)
class Tabulated(Priced):
    """Duals priced by a table, which has the highest worth of graphs that fit into each room."""

    # One cell for each room (0..limit of each component), in row-major order; the last cell is for an empty pack.
    table: IntArray

    def contents(self, duals: FloatArray, most: int) -> IntArray:
        """Return the best packs, most valuable first; each pack has a class that no pack before it has."""
        from dgl_tuplepack._core.kernels.knapsack import best_content

        instance = self.instance
        # cells[c]: index in the table of a room as large as the size of class c. After one graph of class c is put into
        # an empty pack, the index of the room left is len(table) - 1 - cells[c].
        cells = np.ravel_multi_index(tuple(instance.sizes.T), tuple(instance.limits + 1)).astype(np.int64)
        # values[c]: the highest worth of a pack with at least one graph of class c.
        values = self.duals + self.table[len(self.table) - 1 - cells]
        covered = np.zeros(len(values), dtype=np.bool_)
        rows: list[IntArray] = []
        for with_class in np.argsort(-values, kind="stable").tolist():
            if len(rows) == most:
                break
            if not covered[with_class]:
                content = np.zeros(len(values), dtype=np.int64)
                best_content(self.table, instance.sizes, cells, self.duals, instance.limits, with_class, content)
                if float(content @ duals) > 1 + 1e-7:
                    covered |= content > 0
                    rows.append(content)
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(values))


def as_integers(duals: FloatArray) -> IntArray:
    """Return duals, clipped to 0..1, as integers in units of ``2**-SHIFT``, rounded down."""
    return np.floor(np.ldexp(np.clip(np.nan_to_num(duals), 0.0, 1.0), SHIFT)).astype(np.int64)


def pricing_work(instance: Instance) -> int:
    """Return the work of pricing an instance once by a table; 2**62, more than any effort, if no table can be used.

    The worth of a pack must fit int64. If no class is 0 in all components, a pack has at most sum(limits) graphs.
    """
    limits: list[int] = instance.limits.tolist()
    cells = math.prod(limit + 1 for limit in limits)
    if cells > _MOST_CELLS or not instance.sizes.any(axis=1).all() or sum(limits) >= 1 << (62 - SHIFT):
        return 1 << 62
    at_once = _CELLS_PER_WORK if cells <= _LARGE else _LARGE_CELLS_PER_WORK
    return cells * len(instance.counts) // at_once + cells


def price(instance: Instance, duals: FloatArray, effort: Effort) -> Tabulated:
    """Find the highest worth z of a pack by a table, in O(C cells); it proves the bound sum(counts * duals) / z.

    Source: Farley 1990, "A note on bounding a class of linear programming problems, including cutting stock problems",
    for the bound; Gilmore & Gomory 1961, see `PatternLP`, for the knapsack.
    """
    effort.spend(pricing_work(instance))
    values = as_integers(duals)
    table = np.zeros(math.prod(limit + 1 for limit in instance.limits.tolist()), dtype=np.int64)
    worthy = np.flatnonzero(values)
    _fill(table, instance.sizes[worthy], values[worthy], instance.limits, lift=False)
    return Tabulated(instance, values, max(int(table[-1]), 1), table)


def lifted(priced: Tabulated, effort: Effort) -> Tabulated:
    """Raise duals one by one, each as far as no pack becomes worth more than `priced.most`; time O(C cells).

    Source: sequential lifting as for cover inequalities (Padberg 1975, "A note on zero-one programming"). The result is
    a maximal dual feasible function in the sense of Carlier & Neron 2007, restricted to the sizes that occur.
    """
    instance, values, table = priced.instance, priced.duals.copy(), priced.table.copy()
    effort.spend(pricing_work(instance))
    order = np.argsort(-(instance.sizes / instance.limits).max(axis=1), kind="stable")
    raised = values[order]
    _fill(table, instance.sizes[order], raised, instance.limits, lift=True)
    values[order] = raised
    return Tabulated(instance, values, max(int(table[-1]), 1), table)


def _fill(table: IntArray, sizes: IntArray, values: IntArray, limits: IntArray, *, lift: bool) -> None:
    """Call the kernel for some classes at a time; with `lift`, it raises `values` in place."""
    from dgl_tuplepack._core.kernels.knapsack import fill_table

    at_once = max(1, _SLICE_CELLS // len(table))
    for first in range(0, len(sizes), at_once):
        fill_table(table, sizes, values, limits, lift, first, min(first + at_once, len(sizes)))


@dataclass(frozen=True, eq=False)
class Searched(Priced):
    """Duals priced by search, with the packs that are worth more than 1."""

    # Patterns worth more than 1, the most valuable first: graphs of each class, int64 [M, C].
    found: IntArray

    def contents(self, duals: FloatArray, most: int) -> IntArray:
        """Return the first `most` patterns in `found` that are worth more than 1 under `duals`, int64 ``[M, C]``."""
        return self.found[self.found @ duals > 1 + 1e-7][:most]


def by_search(instance: Instance, duals: FloatArray, effort: Effort) -> Searched:
    """Find the most valuable packs by a search, which suits packs of few graphs; the bound is as in `price`.

    A pack has at most as many graphs of a class as exist. The bound is 0 if the search for any class was cut off.
    """
    from dgl_tuplepack._core.kernels.pack_search import Classes, search_packs, tails

    values = as_integers(duals)
    worthy = np.flatnonzero(values)
    shares = (instance.sizes[worthy] / instance.limits).mean(axis=1)
    order = worthy[np.argsort(-(values[worthy] / shares), kind="stable")]
    sizes = np.ascontiguousarray(instance.sizes[order])
    classes = Classes(sizes, values[order], instance.counts[order], tails(sizes, values[order], instance.limits))
    # worth[i]: the highest worth of a pack that begins with class order[i]; not above _ONE if the search finds no pack.
    worth, complete = np.zeros(len(order), dtype=np.int64), True
    # The packs of worth above _ONE; their columns follow `order`.
    packs = [np.zeros((0, len(order)), dtype=np.int64)]
    for first in range(0, len(order), _CLASSES_PER_SLICE):
        if effort.exhausted:
            complete = False
            break
        last = min(first + _CLASSES_PER_SLICE, len(order))
        contents = np.zeros((last - first, len(order)), dtype=np.int64)
        # `steps` is negative if the search for one of these classes was cut off.
        steps = search_packs(classes, instance.limits, first, last, _ONE, _MOST_STEPS, contents, worth[first:last])
        effort.spend(abs(steps) * max(len(instance.limits), _FEWEST_COMPONENTS) // 2 + (last - first) * len(order))
        complete = complete and steps >= 0
        packs.append(contents[worth[first:last] > _ONE])
    best_first = np.argsort(-worth[worth > _ONE], kind="stable")
    found = np.zeros((len(best_first), len(values)), dtype=np.int64)
    found[:, order] = np.concatenate(packs)[best_first]
    most = max(_ONE, int(worth.max(initial=0))) if complete else 0
    return Searched(instance, values, most, found)


def linear_duals(instance: Instance, effort: Effort) -> Searched:
    """Return duals proportional to the sizes in one component; `found` has nearly full packs to start the LP with."""
    points = [instance.sizes[:, column] / limit for column, limit in enumerate(instance.limits.tolist())]
    best = max(points, key=lambda duals: float(duals @ instance.counts))
    found = by_search(instance, np.minimum(_FULL * best, 1.0), effort).found
    # Under the duals `best`, no pack is worth more than 1, since no pack exceeds the limit of the chosen component.
    return Searched(instance, as_integers(best), 1 << SHIFT, found)
