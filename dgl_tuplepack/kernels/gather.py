"""Rows of many graphs, copied out of flat arrays; every position is checked before it is used.

Graphs may lie in several parts, each an array (a mapped file) of its own: `addresses` has the first byte of each
part's array, and ``parts[i]`` says in which one graph i lies. Loops run over slices from 0, which lets the compiler use
vector instructions; rows of graphs further ahead are prefetched, since each graph lies somewhere else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from dgl_tuplepack.kernels._jit import VECTOR, jit
from dgl_tuplepack.kernels.address import AHEAD, LINE_BYTES, MOST_BYTES, pointer_at, prefetch

IntArray = NDArray[np.int64]

# Features are copied as words, so that one compiled form serves every dtype of a width.
_WORDS = ("uint64", "uint32", "uint16", "uint8")
# Endpoints are stored as the first and handed out as the second.
_ENDPOINTS = [(stored, given) for stored in ("uint8", "uint16", "int32", "int64") for given in ("int32", "int64")]
# Narrowed integers are stored as the first and handed out as the second.
_WIDENED = [
    *((stored, "int64") for stored in ("uint8", "int16", "int32")),
    *((stored, "int32") for stored in ("uint8", "int16")),
    # Parts that were narrowed further than others, handed out as stored.
    ("uint8", "int16"),
]


def _read(dtype: str) -> str:
    return f"Array({dtype}, 1, 'C', readonly=True)"


@jit(f"int64({', '.join([VECTOR] * 5)}, int64[::1], int64[::1], int64[::1])")
def find_rows(
    ids: IntArray,
    parts: IntArray,
    addresses: IntArray,
    num_graphs: IntArray,
    num_rows: IntArray,
    starts: IntArray,
    counts: IntArray,
    firsts: IntArray,
) -> int:
    """First row in its part, number of rows, and first row in the batch of each graph; returns the sum of the numbers.

    `addresses` are those of the offsets of each part, int64 ``[num_graphs + 1]``. Neither ids (in their part) nor
    offsets, which come from a file, are trusted: returns -1 - i where ``ids[i]`` is not in 0..num_graphs-1, its rows do
    not lie within `num_rows`, or the sum overflows.
    """
    total = 0
    for i in range(len(ids)):
        if i + AHEAD < len(ids):
            # Never faults, wherever a wrong id leads.
            prefetch(addresses[parts[i + AHEAD]] + ids[i + AHEAD] * 8)
        part = parts[i]
        if ids[i] < 0 or ids[i] >= num_graphs[part]:
            return -1 - i
        offsets = carray(pointer_at(addresses[part], ids), num_graphs[part] + 1)
        first, last = offsets[ids[i]], offsets[ids[i] + 1]
        if first < 0 or last < first or last > num_rows[part]:
            return -1 - i
        starts[i] = first
        counts[i] = last - first
        firsts[i] = total
        total += last - first
        if total < 0:
            return -1 - i
    return total


@jit(
    *(
        f"void({_read(stored)}, int64, {', '.join([VECTOR] * 5)}, {given}[::1])"
        for stored, given in (*zip(_WORDS, _WORDS, strict=True), *_WIDENED)
    )
)
def gather_rows(
    like: NDArray[Any],
    width: int,
    addresses: IntArray,
    parts: IntArray,
    starts: IntArray,
    counts: IntArray,
    firsts: IntArray,
    out: NDArray[Any],
) -> None:
    """Copy rows of `width` values of the dtype of `like`, those of graph i to row ``firsts[i]`` of `out`.

    Values are words that stand for any dtype of their width, or integers stored narrower than they are handed out.
    The caller has checked that the rows are inside their part, and that they fit in `out`.
    """
    row_bytes = width * like.itemsize
    for i in range(len(starts)):
        if i + AHEAD < len(starts):
            address = addresses[parts[i + AHEAD]] + starts[i + AHEAD] * row_bytes
            for j in range(0, min(counts[i + AHEAD] * row_bytes, MOST_BYTES), LINE_BYTES):
                prefetch(address + j)
        number, position = counts[i] * width, firsts[i] * width
        rows = carray(pointer_at(addresses[parts[i]] + starts[i] * row_bytes, like), number)
        copied = out[position : position + number]
        for j in range(number):
            copied[j] = rows[j]


@jit(*(f"int64({_read(stored)}, {', '.join([VECTOR] * 7)}, {given}[::1])" for stored, given in _ENDPOINTS))
def gather_endpoints(
    like: NDArray[Any],
    addresses: IntArray,
    parts: IntArray,
    starts: IntArray,
    counts: IntArray,
    firsts: IntArray,
    nodes: IntArray,
    first_nodes: IntArray,
    out: NDArray[Any],
) -> int:
    """Copy endpoints, each moved to where its graph's nodes stand in the batch: from ``first_nodes[i]`` on.

    Endpoints come from a file: returns -1 - i where graph i has one outside its ``nodes[i]`` nodes, else 0. The caller
    has checked that the rows are inside their part, and that they fit in `out`.
    """
    for i in range(len(starts)):
        if i + AHEAD < len(starts):
            address = addresses[parts[i + AHEAD]] + starts[i + AHEAD] * like.itemsize
            for j in range(0, min(counts[i + AHEAD] * like.itemsize, MOST_BYTES), LINE_BYTES):
                prefetch(address + j)
        number, position, node = counts[i], firsts[i], first_nodes[i]
        rows = carray(pointer_at(addresses[parts[i]] + starts[i] * like.itemsize, like), number)
        moved = out[position : position + number]
        # Seen without a sign, a negative one is too large as well.
        largest = np.uint64(0)
        for j in range(number):
            local = np.int64(rows[j])
            moved[j] = local + node
            largest = max(largest, np.uint64(local))
        if number and largest >= np.uint64(nodes[i]):
            return -1 - i
    return 0


@jit(*(f"void({given}[::1], int64, int64)" for given in ("int32", "int64")))
def add_loops(out: NDArray[Any], real_nodes: int, node_slots: int) -> None:
    """Fill `out` with padding nodes: entry j of m is padding node j * spare // m.

    Even, ascending, and one each where m >= spare. The caller has checked that ``real_nodes < node_slots``.
    """
    # j * spare // m without a division for each edge.
    spare, padding = node_slots - real_nodes, len(out)
    remainder, loop = 0, real_nodes
    for j in range(padding):
        out[j] = loop
        remainder += spare
        while remainder >= padding:
            remainder -= padding
            loop += 1
