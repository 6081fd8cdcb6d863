"""Running sums over changing counts: find the class of a graph by its index, or remove graphs, in O(log C).

Source: Fenwick 1994, "A new data structure for cumulative frequency tables".
"""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import helper
from dgl_tuplepack._core.kernels.types import ConstIntVector, IntVector


def tree_of(counts: ConstIntVector) -> IntVector:
    """Return the Fenwick tree of `counts` ``[C]``, int64 ``[C + 1]``."""
    sums = np.concatenate([[0], np.cumsum(counts)])
    nodes = np.arange(len(sums))
    # Node n is the sum of counts[m:n], where m is n without its lowest set bit.
    return sums - sums[nodes & (nodes - 1)]  # type: ignore[no-any-return]


@helper
def remove_graphs(tree: IntVector, position: int, number: int) -> None:
    """Remove `number` graphs from the class at `position`."""
    # Nodes are numbered from 1. The next node that covers this class is found by adding the lowest set bit.
    position += 1
    while position < len(tree):
        tree[position] -= number
        position += position & -position


@helper
def class_of(tree: ConstIntVector, graph: int) -> tuple[int, int]:
    """Return the class of the graph with the index `graph`, and the graph's index within the class.

    Indices run through the classes in order: first all graphs of class 0, then those of class 1, and so on.
    """
    # Go down the tree from its largest power of 2; skip each node whose graphs all come before this graph.
    position, bit = 0, 1
    while 2 * bit < len(tree):
        bit *= 2
    while bit > 0:
        if position + bit < len(tree) and tree[position + bit] <= graph:
            position += bit
            graph -= tree[position]
        bit >>= 1
    return position, graph
