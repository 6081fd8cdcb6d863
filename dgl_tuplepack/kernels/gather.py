"""Rows of many graphs, copied out of flat arrays; every position is checked before it is used.

Loops run over slices from 0, which lets the compiler use vector instructions; rows of graphs further ahead are
prefetched, since each graph lies somewhere else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack.kernels._jit import VECTOR, jit
from dgl_tuplepack.kernels.prefetch import AHEAD, LINE_BYTES, MOST_BYTES, prefetch

IntArray = NDArray[np.int64]

# Features are copied as words, so that one compiled form serves every dtype of a width.
_WORDS = ("uint64", "uint32", "uint16", "uint8")
# Endpoints are stored as the first and handed out as the second.
_ENDPOINTS = [(stored, given) for stored in ("uint8", "uint16", "int32", "int64") for given in ("int32", "int64")]
# Narrowed integers are stored as the first and handed out as the second.
_WIDENED = [
    *((stored, "int64") for stored in ("uint8", "int16", "int32")),
    *((stored, "int32") for stored in ("uint8", "int16")),
]


def _read(dtype: str) -> str:
    return f"Array({dtype}, 1, 'C', readonly=True)"


@jit(f"int64({VECTOR}, {VECTOR}, int64, int64[::1], int64[::1])")
def find_rows(ids: IntArray, offsets: IntArray, num_rows: int, starts: IntArray, counts: IntArray) -> int:
    """First row and number of rows of each graph; returns the sum of the numbers.

    Neither ids nor `offsets` ``[N + 1]``, which come from a file, are trusted: returns -1 - i where ``ids[i]`` is
    not in 0..N-1, its rows do not lie within `num_rows`, or the sum overflows.
    """
    total = 0
    for i in range(len(ids)):
        if ids[i] < 0 or ids[i] >= len(offsets) - 1:
            return -1 - i
        first, last = offsets[ids[i]], offsets[ids[i] + 1]
        if first < 0 or last < first or last > num_rows:
            return -1 - i
        starts[i] = first
        counts[i] = last - first
        total += last - first
        if total < 0:
            return -1 - i
    return total


@jit(*(f"void({_read(word)}, int64, {VECTOR}, {VECTOR}, {word}[::1])" for word in _WORDS))
def gather_words(source: NDArray[Any], width: int, starts: IntArray, counts: IntArray, out: NDArray[Any]) -> None:
    """Copy rows of `width` words, one graph after the other, to the front of `out`.

    The caller has checked that the rows are inside `source`, and that they fit in `out`.
    """
    line, most = LINE_BYTES // source.itemsize, MOST_BYTES // source.itemsize
    position = 0
    for i in range(len(starts)):
        if i + AHEAD < len(starts):
            first, number = starts[i + AHEAD] * width, counts[i + AHEAD] * width
            for j in range(0, min(number, most), line):
                prefetch(source, first + j)
        first, number = starts[i] * width, counts[i] * width
        rows, copied = source[first : first + number], out[position : position + number]
        for j in range(number):
            copied[j] = rows[j]
        position += number


@jit(*(f"void({_read(stored)}, int64, {VECTOR}, {VECTOR}, {given}[::1])" for stored, given in _WIDENED))
def gather_widened(source: NDArray[Any], width: int, starts: IntArray, counts: IntArray, out: NDArray[Any]) -> None:
    """As `gather_words`, for integers that are stored narrower than they are handed out."""
    line, most = LINE_BYTES // source.itemsize, MOST_BYTES // source.itemsize
    position = 0
    for i in range(len(starts)):
        if i + AHEAD < len(starts):
            first, number = starts[i + AHEAD] * width, counts[i + AHEAD] * width
            for j in range(0, min(number, most), line):
                prefetch(source, first + j)
        first, number = starts[i] * width, counts[i] * width
        rows, copied = source[first : first + number], out[position : position + number]
        for j in range(number):
            copied[j] = rows[j]
        position += number


@jit(
    *(
        f"int64({_read(stored)}, {VECTOR}, {VECTOR}, {VECTOR}, {given}[::1], int64, int64)"
        for stored, given in _ENDPOINTS
    )
)
def gather_endpoints(
    source: NDArray[Any],
    starts: IntArray,
    counts: IntArray,
    nodes: IntArray,
    out: NDArray[Any],
    real_nodes: int,
    node_slots: int,
) -> int:
    """Copy endpoints, each moved to where its graph's nodes stand in the batch, then add padding edges.

    Endpoints come from a file: returns -1 - i where graph i has one outside its ``nodes[i]`` nodes, else 0. Padding
    edge j of m gets padding node j * spare // m: even, ascending, one each where m >= spare. The caller has checked
    that the rows are inside `source`, that ``sum(counts) <= len(out)`` and that ``real_nodes < node_slots``.
    """
    position, node, line, most = 0, 0, LINE_BYTES // source.itemsize, MOST_BYTES // source.itemsize
    for i in range(len(starts)):
        if i + AHEAD < len(starts):
            for j in range(0, min(counts[i + AHEAD], most), line):
                prefetch(source, starts[i + AHEAD] + j)
        first, number = starts[i], counts[i]
        rows, moved = source[first : first + number], out[position : position + number]
        # Seen without a sign, a negative one is too large as well.
        largest = np.uint64(0)
        for j in range(number):
            local = np.int64(rows[j])
            moved[j] = local + node
            largest = max(largest, np.uint64(local))
        if number and largest >= np.uint64(nodes[i]):
            return -1 - i
        position += number
        node += nodes[i]
    # j * spare // m without a division for each edge.
    spare, padding = node_slots - real_nodes, len(out) - position
    remainder, loop = 0, real_nodes
    for j in range(padding):
        out[position + j] = loop
        remainder += spare
        while remainder >= padding:
            remainder -= padding
            loop += 1
    return 0
