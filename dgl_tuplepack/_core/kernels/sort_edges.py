"""Sort the edges of an assembled batch by destination, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.address import pointer_at
from dgl_tuplepack._core.kernels.assemble import ENDPOINTS, INDICES, INT64, ROWS, Fields
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntVector


@helper
def _order_by(destinations: int, dtype: Any, number: int, pointers: int, nodes: int, order: int) -> None:
    """Fill row pointers ``[nodes + 1]`` and edge order ``[number]`` by a counting sort, in time O(E + V).

    `destinations`, `pointers` and `order` are addresses. The order has the indices of the edges by destination; the
    pointers have the position of the first incoming edge of each node, then `number`.
    """
    ends, starts = carray(pointer_at(destinations, dtype), number), carray(pointer_at(pointers, np.int64), nodes + 1)
    sorted_edges = carray(pointer_at(order, np.int64), number)
    # Count the incoming edges of node v in starts[v + 1].
    starts[:] = 0
    for edge in range(number):
        starts[ends[edge] + 1] += 1
    for node in range(nodes):
        starts[node + 1] += starts[node]
    for edge in range(number):
        sorted_edges[starts[ends[edge]]] = edge
        starts[ends[edge]] += 1
    # Now starts[v] is the position of the first incoming edge of node v + 1.
    for node in range(nodes, 0, -1):
        starts[node] = starts[node - 1]
    starts[0] = 0


@helper
def _permute(out: int, dtype: Any, width: int, number: int, order: int) -> None:
    """Reorder the `number` rows at the address `out` in place: row ``order[j]`` becomes row j."""
    rows = carray(pointer_at(out, dtype), number * width)
    before, sorted_edges = rows.copy(), carray(pointer_at(order, np.int64), number)
    for j in range(number):
        edge = sorted_edges[j]
        for column in range(width):
            rows[j * width + column] = before[edge * width + column]


@helper
def _permute_rows(out: int, width: int, row_bytes: int, number: int, order: int) -> None:
    """Do the same as `_permute` for rows of any dtype, which have `width` values and `row_bytes` bytes."""
    # Rows are short, so this is faster than one memcpy per row.
    if row_bytes == 8 * width:
        _permute(out, np.int64, width, number, order)
    elif row_bytes == 4 * width:
        _permute(out, np.int32, width, number, order)
    else:
        _permute(out, np.uint8, row_bytes, number, order)


@helper
def _renumber_indices(
    memory: ConstIntVector, fields: Fields, slots: ConstIntVector, t: int, tied: int, number: int, order: int
) -> None:
    """Renumber all indices that point to the sorted edges of type `t`, or to nodes of type `tied` (-1: none).

    `number` is the number of edge slots, and `order` the address of the edge order; for the rest see `sort_edges`.
    """
    # positions[e]: the position of edge e after sorting; seldom needed.
    positions = np.empty(0, np.int64)
    for f in range(len(fields)):
        field = fields[f]
        kind, target = field["kind"], field["nodes"]
        to_edges, to_nodes = kind == INDICES and target == t, target == tied
        if to_edges or (to_nodes and kind in (INDICES, ENDPOINTS)):
            if len(positions) < number:
                positions = np.empty(number, np.int64)
                sorted_edges = carray(pointer_at(order, np.int64), number)
                for j in range(number):
                    positions[sorted_edges[j]] = j
            out, count = memory[field["stretch"]] + field["first"], slots[field["type"]] * field["width"]
            if field["dtype"] == INT64:
                _renumber(out, np.int64, count, positions)
            else:
                _renumber(out, np.int32, count, positions)


@helper
def _renumber(out: int, dtype: Any, number: int, positions: IntVector) -> None:
    """Replace each of the `number` indices at the address `out` by ``positions[index]``."""
    indices = carray(pointer_at(out, dtype), number)
    for j in range(number):
        indices[j] = positions[indices[j]]


@jit
def sort_edges(memory: ConstIntVector, fields: Fields, sorted_fields: ConstIntMatrix, slots: ConstIntVector) -> None:
    """Sort the edges of each type by destination; edges with the same destination keep their order.

    `memory`, `fields` and `slots` are those of `assemble`, which must have filled the batch. Each row of
    `sorted_fields` ``[T, 4]`` is for one edge type: the indices of its fields for destinations, row pointers and edge
    order, and the index of the node type of which each node is tied to an edge, or -1. Row pointers and edge order are
    filled; edges and tied nodes are sorted in place; endpoints and indices that point to them are renumbered. If edges
    of type A connect nodes tied to edges of type B, A must come after B; see `sorting_order` in
    ``graphs/relations.py``.
    """
    for row in range(len(sorted_fields)):
        dst_field, pointer_field = fields[sorted_fields[row, 0]], fields[sorted_fields[row, 1]]
        order_field, tied = fields[sorted_fields[row, 2]], sorted_fields[row, 3]
        t, number, nodes = dst_field["type"], slots[dst_field["type"]], slots[dst_field["nodes"]]
        destinations = memory[dst_field["stretch"]] + dst_field["first"]
        pointers = memory[pointer_field["stretch"]] + pointer_field["first"]
        order = memory[order_field["stretch"]] + order_field["first"]
        if dst_field["dtype"] == INT64:
            _order_by(destinations, np.int64, number, pointers, nodes, order)
        else:
            _order_by(destinations, np.int32, number, pointers, nodes, order)
        for f in range(len(fields)):
            field = fields[f]
            kind, of_nodes = field["kind"], field["type"] == tied
            if (field["type"] == t or of_nodes) and kind in (ENDPOINTS, ROWS, INDICES):
                out = memory[field["stretch"]] + field["first"]
                _permute_rows(out, field["width"], field["row_bytes"], number, order)
        _renumber_indices(memory, fields, slots, t, tied, number, order)
