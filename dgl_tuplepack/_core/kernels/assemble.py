"""Assemble a batch, padded or not, in one pass over its tensors."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from dgl_tuplepack._core.kernels._jit import helper, jit
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


@helper
def _pad_indices(rest: int, field: Any, dtype: Any, rows: int, real_nodes: int, node_slots: int) -> None:
    """Write `rows` padding rows: indices of the first padding node, or ends spread over all padding nodes."""
    if field["kind"] == INDICES:
        repeat_value(rest, dtype, real_nodes, rows * field["width"])
    else:
        add_padding_ends(rest, dtype, rows, real_nodes, node_slots, field["shift"])


@helper
def _write_per_graph(out: int, values: ConstIntVector, padding: int, slots: int) -> None:
    """Write one value for each graph, then `padding` for each of the other graph slots."""
    written = carray(pointer_at(out, np.int64), len(values))
    for i in range(len(values)):
        written[i] = values[i]
    repeat_value(out + 8 * len(values), np.int64, padding, slots - len(values))


@jit
def assemble(
    memory: ConstIntVector, fields: Fields, arrays: ArrayTable, slots: ConstIntVector, ids: ConstIntVector,
    segments: ConstIntVector, rows: ConstIntCube, totals: ConstIntVector
) -> int:  # fmt: skip
    """Fill a batch; `sort_edges` fills the kinds ROW_POINTERS and EDGE_ORDER.

    `memory` has the address of each stretch. `slots` ``[T + 1]`` has the slots of each node type and edge type, then
    the graph slots; without padding, it equals `totals`. `ids` ``[n]`` are the ids that the batch reports. `segments`,
    `rows` and `totals` are the results of `find_graphs`. The caller must check that enough slots remain for padding.

    Return 0, or -1 - (f * n + i) if field f has an endpoint or index outside graph i; n is the number of graphs.
    """
    number, graph_slots = len(ids), slots[-1]
    for f in range(len(fields)):
        field = fields[f]
        kind, t, row_bytes, dtype = field["kind"], field["type"], field["row_bytes"], field["dtype"]
        real, padding = totals[t], slots[t] - totals[t]
        # The field begins at the address `out`, its padding at `rest` (except for PER_GRAPH).
        out = memory[field["stretch"]] + field["first"]
        rest = out + real * row_bytes
        if kind == ROWS:
            gather_rows(arrays[f], segments, rows[t], field["width"], out, row_bytes, dtype)
            if field["fill_slots"] == 1:
                repeat_bytes(rest, field["fill"], row_bytes, padding)
            else:
                copy_bytes(rest, field["fill"] + real * row_bytes, padding * row_bytes)
        elif kind in (ENDPOINTS, INDICES):
            nodes = field["nodes"]
            wrong = gather_endpoints(arrays[f], segments, rows[t], rows[nodes], out, dtype, field["width"])
            if wrong:
                return wrong - f * number
            if dtype == INT64:
                _pad_indices(rest, field, np.int64, padding, totals[nodes], slots[nodes])
            else:
                _pad_indices(rest, field, np.int32, padding, totals[nodes], slots[nodes])
        elif kind == MASK:
            repeat_value(out, np.uint8, 1, real)
            repeat_value(rest, np.uint8, 0, padding)
        elif kind == GRAPH_IDS:
            _write_per_graph(out, ids, -1, graph_slots)
        elif kind == PER_GRAPH:
            # rows[t, 1]: number of rows of each graph.
            _write_per_graph(out, rows[t, 1], 0, graph_slots)
            # The last graph slot owns all padding rows.
            if number < graph_slots:
                repeat_value(out + 8 * (graph_slots - 1), np.int64, padding, 1)
    return 0
