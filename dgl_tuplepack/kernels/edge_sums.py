"""Sums, extremes and softmax over groups of rows, such as the edges that end in each node."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from dgl_tuplepack.kernels._jit import helper, jit
from dgl_tuplepack.kernels.address import pointer_at
from dgl_tuplepack.kernels.group_order import order_by_group


class Groups(NamedTuple):
    """Rows 0..rows-1 in groups, by addresses of int64."""

    pointers: int  # [number + 1], where each group begins in the order
    order: int  # [rows], rows by their group; 0: they are sorted
    number: int
    rows: int


@helper
def _ids(address: int, number: int) -> Any:
    return carray(pointer_at(address, np.int64), number)


@helper
def _matrix(address: int, rows: int, width: int, real: Any) -> Any:
    return carray(pointer_at(address, real), (rows, width))


@jit
def sort_groups(index: int, groups: Groups) -> int:
    """Write pointers and order of rows with the groups `index` int64 ``[rows]``; return the first bad row, or -1.

    Rows of a group keep their order.
    """
    pointers, order = _ids(groups.pointers, groups.number + 1), _ids(groups.order, groups.rows)
    return int(order_by_group(_ids(index, groups.rows), groups.number, pointers, order))


@jit
def check_groups(index: int, groups: Groups) -> int:
    """Return the first row that is not in the group that the pointers of sorted rows say, or -1."""
    group, pointers = _ids(index, groups.rows), _ids(groups.pointers, groups.number + 1)
    row = 0
    for g in range(groups.number):
        if pointers[g] != row:
            return row
        while row < groups.rows and group[row] == g:
            row += 1
    return -1 if row == groups.rows and pointers[groups.number] == row else row


@helper
def _sum(groups: Groups, via: int, values: int, number: int, out: int, width: int, real: Any) -> int:
    x, result = _matrix(values, number, width, real), _matrix(out, groups.number, width, real)
    pointers, order, place = _ids(groups.pointers, groups.number + 1), groups.order, groups.order
    orders, rows = _ids(order, groups.rows), _ids(via, groups.rows)
    for g in range(groups.number):
        to = result[g]
        begin, end = pointers[g], pointers[g + 1]
        if begin == end:
            to[:] = 0
        for i in range(begin, end):
            place = orders[i] if order != 0 else i
            row = rows[place] if via != 0 else place
            if row < 0 or row >= number:
                return place
            of_row = x[row]
            if i == begin:
                for c in range(width):
                    to[c] = of_row[c]
            else:
                for c in range(width):
                    to[c] += of_row[c]
    return -1


@helper
def _weigh(
    groups: Groups, via: int, values: int, number: int, weights: int, out: int, heads: int, width: int, real: Any
) -> int:
    x, result = _matrix(values, number, heads * width, real), _matrix(out, groups.number, heads * width, real)
    weight = _matrix(weights, groups.rows, heads, real)
    pointers, order, place = _ids(groups.pointers, groups.number + 1), groups.order, groups.order
    orders, rows = _ids(order, groups.rows), _ids(via, groups.rows)
    for g in range(groups.number):
        to = result[g]
        to[:] = 0
        for i in range(pointers[g], pointers[g + 1]):
            place = orders[i] if order != 0 else i
            row = rows[place] if via != 0 else place
            if row < 0 or row >= number:
                return place
            of_row, of_edge = x[row], weight[place]
            if width == 1:
                for c in range(heads):
                    to[c] += of_row[c] * of_edge[c]
            else:
                for h in range(heads):
                    w, at = of_edge[h], h * width
                    for c in range(at, at + width):
                        to[c] += of_row[c] * w
    return -1


@jit
def sum_groups(groups: Groups, via: int, values: int, number: int, out: int, width: int, is_double: bool) -> int:
    """Write sums ``[groups, width]`` of values ``[number, width]``; return the first bad row, or -1.

    A row of a group takes the value `via` ``[rows]``, int64, names, or the one of its own number if `via` is 0.
    """
    if is_double:
        return _sum(groups, via, values, number, out, width, np.float64)
    return _sum(groups, via, values, number, out, width, np.float32)


@jit
def weigh_groups(
    groups: Groups, via: int, values: int, number: int, weights: int, out: int, heads: int, width: int, is_double: bool
) -> int:
    """`sum_groups` of values ``[number, heads, width]`` times weights ``[rows, heads]``."""
    if is_double:
        return _weigh(groups, via, values, number, weights, out, heads, width, np.float64)
    return _weigh(groups, via, values, number, weights, out, heads, width, np.float32)


class Pairs(NamedTuple):
    """Two matrices ``[number, heads, width]``, and the row of each that belongs to an edge, int64 ``[rows]``."""

    left: int
    left_rows: int
    left_number: int
    right: int
    right_rows: int
    right_number: int


@helper
def _dot(pairs: Pairs, out: int, rows: int, heads: int, width: int, real: Any) -> int:
    x = _matrix(pairs.left, pairs.left_number, heads * width, real)
    y = _matrix(pairs.right, pairs.right_number, heads * width, real)
    of_x, of_y = _ids(pairs.left_rows, rows), _ids(pairs.right_rows, rows)
    result = _matrix(out, rows, heads, real)
    for row in range(rows):
        i, j = of_x[row], of_y[row]
        if i < 0 or i >= pairs.left_number or j < 0 or j >= pairs.right_number:
            return row
        a, b, to = x[i], y[j], result[row]
        if width == 1:
            for c in range(heads):
                to[c] = a[c] * b[c]
        else:
            for h in range(heads):
                to[h] = _product(a, b, h * width, (h + 1) * width, real)
    return -1


@helper
def _product(a: Any, b: Any, begin: int, end: int, real: Any) -> Any:
    """Sum of products, in eight sums, so that the processor can add vectors."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = real(0)
    c = begin
    while c + 8 <= end:
        s0 += a[c] * b[c]
        s1 += a[c + 1] * b[c + 1]
        s2 += a[c + 2] * b[c + 2]
        s3 += a[c + 3] * b[c + 3]
        s4 += a[c + 4] * b[c + 4]
        s5 += a[c + 5] * b[c + 5]
        s6 += a[c + 6] * b[c + 6]
        s7 += a[c + 7] * b[c + 7]
        c += 8
    total = ((s0 + s4) + (s1 + s5)) + ((s2 + s6) + (s3 + s7))
    while c < end:
        total += a[c] * b[c]
        c += 1
    return total


