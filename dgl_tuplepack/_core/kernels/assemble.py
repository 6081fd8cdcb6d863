"""Assemble a batch, padded or not, in one pass over its tensors."""

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

# A field is one tensor of the batch. Types are numbered: node types first, then edge types; graphs are the last type.
_NAMES = (
    "kind",  # how it is filled: ROWS, ENDPOINTS, ...
    "type",  # index of the type of its rows; for PER_GRAPH: index of the type whose rows are counted
    "nodes",  # for ENDPOINTS and INDICES: index of the type that the values point to
    "stretch",  # index of the stretch that holds the field; a stretch is one piece of memory with several fields or one
    "first",  # first byte of the field in its stretch
    "width",  # values per row
    "row_bytes",  # bytes per row
    "dtype",  # code of the dtype; see `gather.py`
    "fill",  # address of the rows that fill the padding
    "fill_slots",  # number of the rows at `fill`: 1, or one row for each slot
    "shift",  # for ENDPOINTS: 1 to move this end of each padding edge to the next padding node, else 0
)
FIELD = np.dtype([(name, np.int64) for name in _NAMES])
Fields = Annotated[NDArray[Any], array_type(FIELD, 1, const=True)]
# For each field and segment: the `ARRAY` record of the stored array, [F, S].
ArrayTable = Annotated[NDArray[Any], array_type(ARRAY, 2, const=True)]
# The kinds of fields. ROWS, ENDPOINTS and INDICES are copied from stored arrays; all other kinds are computed.
# PER_GRAPH: the number of nodes or edges of each graph.
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
    """Fill a batch; `sort_edges` fills the kinds ROW_POINTERS and EDGE_ORDER.

    `memory` has the address of each stretch. `slots` ``[T + 1]`` has the number of slots of each of the T node types
    and edge types, then the number of graph slots; without padding, `slots` equals `totals`. `ids` ``[n]`` are the ids
    that the batch reports for the graphs. `segments`, `rows` and `totals` are the results of `find_graphs`. The caller
    must check that enough slots remain for padding.

    Return 0, or -1 - (f * n + i) if field f has an endpoint or index outside graph i; n is the number of graphs.
    """
    number = len(ids)
    for f in range(len(fields)):
        field = fields[f]
        # The field begins at the address `out`, its padding at `rest` (except for PER_GRAPH).
        kind, t, out = field["kind"], field["type"], memory[field["stretch"]] + field["first"]
        rest = out + totals[t] * field["row_bytes"]
        if kind == ROWS:
            gather_rows(arrays[f], segments, rows[t], field["width"], out, field["row_bytes"], field["dtype"])
            if field["fill_slots"] == 1:
                repeat_bytes(rest, field["fill"], field["row_bytes"], slots[t] - totals[t])
            else:
                first = field["fill"] + totals[t] * field["row_bytes"]
                copy_bytes(rest, first, (slots[t] - totals[t]) * field["row_bytes"])
        elif kind in (ENDPOINTS, INDICES):
            nodes, width, padding = field["nodes"], field["width"], slots[t] - totals[t]
            wrong = gather_endpoints(arrays[f], segments, rows[t], rows[nodes], out, field["dtype"], width)
            if wrong:
                return wrong - f * number
            # Padding indices point to the first padding row of the type `nodes`; the ends of padding edges are spread
            # over all padding rows of that type.
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
            # The last graph slot owns all padding rows.
            if kind == PER_GRAPH and number < slots[-1]:
                values[slots[-1] - 1] = slots[t] - totals[t]
    return 0
