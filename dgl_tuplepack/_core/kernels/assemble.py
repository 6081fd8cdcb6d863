"""Assemble a batch in one pass over its tensors, padded or not."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.address import copy_bytes, pointer_at
from dgl_tuplepack._core.kernels.gather import (
    ARRAY,
    INT64,
    add_padding_ends,
    gather_endpoints,
    gather_rows,
    repeat_bytes,
    repeat_value,
)
from dgl_tuplepack._core.kernels.types import ConstIntCube, ConstIntVector, array_type

# The properties of a field, which is one tensor of the batch.
_NAMES = (
    "kind",  # how it is filled: ROWS, ENDPOINTS, ...
    "type",  # index of the type of its rows (node type, edge type or graphs); for PER_GRAPH: of the rows it counts
    "nodes",  # for endpoints: index of the type of the nodes; for indices: of the type that they point to
    "stretch",  # index of the stretch of memory that holds the field
    "first",  # first byte of the field in that stretch
    "width",  # values per row
    "row_bytes",  # bytes per row
    "dtype",  # code of the dtype; see `gather.py`
    "fill",  # address of the rows that fill the padding
    "fill_slots",  # number of the rows at `fill`: 1, or one for each slot
    "shift",  # for endpoints: 1 to move the ends of padding edges to the next padding node, else 0
)
FIELD = np.dtype([(name, np.int64) for name in _NAMES])
Fields = Annotated[NDArray[Any], array_type(FIELD, 1, const=True)]
# The array of each field in each segment, [F, S].
ArrayTable = Annotated[NDArray[Any], array_type(ARRAY, 2, const=True)]
# The kinds of fields. PER_GRAPH: the number of nodes or edges of each graph.
ROWS, ENDPOINTS, MASK, PER_GRAPH, GRAPH_IDS, ROW_POINTERS, EDGE_ORDER, INDICES = range(8)


@jit
def assemble(
    memory: ConstIntVector,
    fields: Fields,
    arrays: ArrayTable,
    slots: ConstIntVector,
    ids: ConstIntVector,
    segments: ConstIntVector,
    rows: ConstIntCube,
    totals: ConstIntVector,
) -> int:
    """Fill a batch: the rows of field f come from the arrays ``arrays[f]``, one array for each segment.

    Row pointers and the order of edges are filled later, by `sort_edges`.

    `memory` has the addresses of the stretches of memory. `slots` ``[T + 1]`` has the padded numbers of rows of each
    type of nodes and edges, then of graphs; without padding, `slots` equals `totals`. `segments`, `rows` and `totals`
    are the results of `find_graphs`, and `ids` are the ids that the batch reports for the graphs. The caller must check
    that the totals leave enough slots for the padding that a padded batch needs.

    Return 0, or -1 - (f * n + i) if field f has an endpoint or index outside graph i; n is the number of graphs.
    """
    number = len(ids)
    for f in range(len(fields)):
        field = fields[f]
        # `out` is the address of the field; its padding begins at the address `rest`.
        kind, t, out = field["kind"], field["type"], memory[field["stretch"]] + field["first"]
        rest = out + totals[t] * field["row_bytes"]
        if kind == ROWS:
            gather_rows(arrays[f], segments, rows[t], field["width"], out, field["row_bytes"], field["dtype"])
            # Pad with one repeated row, or pad each slot with its own row of the fill.
            if field["fill_slots"] == 1:
                repeat_bytes(rest, field["fill"], field["row_bytes"], slots[t] - totals[t])
            else:
                first = field["fill"] + totals[t] * field["row_bytes"]
                copy_bytes(rest, first, (slots[t] - totals[t]) * field["row_bytes"])
        elif kind in (ENDPOINTS, INDICES):
            nodes, width, padding = field["nodes"], field["width"], slots[t] - totals[t]
            # 0, or -1 - i if an index is outside graph i.
            wrong = gather_endpoints(arrays[f], segments, rows[t], rows[nodes], out, field["dtype"], width)
            if wrong:
                return wrong - f * number
            # Padding indices point to the first padding row of the type `nodes`; the caller has left at least one.
            if kind == INDICES and field["dtype"] == INT64:
                repeat_value(rest, np.int64, totals[nodes], padding * width)
            elif kind == INDICES:
                repeat_value(rest, np.int32, totals[nodes], padding * width)
            elif field["dtype"] == INT64:
                add_padding_ends(rest, np.int64, padding, totals[nodes], slots[nodes], field["shift"])
            else:
                add_padding_ends(rest, np.int32, padding, totals[nodes], slots[nodes], field["shift"])
        elif kind == MASK:
            repeat_value(out, np.uint8, 1, totals[t])
            repeat_value(rest, np.uint8, 0, slots[t] - totals[t])
        elif kind in (PER_GRAPH, GRAPH_IDS):
            # rows[t, 1]: number of rows of each graph.
            values, of_graphs = carray(pointer_at(out, np.int64), slots[-1]), ids if kind == GRAPH_IDS else rows[t, 1]
            for i in range(number):
                values[i] = of_graphs[i]
            repeat_value(out + 8 * number, np.int64, -1 if kind == GRAPH_IDS else 0, slots[-1] - number)
            # All padding rows belong to the last graph slot.
            if kind == PER_GRAPH and number < slots[-1]:
                values[slots[-1] - 1] = slots[t] - totals[t]
    return 0
