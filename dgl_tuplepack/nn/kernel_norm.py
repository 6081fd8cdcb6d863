"""Batch norm of the real rows of a matrix on the CPU: our kernels as a function that torch can differentiate."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from dgl_tuplepack._plain_tensors import has_memory, is_transformed
from dgl_tuplepack.kernels.masked_norm import Gradients, Norm, Statistics, differentiate_rows, normalise_rows
from dgl_tuplepack.nn.sums_norm import normalised, row_statistics

# Weight, bias, running mean, running variance, number of batches.
Parameters = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]

DTYPES = (torch.float32, torch.float64)
# Our kernels run on one thread; with more threads than this, torch's are faster.
_MOST_THREADS = 2


def has_kernel(input: Tensor, mask: Tensor, parameters: Parameters) -> bool:
    """Whether `kernel_norm` takes this input: a plain matrix on the CPU, with parameters and statistics of its dtype.

    What traces or transforms operations of torch, such as ``torch.func`` or forward-mode AD, does not see our kernels.
    """
    dtype = input.dtype
    if input.ndim != 2 or dtype not in DTYPES or torch.get_num_threads() > _MOST_THREADS:
        return False
    if torch._C._is_tracing() or is_transformed() or not has_memory(input) or not has_memory(mask):
        return False
    *floats, num_batches = parameters
    channels = input.shape[1]
    for each in floats:
        if each is not None and not _fits(each, dtype, channels):
            return False
    return num_batches is None or _fits(num_batches, torch.int64, 1)


def _fits(parameter: Tensor, dtype: torch.dtype, numbers: int) -> bool:
    return (
        parameter.dtype == dtype
        and parameter.numel() == numbers
        and parameter.is_contiguous()
        and has_memory(parameter)
    )


def kernel_norm(
    input: Tensor, mask: Tensor, parameters: Parameters, by_batch: bool, momentum: float | None, eps: float
) -> Tensor:
    """Normalise the rows of `input` ``[N, C]`` where `mask` bool ``[N]`` is true, and set the others to 0.

    `by_batch`: normalise by the statistics of the real rows, and move the running ones, if there are any, towards them;
    else normalise by the running ones.
    """
    weight, bias, *running = parameters
    args = (input.contiguous(), mask.contiguous(), weight, bias, running, by_batch, momentum, eps)
    return cast(Tensor, _KernelNorm.apply(*args))  # type: ignore[no-untyped-call]


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


class _KernelNorm(torch.autograd.Function):
    # One function for the result and its context: torch inspects the signatures of separate ones in each call.
    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        mask: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running: list[Tensor | None],
        by_batch: bool,
        momentum: float | None,
        eps: float,
    ) -> Tensor:
        rows, channels = input.shape
        out, mean, scale = torch.empty_like(input), input.new_empty(channels), input.new_empty(channels)
        norm = Norm(input.data_ptr(), mask.data_ptr(), _address(weight), mean.data_ptr(), scale.data_ptr())
        step = math.nan if momentum is None else float(momentum)
        running_mean, running_var, num_batches = map(_address, running)
        statistics = Statistics(_address(bias), running_mean, running_var, num_batches, by_batch, step, float(eps))
        normalise_rows(norm, statistics, out.data_ptr(), rows, channels, input.dtype == torch.float64)
        for tensor in running if by_batch else ():
            if tensor is not None and not tensor.is_inference():
                increment_version(tensor)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(input, mask, weight, mean, scale)
        ctx.settings = by_batch, eps, bias is not None
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return (None,) * 8
        input, mask, weight, mean, scale = ctx.saved_tensors
        by_batch, eps, has_bias = ctx.settings
        if torch.is_grad_enabled() or is_transformed() or not has_memory(gradient):
            # It will be differentiated again, as forces are, or it is of many results at once.
            statistics = None if by_batch else (mean, scale)
            return _by_operations(input, mask, weight, has_bias, statistics, eps, gradient)
        gradient = gradient.contiguous()
        of_input, of_weight, of_bias = torch.empty_like(input), torch.empty_like(mean), torch.empty_like(mean)
        norm = Norm(input.data_ptr(), mask.data_ptr(), _address(weight), mean.data_ptr(), scale.data_ptr())
        gradients = Gradients(gradient.data_ptr(), of_input.data_ptr(), of_weight.data_ptr(), of_bias.data_ptr())
        rows, channels = input.shape
        differentiate_rows(norm, gradients, by_batch, rows, channels, input.dtype == torch.float64)
        return of_input, None, None if weight is None else of_weight, of_bias if has_bias else None, *(None,) * 4


def _by_operations(
    input: Tensor,
    mask: Tensor,
    weight: Tensor | None,
    has_bias: bool,
    statistics: tuple[Tensor, Tensor] | None,
    eps: float,
    gradient: Tensor,
) -> tuple[Tensor | None, ...]:
    """The gradients by operations of torch; `statistics` are mean and scale if they are not those of the rows."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, since the gradient must not go on to what input and weight were computed from.
        x, w = (None if each is None else each.view_as(each) for each in (input, weight))
        assert x is not None
        # No gradient depends on the value of the bias.
        b = torch.zeros_like(input[0]).requires_grad_() if has_bias else None
        if statistics is None:
            _, mean, variance = row_statistics(x, mask)
            statistics = mean, torch.rsqrt(variance + eps)
        out = normalised(x, mask, *statistics, w, b)
    wanted = [each for each in (x, w, b) if each is not None and each.requires_grad]
    results = iter(torch.autograd.grad(out, wanted, gradient, create_graph=again))
    of_x, of_w, of_b = (next(results) if each is not None and each.requires_grad else None for each in (x, w, b))
    return of_x, None, of_w, of_b, *(None,) * 4