@jit
def dot_rows(pairs: Pairs, out: int, rows: int, heads: int, width: int, is_double: bool) -> int:
    """Write products of the two rows of each edge, summed over the width, to ``out``; return a bad edge, or -1."""
    if is_double:
        return _dot(pairs, out, rows, heads, width, np.float64)
    return _dot(pairs, out, rows, heads, width, np.float32)


@helper
def _extreme(
    groups: Groups, values: int, out: int, first: int, width: int, largest: bool, fill: float, real: Any
) -> None:
    x, result = _matrix(values, groups.rows, width, real), _matrix(out, groups.number, width, real)
    firsts = carray(pointer_at(first, np.int64), (groups.number, width))
    pointers, order = _ids(groups.pointers, groups.number + 1), groups.order
    orders = _ids(order, groups.rows)
    for g in range(groups.number):
        to, row_of = result[g], firsts[g]
        begin, end = pointers[g], pointers[g + 1]
        if begin == end:
            to[:] = fill
            row_of[:] = groups.rows
        for i in range(begin, end):
            row = orders[i] if order != 0 else i
            of_row = x[row]
            if i == begin:
                for c in range(width):
                    to[c] = of_row[c]
                    row_of[c] = row if of_row[c] == of_row[c] else groups.rows
            else:
                for c in range(width):
                    value, best = of_row[c], to[c]
                    if value != value:
                        to[c], row_of[c] = value, groups.rows
                    elif (value > best) if largest else (value < best):
                        to[c], row_of[c] = value, row


@jit
def extreme_groups(
    groups: Groups, values: int, out: int, first: int, width: int, largest: bool, fill: float, is_double: bool
) -> None:
    """Write extremes ``[groups, width]`` of values ``[rows, width]``, and the first row that has each.

    Empty groups get `fill`. Where a value is NaN, the extreme is; there and in empty groups the first row is `rows`.
    """
    if is_double:
        _extreme(groups, values, out, first, width, largest, fill, np.float64)
    else:
        _extreme(groups, values, out, first, width, largest, fill, np.float32)


@helper
def _softmax(groups: Groups, values: int, out: int, width: int, real: Any) -> None:
    x, result = _matrix(values, groups.rows, width, real), _matrix(out, groups.rows, width, real)
    pointers, order = _ids(groups.pointers, groups.number + 1), groups.order
    orders = _ids(order, groups.rows)
    most, total = np.empty(width, real), np.empty(width, real)
    for g in range(groups.number):
        begin, end = pointers[g], pointers[g + 1]
        most[:] = -np.inf
        total[:] = 0
        for i in range(begin, end):
            of_row = x[orders[i] if order != 0 else i]
            for c in range(width):
                if not of_row[c] <= most[c]:
                    most[c] = of_row[c]
        for i in range(begin, end):
            row = orders[i] if order != 0 else i
            of_row, to = x[row], result[row]
            for c in range(width):
                to[c] = np.exp(of_row[c] - most[c])
                total[c] += to[c]
        for i in range(begin, end):
            to = result[orders[i] if order != 0 else i]
            for c in range(width):
                to[c] /= total[c]


@helper
def _differentiate_softmax(groups: Groups, softmax: int, gradient: int, out: int, width: int, real: Any) -> None:
    y, of_y = _matrix(softmax, groups.rows, width, real), _matrix(gradient, groups.rows, width, real)
    result = _matrix(out, groups.rows, width, real)
    pointers, order = _ids(groups.pointers, groups.number + 1), groups.order
    orders = _ids(order, groups.rows)
    total = np.empty(width, real)
    for g in range(groups.number):
        begin, end = pointers[g], pointers[g + 1]
        total[:] = 0
        for i in range(begin, end):
            row = orders[i] if order != 0 else i
            for c in range(width):
                total[c] += y[row, c] * of_y[row, c]
        for i in range(begin, end):
            row = orders[i] if order != 0 else i
            for c in range(width):
                result[row, c] = y[row, c] * (of_y[row, c] - total[c])


@jit
def softmax_groups(groups: Groups, values: int, out: int, width: int, is_double: bool) -> None:
    """Write the softmax ``[rows, width]`` of the values of each group."""
    if is_double:
        _softmax(groups, values, out, width, np.float64)
    else:
        _softmax(groups, values, out, width, np.float32)


@jit
def differentiate_softmax(groups: Groups, softmax: int, gradient: int, out: int, width: int, is_double: bool) -> None:
    """Write the gradient ``[rows, width]`` of the values whose softmax is given."""
    if is_double:
        _differentiate_softmax(groups, softmax, gradient, out, width, np.float64)
    else:
        _differentiate_softmax(groups, softmax, gradient, out, width, np.float32)
