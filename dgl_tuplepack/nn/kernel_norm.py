"""Batch norm of the real rows of a matrix on the CPU: our kernels as a function that torch can differentiate."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from dgl_tuplepack.kernels.masked_norm import Gradients, Norm, Statistics, differentiate_rows, normalise_rows
from dgl_tuplepack.nn.sums_norm import normalised, row_statistics

# Our kernels run on one thread; with more threads than this, torch's are faster.
_MOST_THREADS = 2


def has_kernel(input: Tensor, parameters: tuple[Tensor | None, ...]) -> bool:
    """Whether `kernel_norm` takes this input: a plain matrix on the CPU, with parameters and statistics of its dtype.

    What traces or transforms operations of torch, such as ``torch.func`` or forward-mode AD, does not see our kernels.
    """
    return (
        type(input) in (Tensor, torch.nn.Parameter)
        and input.ndim == 2
        and input.is_cpu
        and input.dtype in (torch.float32, torch.float64)
        and all(each is None or _fits(each, input) for each in parameters)
        and torch.get_num_threads() <= _MOST_THREADS
        and not torch._C._is_tracing()
        and not _is_transformed()
    )


def _fits(parameter: Tensor, input: Tensor) -> bool:
    return (
        parameter.dtype == input.dtype
        and parameter.is_cpu
        and parameter.numel() == input.shape[1]
        and parameter.is_contiguous()
    )


# Torch has no public names for these.
_are_transforms_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_number_of_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)


def _is_transformed() -> bool:
    """Whether ``torch.func``, forward-mode AD or a dispatch mode handles operations of torch."""
    level: int = getattr(torch.autograd.forward_ad, "_current_level", -1)
    return level >= 0 or _are_transforms_active() or _number_of_modes() > 0


def kernel_norm(
    input: Tensor,
    mask: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running: tuple[Tensor | None, Tensor | None, Tensor | None],
    by_batch: bool,
    momentum: float | None,
    eps: float,
) -> Tensor:
    """Normalise the rows of `input` ``[N, C]`` where `mask` bool ``[N]`` is true, and set the others to 0.

    `running` are mean, variance and number of batches, or None for each. `by_batch`: normalise by the statistics of the
    real rows, and move the running ones, if there are any, towards them; else normalise by the running ones.
    """
    plain = input.contiguous().resolve_neg()
    args = (plain, mask.contiguous(), weight, bias, running, by_batch, momentum, eps)
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
        running: tuple[Tensor | None, Tensor | None, Tensor | None],
        by_batch: bool,
        momentum: float | None,
        eps: float,
    ) -> Tensor:
        rows, channels = input.shape
        out, mean, scale = torch.empty_like(input), input.new_empty(channels), input.new_empty(channels)
        norm = Norm(input.data_ptr(), mask.data_ptr(), _address(weight), mean.data_ptr(), scale.data_ptr())
        step = math.nan if momentum is None else momentum
        running_mean, running_var, num_batches = map(_address, running)
        statistics = Statistics(_address(bias), running_mean, running_var, num_batches, by_batch, step, eps)
        normalise_rows(norm, statistics, out.data_ptr(), rows, channels, input.dtype == torch.float64)
        for tensor in running if by_batch else ():
            if tensor is not None and not tensor.is_inference():
                increment_version(tensor)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(input, mask, weight, bias, mean, scale)
        ctx.settings = by_batch, eps
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return (None,) * 8
        input, mask, weight, bias, mean, scale = ctx.saved_tensors
        if torch.is_grad_enabled():
            # It will be differentiated again, as forces are.
            return _differentiable(input, mask, weight, bias, mean, scale, gradient, *ctx.settings)
        gradient = gradient.contiguous().resolve_neg()
        of_input, of_weight, of_bias = torch.empty_like(input), torch.empty_like(mean), torch.empty_like(mean)
        norm = Norm(input.data_ptr(), mask.data_ptr(), _address(weight), mean.data_ptr(), scale.data_ptr())
        gradients = Gradients(gradient.data_ptr(), of_input.data_ptr(), of_weight.data_ptr(), of_bias.data_ptr())
        rows, channels = input.shape
        differentiate_rows(norm, gradients, ctx.settings[0], rows, channels, input.dtype == torch.float64)
        return of_input, None, None if weight is None else of_weight, None if bias is None else of_bias, *(None,) * 4


def _differentiable(
    input: Tensor,
    mask: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    scale: Tensor,
    gradient: Tensor,
    by_batch: bool,
    eps: float,
) -> tuple[Tensor | None, ...]:
    """The gradients by operations of torch."""
    if by_batch:
        _, mean, variance = row_statistics(input, mask)
        scale = torch.rsqrt(variance + eps)
    out = normalised(input, mask, mean, scale, weight, bias)
    wanted = [each for each in (input, weight, bias) if each is not None and each.requires_grad]
    found = iter(torch.autograd.grad(out, wanted, gradient, create_graph=True))
    of_input, of_weight, of_bias = (
        next(found) if each is not None and each.requires_grad else None for each in (input, weight, bias)
    )
    return of_input, None, of_weight, of_bias, *(None,) * 4
