"""Pricing for the pattern LP (see `pattern_lp`): find the most valuable packs, and the bound that they give.

The dual of a size class is the worth of one of its graphs; a pack is worth as much as its graphs together. A pattern
improves the LP if its packs are worth more than 1 under the duals of the LP's solution.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dgl_tuplepack._core.checks import real_number
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.planning.bounds.instance import Instance
from dgl_tuplepack.planning.sizes import FloatArray, IntArray, exact_sum

# Units of work in an effort of 1. A unit takes about ten nanoseconds.
_WORK = 50_000_000


class Effort:
    """The work that a search may still do.

    Work done in a portion is subtracted both from the portion and from the whole effort. A search chooses its steps by
    the work left in its portion; the whole effort only decides when the search stops. So with a larger whole effort, a
    search begins with the same steps. An effort is also used up when ``time.monotonic()`` reaches `deadline`.
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
        """Return whether a step of `work` may begin.

        If the whole effort has less work left than `work`, use up the whole effort, so that the search stops.
        """
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


def check_effort(effort: object, time_limit: object) -> None:
    """Raise MethodError unless both are finite numbers >= 0; a time limit may also be None."""
    real_number("the effort", effort, least=0, hint="1 is the default of pack.", error=MethodError)
    if time_limit is not None:
        hint = "give seconds, or None for no time limit."
        real_number("the time limit", time_limit, least=0, hint=hint, error=MethodError)


def work_of(effort: float) -> int:
    """Return the units of work of an effort."""
    return int(min(effort, 1e9) * _WORK)


# Duals, at most 1 each, are rounded down to multiples of 2**-SHIFT.
SHIFT = 40

# Most cells of a table for pricing (128 MiB), and about how many cells one call of a kernel updates (in some 20 ms).
MOST_CELLS = 1 << 24
_SLICE_CELLS = 1 << 26

# Cells updated in one unit of work: in a table of up to _LARGE cells, which fits into the cache, and in a larger one.
_CELLS_PER_WORK, _LARGE_CELLS_PER_WORK = 64, 16
_LARGE = 1 << 17


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
        """Return up to `most` patterns that are worth more than 1 under `duals`, float64 ``[C]``.

        Each row of the result, int64 ``[M, C]``, is a pattern: the number of graphs of each class. The patterns are
        among the best under this object's own duals.
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

    The worth of a pack must fit int64. If no class is 0 in all components, the sum of the limits is an upper bound on
    the graphs of a pack.
    """
    cells = _cells(instance)
    if cells > MOST_CELLS or not instance.sizes.any(axis=1).all() or sum(instance.limits.tolist()) >= 1 << (62 - SHIFT):
        return 1 << 62
    at_once = _CELLS_PER_WORK if cells <= _LARGE else _LARGE_CELLS_PER_WORK
    return cells * len(instance.counts) // at_once + cells


def _cells(instance: Instance) -> int:
    """Return the number of cells of the table: one for each room that a pack can have."""
    limits: list[int] = instance.limits.tolist()
    return math.prod(limit + 1 for limit in limits)


def price(instance: Instance, duals: FloatArray, effort: Effort) -> Tabulated:
    """Find the highest worth of a pack by a table; this worth gives the bound that the duals prove.

    If no pack is worth more than z, P packs can hold all graphs only if ``P >= sum(counts * duals) / z``.

    Time O(C cells).

    Source: Farley 1990, "A note on bounding a class of linear programming problems, including cutting stock
    problems", for the bound; Gilmore & Gomory 1961, "A linear programming approach to the cutting-stock problem", for
    the knapsack.
    """
    from dgl_tuplepack._core.kernels.knapsack import fill_table

    effort.spend(pricing_work(instance))
    values = as_integers(duals)
    table = np.zeros(_cells(instance), dtype=np.int64)
    at_once = max(1, _SLICE_CELLS // len(table))
    worthy = np.flatnonzero(values)
    sizes, worth = np.ascontiguousarray(instance.sizes[worthy]), np.ascontiguousarray(values[worthy])
    for first in range(0, len(worthy), at_once):
        # False: do not raise the values.
        fill_table(table, sizes, worth, instance.limits, False, first, min(first + at_once, len(worthy)))
    return Tabulated(instance, values, max(int(table[-1]), 1), table)


def lifted(priced: Tabulated, effort: Effort) -> Tabulated:
    """Raise duals one by one, each as far as possible without making any pack worth more than `priced.most`.

    Time O(C cells).

    Source: sequential lifting as for cover inequalities (Padberg 1975, "A note on zero-one programming"), here
    applied to the duals of the pattern LP; the result is a maximal dual feasible function in the sense of Carlier
    & Neron 2007, restricted to the sizes that occur.
    """
    from dgl_tuplepack._core.kernels.knapsack import fill_table

    instance, values, table = priced.instance, priced.duals.copy(), priced.table.copy()
    effort.spend(pricing_work(instance))
    order = np.argsort(-(instance.sizes / instance.limits).max(axis=1), kind="stable")
    sizes, lifted_values = instance.sizes[order], values[order]
    at_once = max(1, _SLICE_CELLS // len(table))
    for first in range(0, len(order), at_once):
        # True: raise the values in place.
        fill_table(table, sizes, lifted_values, instance.limits, True, first, min(first + at_once, len(order)))
    values[order] = lifted_values
    return Tabulated(instance, values, max(int(table[-1]), 1), table)
