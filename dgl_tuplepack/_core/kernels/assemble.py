"""Assemble a batch, padded or not, in one pass over its tensors.

The functions that copy rows of many graphs from their segments have these arguments: `rows` ``[3, n]`` has for each
graph its first row in its segment, its number of rows, and its first row in the batch; `segments` ``[n]`` has the index
of each graph's segment, and `arrays` ``[S]`` an `ARRAY` record for each segment. `out` is the address to write to;
`dtype` and `stored` are codes of dtypes, or numpy types. Inner loops count from 0 over a view of one graph's values, so
that the compiler can use vector instructions.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from dgl_tuplepack._core.kernels._jit import helper, jit
from dgl_tuplepack._core.kernels.address import AHEAD, copy_bytes, pointer_at, prefetch
from dgl_tuplepack._core.kernels.types import ConstIntCube, ConstIntMatrix, ConstIntVector, array_type

# An array in a segment: its address, the bytes per row, and the code of its dtype.
ARRAY = np.dtype([("address", np.int64), ("row_bytes", np.int64), ("dtype", np.int64)])
Arrays = Annotated[NDArray[Any], array_type(ARRAY, 1, const=True)]
UINT8, UINT16, INT16, INT32, INT64, OTHER = range(6)
# Values of any other dtype have the code OTHER, and are copied unchanged.
CODES = {"uint8": UINT8, "uint16": UINT16, "int16": INT16, "int32": INT32, "int64": INT64}
# A field is one tensor of the batch. Types are numbered: node types first, then edge types; graphs are the last type.
_NAMES = (
    "kind",  # how it is filled: ROWS, ENDPOINTS, ...
    "type",  # index of the type of its rows; for PER_GRAPH: index of the type whose rows are counted
    "nodes",  # for ENDPOINTS and INDICES: index of the type that the values point to
    "stretch",  # index of the stretch that holds the field; a stretch is one piece of memory with several fields or one
    "first",  # first byte of the field in its stretch
    "width",  # values per row
    "row_bytes",  # bytes per row
    "dtype",  # code of the dtype; see `CODES`
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
def _prefetch_rows(arrays: Arrays, segments: ConstIntVector, rows: ConstIntMatrix, i: int) -> None:
    """Prefetch the rows of graph i, if there is a graph i."""
    if i < len(segments):
        array = arrays[segments[i]]
        prefetch(array["address"] + rows[0, i] * array["row_bytes"], rows[1, i] * array["row_bytes"])


@helper
def gather_rows(
    arrays: Arrays, segments: ConstIntVector, rows: ConstIntMatrix, width: int, out: int, row_bytes: int, dtype: int
) -> None:
    """Copy the `rows` of all graphs to `out`, each as `width` values of `dtype`, `row_bytes` bytes together.

    Integers may be stored in a narrower dtype. The caller must check that the rows exist, and fit into the batch.
    """
    for i in range(-AHEAD, len(segments)):
        _prefetch_rows(arrays, segments, rows, i + AHEAD)
        if i < 0:
            continue
        array = arrays[segments[i]]
        address, target = array["address"] + rows[0, i] * array["row_bytes"], out + rows[2, i] * row_bytes
        if array["dtype"] == dtype:
            copy_bytes(target, address, rows[1, i] * row_bytes)
        else:
            _widen(address, array["dtype"], target, dtype, rows[1, i] * width)


@helper
def _widen(address: int, stored: int, out: int, dtype: int, number: int) -> None:
    """Convert `number` integers at `address` from the narrower dtype `stored` to `dtype`, and write them to `out`.

    `stored` is never UINT16, which only endpoints and bfloat16 values have.
    """
    if dtype == INT64:
        if stored == UINT8:
            _convert(address, np.uint8, out, np.int64, number)
        elif stored == INT16:
            _convert(address, np.int16, out, np.int64, number)
        else:
            _convert(address, np.int32, out, np.int64, number)
    elif dtype == INT32:
        if stored == UINT8:
            _convert(address, np.uint8, out, np.int32, number)
        else:
            _convert(address, np.int16, out, np.int32, number)
    else:
        # Only INT16 is left: another segment has int16, and this one has uint8.
        _convert(address, np.uint8, out, np.int16, number)


@helper
def _convert(address: int, stored: Any, out: int, dtype: Any, number: int) -> None:
    """Do the work of `_widen`, with `stored` and `dtype` as numpy types."""
    values, converted = carray(pointer_at(address, stored), number), carray(pointer_at(out, dtype), number)
    for j in range(number):
        converted[j] = values[j]


@helper
def gather_endpoints(
    arrays: Arrays, segments: ConstIntVector, edges: ConstIntMatrix, nodes: ConstIntMatrix, out: int, dtype: int,
    width: int
) -> int:  # fmt: skip
    """Copy endpoints as `dtype`, INT32 or INT64, and add to each the first node of its graph in the batch.

    `edges` and `nodes` are like `rows`: for the rows that hold `width` indices each, and the rows that these point to.
    Return -1 - i if an index in graph i is too large or negative, else 0.
    """
    for i in range(-AHEAD, len(segments)):
        _prefetch_rows(arrays, segments, edges, i + AHEAD)
        if i < 0:
            continue
        # Numbers of indices: of graph i, and of the graphs before it.
        array, number, before = arrays[segments[i]], edges[1, i] * width, edges[2, i] * width
        address = array["address"] + edges[0, i] * array["row_bytes"]
        if dtype == INT64:
            largest = _shift_from(address, array["dtype"], out + before * 8, np.int64, number, nodes[2, i])
        else:
            largest = _shift_from(address, array["dtype"], out + before * 4, np.int32, number, nodes[2, i])
        if number and largest >= np.uint64(nodes[1, i]):
            return -1 - i
    return 0


@helper
def _shift_from(address: int, stored: int, out: int, dtype: Any, number: int, node: int) -> Any:
    """Do the work of `_shift` for the code `stored`; return the largest original endpoint, negative as very large."""
    if stored == UINT8:
        return _shift(address, np.uint8, out, dtype, number, node)
    if stored == UINT16:
        return _shift(address, np.uint16, out, dtype, number, node)
    if stored == INT16:
        return _shift(address, np.int16, out, dtype, number, node)
    if stored == INT32:
        return _shift(address, np.int32, out, dtype, number, node)
    return _shift(address, np.int64, out, dtype, number, node)


@helper
def _shift(address: int, stored: Any, out: int, dtype: Any, number: int, node: int) -> Any:
    """Do the work of `_shift_from`, with `stored` as a numpy type."""
    values, shifted = carray(pointer_at(address, stored), number), carray(pointer_at(out, dtype), number)
    largest = np.uint64(0)
    for j in range(number):
        local = np.int64(values[j])
        shifted[j] = local + node
        largest = max(largest, np.uint64(local))
    return largest


@helper
def add_padding_ends(out: int, dtype: Any, number: int, real_nodes: int, node_slots: int, shift: int) -> None:
    """Write one endpoint of each of the `number` padding edges, evenly spread over the padding nodes.

    Edge j gets the padding node ``(j * spare // number + shift) % spare``, with ``spare = node_slots - real_nodes``.
    `shift`, below `spare`, is 1 for destinations if padding edges form chains.
    """
    # `node` is real_nodes + j * spare // number, computed without a division for each edge.
    ends, spare = carray(pointer_at(out, dtype), number), node_slots - real_nodes
    remainder, node = 0, real_nodes
    for j in range(number):
        ends[j] = node + shift if node + shift < node_slots else real_nodes
        remainder += spare
        while remainder >= number:
            remainder -= number
            node += 1


@helper
def repeat_value(out: int, dtype: Any, value: int, number: int) -> None:
    """Write `value` as `dtype` to the address `out`, `number` times in a row."""
    values = carray(pointer_at(out, dtype), number)
    for j in range(number):
        values[j] = value


@helper
def repeat_bytes(out: int, entry: int, size: int, number: int) -> None:
    """Copy the `size` bytes at the address `entry` to the address `out`, `number` times in a row."""
    # Each copy doubles the number of bytes already written.
    if number > 0 and size > 0:
        copy_bytes(out, entry, size)
        done, total = size, size * number
        while done < total:
            added = min(done, total - done)
            copy_bytes(out + done, out, added)
            done += added


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

    Return 0, or -1 - (f * n + i) if field f has an endpoint or index outside graph i.
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
