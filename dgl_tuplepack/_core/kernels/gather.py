"""Copy the rows of many graphs from their segments into one array, for the kernel `assemble`.

Inner loops count from 0 over a view of one graph's values, so that the compiler can use vector instructions.

The argument `rows` ``[3, n]`` has three numbers for each graph: its first row in its segment, its number of rows, and
its first row in the batch. `segments` ``[n]`` has the index of each graph's segment, and `arrays` ``[S]`` an `ARRAY`
record for each segment. `out` is the address to write to; `dtype` and `stored` are codes of dtypes, or numpy types.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from dgl_tuplepack._core.kernels._jit import helper
from dgl_tuplepack._core.kernels.address import AHEAD, copy_bytes, pointer_at, prefetch
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, array_type

# An array in a segment: its address, the bytes per row, and the code of its dtype.
ARRAY = np.dtype([("address", np.int64), ("row_bytes", np.int64), ("dtype", np.int64)])
Arrays = Annotated[NDArray[Any], array_type(ARRAY, 1, const=True)]
UINT8, UINT16, INT16, INT32, INT64, OTHER = range(6)
# Values of any other dtype have the code OTHER, and are copied unchanged.
CODES = {"uint8": UINT8, "uint16": UINT16, "int16": INT16, "int32": INT32, "int64": INT64}


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
    `shift` is 1 for destinations if padding edges form chains. The caller must check that ``real_nodes + shift <
    node_slots``.
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
