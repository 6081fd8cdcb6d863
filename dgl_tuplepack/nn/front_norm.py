"""Batch norm of the first rows of a tensor by torch's own kernels, which read and write its front in place."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

_ops: Any = torch.ops.aten


def front_batch_norm(
    input: Tensor,
    num_real: int,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    by_batch: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    """Normalise the first `num_real` (in ``2..N``) rows of floats ``[N, C]`` or ``[N, C, L]``, and set the others to 0.

    `by_batch`: normalise by the statistics of these rows, and move the running ones towards them. The rest is as in
    `torch.nn.functional.batch_norm`. Slicing, normalising and padding would copy the tensor once more in each
    direction.
    """
    # For other strides, torch's kernel that writes into a given tensor takes wrong statistics (seen in 2.13).
    args = (input.contiguous(), weight, bias, running_mean, running_var, num_real, by_batch, momentum, eps)
    return cast(Tensor, _FrontBatchNorm.apply(*args)[0])  # type: ignore[no-untyped-call]


class _FrontBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        num_real: int,
        by_batch: bool,
        momentum: float,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        out = torch.empty_like(input)
        out[num_real:].zero_()
        _, mean, scale = _ops.native_batch_norm.out(
            input[:num_real], weight, bias, running_mean, running_var, by_batch, momentum, eps,
            out=out[:num_real], save_mean=input.new_empty(0), save_invstd=input.new_empty(0),
        )  # fmt: skip
        return out, mean, scale

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        input, weight, bias, running_mean, running_var, num_real, by_batch, _, eps = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        # By the statistics of a batch, the running ones have no part, and a later batch may move them in place.
        running = (None, None) if by_batch else (running_mean, running_var)
        ctx.save_for_backward(input, weight, *running, *output[1:])
        ctx.settings = num_real, by_batch, eps, bias is not None

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return (None,) * 9
        input, weight, running_mean, running_var, mean, scale = ctx.saved_tensors
        num_real, by_batch, eps, has_bias = ctx.settings
        of_front, of_weight, of_bias = _ops.native_batch_norm_backward(
            gradient[:num_real], input[:num_real], weight, running_mean, running_var, mean, scale, by_batch, eps,
            [True, weight is not None, weight is not None],
        )  # fmt: skip
        # Padding is concatenated, since that can be differentiated again, as forces are.
        padding = input.new_zeros((len(input) - num_real, *input.shape[1:]))
        return torch.cat([of_front, padding]), of_weight, of_bias if has_bias else None, *(None,) * 6
