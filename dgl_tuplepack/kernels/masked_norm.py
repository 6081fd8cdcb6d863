"""Batch norm of the real rows of a matrix, and its gradient, each in two passes over the rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from dgl_tuplepack.kernels._jit import helper, jit
from dgl_tuplepack.kernels.address import pointer_at

# Rows that are summed before they are added to the sums, which then are loaded and stored less often.
_ROWS = 4


class Norm(NamedTuple):
    """Addresses of tensors of one dtype, float32 or float64, unless noted; 0 for a tensor that is missing."""

    input: int  # [N, C]
    mask: int  # [N], bool, True = real
    weight: int  # [C]
    mean: int  # [C]
    scale: int  # [C], 1 / standard deviation


class Statistics(NamedTuple):
    """Addresses of further tensors of the forward pass, and its settings."""

    bias: int  # [C]
    running_mean: int  # [C]
    running_var: int  # [C]
    num_batches: int  # [], int64
    by_batch: bool  # normalise by the rows, and move the running statistics, if there are any
    momentum: float  # NaN: the running statistics are means of all batches
    eps: float


class Gradients(NamedTuple):
    """Addresses of gradients."""

    out: int  # [N, C], of the result
    input: int  # [N, C]
    weight: int  # [C]
    bias: int  # [C]


@helper
def _vector(address: int, channels: int, real: Any) -> Any:
    return carray(pointer_at(address, real), channels)


@helper
def _all_real(mask: Any, i: int) -> bool:
    """Whether the next `_ROWS` rows are there and real."""
    return i + _ROWS <= len(mask) and mask[i] and mask[i + 1] and mask[i + 2] and mask[i + 3]


@helper
def _mean_and_variance(x: Any, mask: Any, mean: Any, variance: Any) -> int:
    """Write mean and biased variance of the real rows; return their number.

    One pass takes sums of differences to the first real row and of their squares. The square of mean minus first row is
    at most N times the variance, so that 64 bits lose no digit that matters.
    """
    rows, channels = x.shape
    first, total, square = np.zeros(channels), np.zeros(channels), np.zeros(channels)
    number = i = 0
    while i < rows:
        if mask[i] and number == 0:
            for c in range(channels):
                first[c] = x[i, c]
        if _all_real(mask, i):
            x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
            for c in range(channels):
                d0, d1 = np.float64(x0[c]) - first[c], np.float64(x1[c]) - first[c]
                d2, d3 = np.float64(x2[c]) - first[c], np.float64(x3[c]) - first[c]
                total[c] += (d0 + d1) + (d2 + d3)
                square[c] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
            number += _ROWS
            i += _ROWS
            continue
        if mask[i]:
            x0 = x[i]
            for c in range(channels):
                d0 = np.float64(x0[c]) - first[c]
                total[c] += d0
                square[c] += d0 * d0
            number += 1
        i += 1
    for c in range(channels):
        offset = total[c] / max(number, 1)
        mean[c] = first[c] + offset
        variance[c] = square[c] / max(number, 1) - offset * offset
        if variance[c] < 0:
            variance[c] = 0
    return number


@helper
def _normalise(norm: Norm, statistics: Statistics, out: int, rows: int, channels: int, real: Any) -> None:
    x = carray(pointer_at(norm.input, real), (rows, channels))
    mask = carray(pointer_at(norm.mask, np.uint8), rows)
    mean, scale = _vector(norm.mean, channels, real), _vector(norm.scale, channels, real)
    running_mean = _vector(statistics.running_mean, channels, real)
    running_var = _vector(statistics.running_var, channels, real)
    variance = np.zeros(channels)
    if statistics.by_batch:
        number = _mean_and_variance(x, mask, mean, variance)
        if statistics.running_mean != 0 and number > 0:
            # As in torch: without a number of batches, a mean of all of them cannot be taken.
            step = 0.0 if np.isnan(statistics.momentum) else statistics.momentum
            if statistics.num_batches != 0:
                tracked = carray(pointer_at(statistics.num_batches, np.int64), 1)
                tracked[0] += 1
                step = 1 / tracked[0] if np.isnan(statistics.momentum) else step
            unbiased = number / max(number - 1, 1)
            for c in range(channels):
                running_mean[c] += step * (mean[c] - running_mean[c])
                running_var[c] += step * (unbiased * variance[c] - running_var[c])
    else:
        for c in range(channels):
            mean[c], variance[c] = running_mean[c], running_var[c]
    factor, shift = np.empty(channels, real), np.zeros(channels, real)
    weight, bias = _vector(norm.weight, channels, real), _vector(statistics.bias, channels, real)
    for c in range(channels):
        scale[c] = 1 / np.sqrt(variance[c] + statistics.eps)
        factor[c] = scale[c] * weight[c] if norm.weight != 0 else scale[c]
        if statistics.bias != 0:
            shift[c] = bias[c]
    result = carray(pointer_at(out, real), (rows, channels))
    for i in range(rows):
        row, to = x[i], result[i]
        if mask[i]:
            for c in range(channels):
                to[c] = (row[c] - mean[c]) * factor[c] + shift[c]
        else:
            to[:] = 0


@helper
def _sum_gradients(of_out: Any, x: Any, mask: Any, mean: Any, total: Any, product: Any) -> int:
    """Add up the gradients of the real rows, and their products with input minus mean; return the number of rows."""
    rows, channels = x.shape
    number = i = 0
    while i < rows:
        if _all_real(mask, i):
            x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
            g0, g1, g2, g3 = of_out[i], of_out[i + 1], of_out[i + 2], of_out[i + 3]
            for c in range(channels):
                m = mean[c]
                total[c] += (g0[c] + g1[c]) + (g2[c] + g3[c])
                first_two = g0[c] * (x0[c] - m) + g1[c] * (x1[c] - m)
                product[c] += first_two + (g2[c] * (x2[c] - m) + g3[c] * (x3[c] - m))
            number += _ROWS
            i += _ROWS
            continue
        if mask[i]:
            x0, g0 = x[i], of_out[i]
            for c in range(channels):
                total[c] += g0[c]
                product[c] += g0[c] * (x0[c] - mean[c])
            number += 1
        i += 1
    return number


@helper
def _differentiate(norm: Norm, gradients: Gradients, by_batch: bool, rows: int, channels: int, real: Any) -> None:
    x, mask = carray(pointer_at(norm.input, real), (rows, channels)), carray(pointer_at(norm.mask, np.uint8), rows)
    of_out = carray(pointer_at(gradients.out, real), (rows, channels))
    of_weight, of_bias = _vector(gradients.weight, channels, real), _vector(gradients.bias, channels, real)
    mean, scale = _vector(norm.mean, channels, real), _vector(norm.scale, channels, real)
    weight = _vector(norm.weight, channels, real)
    total, product = np.zeros(channels), np.zeros(channels)
    number = _sum_gradients(of_out, x, mask, mean, total, product)
    factor, slope, shift = np.empty(channels, real), np.zeros(channels, real), np.zeros(channels, real)
    for c in range(channels):
        of_weight[c], of_bias[c] = product[c] * scale[c], total[c]
        factor[c] = scale[c] * weight[c] if norm.weight != 0 else scale[c]
        if by_batch and number > 0:
            slope[c] = -factor[c] * (product[c] * scale[c] * scale[c] / number)
            shift[c] = -factor[c] * (total[c] / number)
    of_input = carray(pointer_at(gradients.input, real), (rows, channels))
    for i in range(rows):
        row, of_row, to = x[i], of_out[i], of_input[i]
        if mask[i]:
            for c in range(channels):
                to[c] = of_row[c] * factor[c] + (row[c] - mean[c]) * slope[c] + shift[c]
        else:
            to[:] = 0


@jit
def normalise_rows(norm: Norm, statistics: Statistics, out: int, rows: int, channels: int, is_double: bool) -> None:
    """Write mean, scale and the normalised rows; the other rows of `out` become 0.

    Without a real row, running statistics stay as they are. The variance of a single row is 0.
    """
    if is_double:
        _normalise(norm, statistics, out, rows, channels, np.float64)
    else:
        _normalise(norm, statistics, out, rows, channels, np.float32)


@jit
def differentiate_rows(
    norm: Norm, gradients: Gradients, by_batch: bool, rows: int, channels: int, is_double: bool
) -> None:
    """Write the gradients of input, weight and bias."""
    if is_double:
        _differentiate(norm, gradients, by_batch, rows, channels, np.float64)
    else:
        _differentiate(norm, gradients, by_batch, rows, channels, np.float32)
