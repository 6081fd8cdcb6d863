"""Rows of many graphs, copied from the parts of a store into one array: helpers of the kernel `assemble`.

Graphs are scattered in memory, so the next graphs are prefetched. Loops run over slices from 0, which lets the
compiler use vector instructions.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from dgl_tuplepack._core.kernels._jit import helper
from dgl_tuplepack._core.kernels.address import AHEAD, copy_bytes, pointer_at, prefetch
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, array_type

# An array in a part of a store: its address, the bytes of a row, and the code of its dtype.
ARRAY = np.dtype([("address", np.int64), ("row_bytes", np.int64), ("dtype", np.int64)])
Arrays = Annotated[NDArray[Any], array_type(ARRAY, 1, const=True)]
UINT8, UINT16, INT16, INT32, INT64, OTHER = range(6)
# Codes by name of the dtype. Values of any other dtype are copied unchanged.
CODES = {"uint8": UINT8, "uint16": UINT16, "int16": INT16, "int32": INT32, "int64": INT64}


@helper
def _fetch(arrays: Arrays, parts: ConstIntVector, rows: ConstIntMatrix, i: int) -> None:
    if i < len(parts):
        array = arrays[parts[i]]
        prefetch(array["address"] + rows[0, i] * array["row_bytes"], rows[1, i] * array["row_bytes"])


@helper
def gather_rows(
    arrays: Arrays, parts: ConstIntVector, rows: ConstIntMatrix, width: int, out: int, row_bytes: int, dtype: int
) -> None:
    """Copy the `rows` of graphs (see `find_graphs`) to the address `out`, as rows of `width` values of `dtype`.

    Integers may be stored in a narrower dtype. The caller must check that the rows are inside their part, and that
    they fit into the batch.
    """
    # The first AHEAD turns only prefetch.
    for i in range(-AHEAD, len(parts)):
        _fetch(arrays, parts, rows, i + AHEAD)
        if i < 0:
            continue
        array = arrays[parts[i]]
        first, to = array["address"] + rows[0, i] * array["row_bytes"], out + rows[2, i] * row_bytes
        if array["dtype"] == dtype:
            copy_bytes(to, first, rows[1, i] * row_bytes)
        else:
            _widen(first, array["dtype"], to, dtype, rows[1, i] * width)


@helper
def _widen(address: int, stored: int, out: int, given: int, number: int) -> None:
    """Copy integers that the store narrowed to the dtype `stored`."""
    if given == INT64:
        if stored == UINT8:
            _convert(address, np.uint8, out, np.int64, number)
        elif stored == INT16:
            _convert(address, np.int16, out, np.int64, number)
        else:
            _convert(address, np.int32, out, np.int64, number)
    elif given == INT32:
        if stored == UINT8:
            _convert(address, np.uint8, out, np.int32, number)
        else:
            _convert(address, np.int16, out, np.int32, number)
    else:
        # The batch has int16, and this part was narrowed further than other parts.
        _convert(address, np.uint8, out, np.int16, number)


@helper
def _convert(address: int, stored: Any, out: int, given: Any, number: int) -> None:
    values, converted = carray(pointer_at(address, stored), number), carray(pointer_at(out, given), number)
    for j in range(number):
        converted[j] = values[j]


@helper
def gather_endpoints(
    arrays: Arrays,
    parts: ConstIntVector,
    edges: ConstIntMatrix,
    nodes: ConstIntMatrix,
    out: int,
    dtype: int,
    width: int,
) -> int:
    """Copy endpoints of graphs, each shifted to the nodes of its graph in the batch; `dtype` is int32 or int64.

    `edges` and `nodes` are the rows of the edges and of the nodes at that end. Other indices are copied in the same
    manner: a row of `edges` then has `width` of them, and `nodes` are the rows that they index. Indices come from a
    file, so they are checked: return -1 - i if graph i has one outside its nodes, else 0.
    """
    for i in range(-AHEAD, len(parts)):
        _fetch(arrays, parts, edges, i + AHEAD)
        if i < 0:
            continue
        array, number, before = arrays[parts[i]], edges[1, i] * width, edges[2, i] * width
        first = array["address"] + edges[0, i] * array["row_bytes"]
        if dtype == INT64:
            largest = _move_from(first, array["dtype"], out + before * 8, np.int64, number, nodes[2, i])
        else:
            largest = _move_from(first, array["dtype"], out + before * 4, np.int32, number, nodes[2, i])
        if number and largest >= np.uint64(nodes[1, i]):
            return -1 - i
    return 0


@helper
def _move_from(address: int, stored: int, out: int, given: Any, number: int, node: int) -> Any:
    """Copy endpoints of the dtype `stored`, each with `node` added; return the largest original endpoint.

    Endpoints are compared as unsigned integers, so that negative ones are too large as well.
    """
    if stored == UINT8:
        return _move(address, np.uint8, out, given, number, node)
    if stored == UINT16:
        return _move(address, np.uint16, out, given, number, node)
    if stored == INT16:
        return _move(address, np.int16, out, given, number, node)
    if stored == INT32:
        return _move(address, np.int32, out, given, number, node)
    return _move(address, np.int64, out, given, number, node)


@helper
def _move(address: int, stored: Any, out: int, given: Any, number: int, node: int) -> Any:
    values, moved = carray(pointer_at(address, stored), number), carray(pointer_at(out, given), number)
    largest = np.uint64(0)
    for j in range(number):
        local = np.int64(values[j])
        moved[j] = local + node
        largest = max(largest, np.uint64(local))
    return largest


@helper
def add_padding_ends(out: int, given: Any, number: int, real_nodes: int, node_slots: int, ahead: int) -> None:
    """Write the ends of m = `number` padding edges: end j is padding node ``(j * spare // m + ahead) % spare``.

    The ends are evenly spread, ascending except for the last, and reach every padding node if m >= spare. `ahead` is 0
    or 1. The caller must check that ``real_nodes + ahead < node_slots``.
    """
    # Compute j * spare // m without a division for each edge.
    ends, spare = carray(pointer_at(out, given), number), node_slots - real_nodes
    remainder, loop = 0, real_nodes
    for j in range(number):
        ends[j] = loop + ahead if loop + ahead < node_slots else real_nodes
        remainder += spare
        while remainder >= number:
            remainder -= number
            loop += 1


@helper
def repeat_index(out: int, dtype: int, value: int, number: int) -> None:
    """Write `value` as int32 or int64, `number` times."""
    if dtype == INT64:
        carray(pointer_at(out, np.int64), number)[:] = value
    else:
        carray(pointer_at(out, np.int32), number)[:] = value


@helper
def repeat_bytes(out: int, pattern: int, size: int, number: int) -> None:
    """Copy the `size` bytes at the address `pattern` to `out`, `number` times."""
    if number > 0 and size > 0:
        copy_bytes(out, pattern, size)
        done, total = size, size * number
        while done < total:
            step = min(done, total - done)
            copy_bytes(out + done, out, step)
            done += step
