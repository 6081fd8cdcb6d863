"""Fenwick tree over the numbers of graphs of C classes: find the class of a graph, or remove graphs, in O(log C).

Source: Fenwick 1994, "A new data structure for cumulative frequency tables".
"""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import helper
from dgl_tuplepack._core.kernels.types import ConstIntVector, IntVector


def tree_of(counts: ConstIntVector) -> IntVector:
    """Return the Fenwick tree of `counts` ``[C]``, the number of graphs of each class, as int64 ``[C + 1]``."""
    sums = np.concatenate([[0], np.cumsum(counts)])
    nodes = np.arange(len(sums))
    # Tree node n is the sum of counts[m:n], where m is n without its lowest set bit.
    return sums - sums[nodes & (nodes - 1)]  # type: ignore[no-any-return]


@helper
def remove_graphs(tree: IntVector, position: int, number: int) -> None:
    """Remove `number` graphs from the class at `position`."""
    position += 1
    while position < len(tree):
        tree[position] -= number
        position += position & -position


@helper
def class_of(tree: ConstIntVector, graph: int) -> tuple[int, int]:
    """Return the class of the graph with the index `graph` (C if there is none), and the graph's index in the class.

    Indices run through the classes in order.
    """
    position, bit = 0, 1
    while 2 * bit < len(tree):
        bit *= 2
    while bit > 0:
        if position + bit < len(tree) and tree[position + bit] <= graph:
            position += bit
            graph -= tree[position]
        bit >>= 1
    return position, graph
