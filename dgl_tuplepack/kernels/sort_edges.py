"""Sort the edges of an assembled batch by destination, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from dgl_tuplepack.kernels._jit import helper, jit
from dgl_tuplepack.kernels.address import pointer_at
from dgl_tuplepack.kernels.assemble import ENDPOINTS, ROWS, Fields
from dgl_tuplepack.kernels.gather import INT64
from dgl_tuplepack.kernels.group_order import order_by_group
from dgl_tuplepack.kernels.types import ConstIntMatrix, ConstIntVector


@helper
def _order_by(destinations: int, dtype: Any, number: int, pointers: int, nodes: int, order: int) -> None:
    """Write the first edge of each node to the address `pointers`, and the sorted edges to `order`."""
    first, sorted_edges = carray(pointer_at(pointers, np.int64), nodes + 1), carray(pointer_at(order, np.int64), number)
    order_by_group(carray(pointer_at(destinations, dtype), number), nodes, first, sorted_edges)


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
    """Put row ``order[j]`` at place j, for all `number` rows at the address `out`."""
    # By whole values where that is safe: a call of memcpy for each row takes longer than the few bytes of most rows.
    if row_bytes == 8 * width:
        _permute(out, np.int64, width, number, order)
    elif row_bytes == 4 * width:
        _permute(out, np.int32, width, number, order)
    else:
        _permute(out, np.uint8, row_bytes, number, order)


@jit
def sort_edges(memory: ConstIntVector, fields: Fields, sorted_fields: ConstIntMatrix, slots: ConstIntVector) -> None:
    """Sort the edges of each type by destination; edges of one destination keep their order.

    `memory`, `fields` and `slots` are those of `assemble`, which has filled the batch and checked its endpoints. A row
    of `sorted_fields` ``[T, 3]`` has the indices of an edge type's fields of destinations, row pointers and edge order.
    The last two are filled here. The endpoints and features of the type are sorted in place.
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
        for f in range(len(fields)):
            field = fields[f]
            if field["type"] == t and (field["kind"] == ENDPOINTS or field["kind"] == ROWS):
                out = memory[field["stretch"]] + field["first"]
                _permute_rows(out, field["width"], field["row_bytes"], number, order)
