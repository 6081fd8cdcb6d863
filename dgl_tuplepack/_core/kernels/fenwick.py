"""Running sums over counts that change: the graph of any number, and taking graphs off, in O(log C).

Source: Fenwick 1994, "A new data structure for cumulative frequency tables".
"""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntVector, IntVector


@jit
def cumulated(counts: ConstIntVector) -> IntVector:
    """Tree of `counts` ``[C]``, int64 ``[C + 1]``."""
    tree = np.zeros(len(counts) + 1, dtype=np.int64)
    for position in range(1, len(tree)):
        tree[position] += counts[position - 1]
        parent = position + (position & -position)
        if parent < len(tree):
            tree[parent] += tree[position]
    return tree


@jit
def reduce(tree: IntVector, position: int, number: int) -> None:
    """Take `number` graphs off one class."""
    position += 1
    while position < len(tree):
        tree[position] -= number
        position += position & -position


@jit
def holder(tree: ConstIntVector, graph: int) -> tuple[int, int]:
    """Class of graph number `graph`, graphs being numbered class by class, and its number inside the class."""
    position, bit = 0, 1
    while 2 * bit < len(tree):
        bit *= 2
    while bit > 0:
        if position + bit < len(tree) and tree[position + bit] <= graph:
            position += bit
            graph -= tree[position]
        bit >>= 1
    return position, graph
