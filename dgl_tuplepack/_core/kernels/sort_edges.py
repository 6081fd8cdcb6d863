"""Sort the edges of an assembled batch by destination, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.address import pointer_at
from dgl_tuplepack._core.kernels.assemble import ENDPOINTS, INDICES, ROWS, Fields
from dgl_tuplepack._core.kernels.gather import INT64
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntVector


@helper
def _order_by(destinations: int, dtype: Any, number: int, pointers: int, nodes: int, order: int) -> None:
    """Fill row pointers and edge order by a counting sort; all three arrays are given by address. Time O(E + V)."""
    ends, starts = carray(pointer_at(destinations, dtype), number), carray(pointer_at(pointers, np.int64), nodes + 1)
    sorted_edges = carray(pointer_at(order, np.int64), number)
    starts[:] = 0
    for edge in range(number):
        starts[ends[edge] + 1] += 1
    for node in range(nodes):
        starts[node + 1] += starts[node]
    for edge in range(number):
        sorted_edges[starts[ends[edge]]] = edge
        starts[ends[edge]] += 1
    # Each entry has moved to the start of the next node's edges; shift them back.
    for node in range(nodes, 0, -1):
        starts[node] = starts[node - 1]
    starts[0] = 0


@helper
def _permute(out: int, dtype: Any, width: int, number: int, order: int) -> None:
    rows = carray(pointer_at(out, dtype), number * width)
    before, sorted_edges = rows.copy(), carray(pointer_at(order, np.int64), number)
    for j in range(number):
        edge = sorted_edges[j]
        for column in range(width):
            rows[j * width + column] = before[edge * width + column]


@helper
def _permute_rows(out: int, width: int, row_bytes: int, number: int, order: int) -> None:
    """Move row ``order[j]`` to position j, for all `number` rows at the address `out`."""
    # Rows are short, so copying value by value is faster than one memcpy per row.
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
    """Renumber all indices into the edges of type `t`, and into the nodes `tied` to these edges, after sorting."""
    # Usually there are no such indices; memory is only allocated if there are.
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
    indices = carray(pointer_at(out, dtype), number)
    for j in range(number):
        indices[j] = positions[indices[j]]


@jit
def sort_edges(memory: ConstIntVector, fields: Fields, sorted_fields: ConstIntMatrix, slots: ConstIntVector) -> None:
    """Sort the edges of each type by destination; edges of one destination keep their order.

    `memory`, `fields` and `slots` are the arguments of `assemble`, which must have filled the batch. Each row of
    `sorted_fields` ``[T, 4]`` is for one edge type: the indices of its fields for destinations, row pointers and edge
    order, and the node type tied to it, or -1. Nodes are tied if each of them stands for one of the edges.

    Row pointers and edge order are filled here. Edges, and the nodes tied to them, are sorted in place; endpoints and
    indices that point to them are renumbered. If edges connect tied nodes, their row must come after the row of the
    edges that the nodes stand for; see `sorting_order`.
    """
    for row in range(len(sorted_fields)):
        ends, first_edges, orders = (
            fields[sorted_fields[row, 0]],
            fields[sorted_fields[row, 1]],
            fields[sorted_fields[row, 2]],
        )
        t, number, nodes = ends["type"], slots[ends["type"]], slots[ends["nodes"]]
        destinations = memory[ends["stretch"]] + ends["first"]
        pointers = memory[first_edges["stretch"]] + first_edges["first"]
        order = memory[orders["stretch"]] + orders["first"]
        if ends["dtype"] == INT64:
            _order_by(destinations, np.int64, number, pointers, nodes, order)
        else:
            _order_by(destinations, np.int32, number, pointers, nodes, order)
        tied = sorted_fields[row, 3]
        for f in range(len(fields)):
            field = fields[f]
            kind, of_nodes = field["kind"], field["type"] == tied
            if (field["type"] == t or of_nodes) and kind in (ENDPOINTS, ROWS, INDICES):
                out = memory[field["stretch"]] + field["first"]
                _permute_rows(out, field["width"], field["row_bytes"], number, order)
        _renumber_indices(memory, fields, slots, t, tied, number, order)
