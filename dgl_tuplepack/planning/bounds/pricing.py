"""Pricing for the pattern LP: exact integer duals, the bound they prove, and patterns worth adding.

The dual of a size class is the worth of one of its graphs; a pack is worth as much as its graphs together.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dgl_tuplepack.planning.bounds.effort import Effort
from dgl_tuplepack.planning.bounds.instance import Instance
from dgl_tuplepack.planning.sizes import FloatArray, IntArray, exact_sum

# Duals, at most 1 each, are rounded down to multiples of 2**-SHIFT. Tables are used only if a pack holds fewer than
# 2**62 / 2**SHIFT graphs, so that int64 holds the worth of any pack.
SHIFT = 40

# Most cells of a table for pricing (128 MiB), and cells updated in one call of a kernel (some 20 ms).
MOST_CELLS = 1 << 24
_SLICE_CELLS = 1 << 26

# Cells updated for one unit of work: in a table of up to _LARGE cells, which fits into the processor's cache, and in a
# larger table.
_CELLS_PER_WORK, _LARGE_CELLS_PER_WORK = 64, 16
_LARGE = 1 << 17


@dataclass(frozen=True, eq=False)
class Priced(ABC):
    """Duals of an instance, the bound that they prove, and patterns of high worth under them."""

    instance: Instance
    # Worth of a graph of each class in units of 2**-SHIFT, int64 [C].
    duals: IntArray
    # The highest worth of any pack, in the same units; 0 if unknown.
    most: int

    @property
    def exact(self) -> float:
        """Bound on packs that the duals prove, not rounded up; a float, so only approximate. 0 if `most` is unknown."""
        return exact_sum(self.duals, self.instance.counts) / self.most if self.most else 0.0

    @property
    def bound(self) -> int:
        """Bound on packs that the duals prove: the worth of all graphs / `most`, rounded up. 0 if `most` is unknown."""
        return -(-exact_sum(self.duals, self.instance.counts) // self.most) if self.most else 0

    @property
    def scaled(self) -> FloatArray:
        """The duals, scaled so that the best pack is worth 1."""
        return self.duals / max(self.most, 1)

    @abstractmethod
    def contents(self, duals: FloatArray, most: int) -> IntArray:
        """Return up to `most` patterns worth more than 1 under `duals`, int64 ``[M, C]``."""


# A function that clips duals to 0..1, prices them and spends the work on the effort: `price` or `by_search`.
Pricing = Callable[[Instance, FloatArray, Effort], Priced]


@dataclass(frozen=True, eq=False)
class Tabulated(Priced):
    """Duals priced by a table, which has the highest worth of a pack for every room; see ``kernels.knapsack``."""

    # One cell for each room, in row-major order; the last cell is for the room of an empty pack.
    table: IntArray

    def contents(self, duals: FloatArray, most: int) -> IntArray:
        """Return the best packs, most valuable first; each has a class that no previous pack has."""
        from dgl_tuplepack._core.kernels.knapsack import best_content

        instance = self.instance
        # cells[c]: index in the table of the size of class c. In an empty pack, one graph of the class leaves the room
        # at index len(table) - 1 - cells[c].
        cells = np.ravel_multi_index(tuple(instance.sizes.T), tuple(instance.limits + 1)).astype(np.int64)
        # values[c]: the highest worth of a pack with at least one graph of class c.
        values = self.duals + self.table[len(self.table) - 1 - cells]
        covered = np.zeros(len(values), dtype=np.bool_)
        rows: list[IntArray] = []
        for with_class in np.argsort(-values, kind="stable").tolist():
            if len(rows) == most:
                break
            if not covered[with_class]:
                # The kernel writes a best pack with this class into `content`.
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
    """Return the work of pricing an instance once; more than any effort if the table would be too large.

    A table is also refused if a class has size 0, or if the worth of a pack might overflow int64. Without size 0, a
    pack has at most as many graphs as its limits add up to.
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
    """Find the highest worth of a pack by a table, and with it the bound that the duals prove.

    The duals are rounded down to integers; everything after that is exact. If no pack is worth more than z, P packs are
    worth at most P z, so ``P >= sum(counts * duals) / z``. Time O(C cells), with one cell for each room.

    Source: Farley 1990, "A note on bounding a class of linear programming problems, including cutting stock
    problems", for the bound; Gilmore & Gomory 1961, "A linear programming approach to the cutting-stock problem", for
    the knapsack.
    """
    from dgl_tuplepack._core.kernels.knapsack import fill_table

    effort.spend(pricing_work(instance))
    values = as_integers(duals)
    table = np.zeros(_cells(instance), dtype=np.int64)
    # Each call of the kernel adds the next `at_once` classes to the table. False: do not raise the values of classes.
    at_once = max(1, _SLICE_CELLS // len(table))
    worthy = np.flatnonzero(values)
    sizes, worth = np.ascontiguousarray(instance.sizes[worthy]), np.ascontiguousarray(values[worthy])
    for first in range(0, len(worthy), at_once):
        fill_table(table, sizes, worth, instance.limits, False, first, min(first + at_once, len(worthy)))
    return Tabulated(instance, values, max(int(table[-1]), 1), table)


def lifted(priced: Tabulated, effort: Effort) -> Tabulated:
    """Raise duals one by one, each as far as possible without making any pack worth more than the best pack.

    Classes with the largest share of a limit come first. If no pack can hold a class without waste, its dual then
    includes the worth of the waste. Time O(C cells), exact.

    Source: sequential lifting as for cover inequalities (Padberg 1975, "A note on zero-one programming"), here
    applied to the duals of the pattern LP; the result is a maximal dual feasible function in the sense of Carlier
    & Neron 2007, restricted to the sizes that occur.
    """
    from dgl_tuplepack._core.kernels.knapsack import fill_table

    instance, values, table = priced.instance, priced.duals.copy(), priced.table.copy()
    effort.spend(pricing_work(instance))
    order = np.argsort(-(instance.sizes / instance.limits).max(axis=1), kind="stable")
    sizes, lifted_values = instance.sizes[order], values[order]
    # Each call of the kernel raises (True) the values of the next `at_once` classes in place, and updates the table.
    at_once = max(1, _SLICE_CELLS // len(table))
    for first in range(0, len(order), at_once):
        fill_table(table, sizes, lifted_values, instance.limits, True, first, min(first + at_once, len(order)))
    values[order] = lifted_values
    return Tabulated(instance, values, max(int(table[-1]), 1), table)
