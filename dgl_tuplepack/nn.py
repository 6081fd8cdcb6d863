"""Statistics across nodes and means over graphs, of one rank or of all, from which padding is left out."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dgl_tuplepack._checks import true_or_false
from dgl_tuplepack.errors import SchemaError


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the real entries; 0, with zero gradients, if there are none.

    Parameters
    ----------
    values
        Real or complex floats ``[G, ...]``, for example one loss for each graph slot.
    mask
        Bool ``[G]`` or any leading part of the shape of `values`; True = real.

    Returns
    -------
    Tensor
        Scalar of the dtype of `values`.

    Raises
    ------
    SchemaError
        `values` holds integers or bools, the mask is not bool, or its shape is not a leading part of theirs.

    Notes
    -----
    Padded *values* may be anything, but keep finite what they are computed from: the gradient of the loss of a NaN
    label is NaN, and NaN times 0 is NaN.

    Examples
    --------
    >>> masked_mean(torch.tensor([1.0, 3.0, 100.0]), torch.tensor([True, True, False]))
    tensor(2.)
    """
    total, number = _masked_sum(values, mask)
    return (total / number.clamp(min=1)).to(values.dtype)


def distributed_masked_mean(values: Tensor, mask: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Share of this rank in the mean over the real entries of all ranks, for DistributedDataParallel.

    Ranks hold different numbers of real graphs, so the mean of their means is not the mean over graphs. With R
    ranks, rank r holding n_r real entries x, and n the sum of all n_r, the result on rank r is::

        L_r = R / n * (sum of x on rank r)

    DistributedDataParallel averages gradients over ranks, and the mean of all L_r is (sum of all x) / n; so the
    gradients are those of one process that holds every graph, if no layer has statistics of one rank alone (see
    `across_ranks` of `MaskedBatchNorm1d`). If no rank holds a real entry, it is 0.

    Parameters
    ----------
    values, mask
        As in `masked_mean`.
    group
        Processes that average their gradients; each of them must call this in each step. None: all processes.
        Without an initialised process group this is `masked_mean`.

    Returns
    -------
    Tensor
        Scalar of the dtype of `values`; differentiable. Only its mean over the ranks is the global mean.

    Raises
    ------
    SchemaError
        As in `masked_mean`.

    Notes
    -----
    It takes one all-reduce of a single integer, on the device of `values`; no gradient passes through it. When
    gradients of several steps are accumulated, each step counts with its own mean.

    Examples
    --------
    >>> distributed_masked_mean(torch.tensor([1.0, 3.0, 100.0]), torch.tensor([True, True, False]))
    tensor(2.)
    """
    total, number = _masked_sum(values, mask)
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(number, group=group)
        total = total * dist.get_world_size(group)
    return (total / number.clamp(min=1)).to(values.dtype)


class MaskedBatchNorm1d(nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` with statistics of the real rows only.

    It has the parameters, buffers and state dict of its base. Real rows come out as if there were no padding, padded
    rows as 0. A batch without real rows leaves the running statistics unchanged; with a single one the variance
    is 0 (torch refuses that case, but a check would need a synchronisation with the device).

    Parameters
    ----------
    num_features, eps, momentum, affine, track_running_stats, device, dtype
        As in the base.
    across_ranks
        Whether statistics in training are those of the real rows of all ranks, so that outputs and gradients are those
        of one process that holds them all; it replaces `torch.nn.SyncBatchNorm`, which has no mask. False: each rank
        normalises by itself.
    group
        Processes of `across_ranks`; each of them must call this in each step. None: all processes.

    Notes
    -----
    With `across_ranks`, the forward pass takes two all-reduces of C numbers, and so does the backward pass. Do not
    apply ``SyncBatchNorm.convert_sync_batchnorm`` (Lightning's ``sync_batchnorm=True``) to a model with this layer: it
    replaces the layer by its own, which fails when it is given a mask.

    Examples
    --------
    >>> norm = MaskedBatchNorm1d(1)
    >>> x = torch.tensor([[1.0], [3.0], [50.0]])
    >>> norm(x, torch.tensor([True, True, False])).detach().round().flatten().tolist()
    [-1.0, 1.0, 0.0]
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        across_ranks: bool = False,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self.across_ranks = true_or_false("across_ranks", across_ranks, SchemaError)
        self.group = group

    def forward(self, input: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        """Normalise `input` ``[N, C]`` or ``[N, C, L]``; `mask` bool ``[N]``, True = real."""
        self._check_input_dim(input)
        if input.shape[1] != self.num_features:
            raise SchemaError(
                f"the input must have {self.num_features} channels, as num_features says, but has shape "
                f"{tuple(input.shape)}; give [N, C] or [N, C, L] with C = {self.num_features}."
            )
        if not input.is_floating_point():
            raise SchemaError(f"the input must be real floats, but is {input.dtype}; give input.float().")
        _check_mask(input, mask)
        if mask.ndim != 1:
            raise SchemaError(f"the mask of rows must have shape [N], but has shape {tuple(mask.shape)}.")
        shape = (1, -1) + (1,) * (input.ndim - 2)
        real = mask.reshape((-1,) + (1,) * (input.ndim - 1))
        exact = _statistics_dtype(input.dtype)
        x = torch.where(real, input, torch.zeros((), dtype=input.dtype, device=input.device)).to(exact)
        if self.training or self.running_mean is None or self.running_var is None:
            dims = [dim for dim in range(input.ndim) if dim != 1]
            rows = mask.sum() * (input.shape[2] if input.ndim == 3 else 1)
            total = self._over_ranks(torch.cat([x.sum(dims), rows.to(exact).reshape(1)]))
            rows = total[-1].detach()
            mean = total[:-1] / rows.clamp(min=1)
            deviation = torch.where(real, x - mean.reshape(shape), torch.zeros_like(x))
            # A second sum, since squares minus the square of the mean would lose digits.
            variance = self._over_ranks(deviation.square().sum(dims)) / rows.clamp(min=1)
            if self.training:
                self._update_statistics(mean.detach(), variance.detach(), rows)
        else:
            mean, variance = self.running_mean.to(exact), self.running_var.to(exact)
            deviation = x - mean.reshape(shape)
        scale = torch.rsqrt(variance + self.eps)
        if self.affine:
            scale = scale * self.weight
        result = deviation * scale.reshape(shape)
        if self.affine:
            result = result + self.bias.reshape(shape)
        return torch.where(real, result, torch.zeros_like(result)).to(input.dtype)

    def _over_ranks(self, sums: Tensor) -> Tensor:
        """Sums over all ranks with `across_ranks`; gradients are summed likewise."""
        if self.training and self.across_ranks and dist.is_available() and dist.is_initialized():
            return cast(Tensor, _SumOverRanks.apply(sums, self.group))  # type: ignore[no-untyped-call]
        return sums

    def _update_statistics(self, mean: Tensor, variance: Tensor, rows: Tensor) -> None:
        """Move the running statistics, without reading values on the host."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        any_row = rows > 0
        self.num_batches_tracked.add_(any_row)
        if self.momentum is None:
            weight = 1.0 / self.num_batches_tracked.clamp(min=1).to(mean.dtype)
        else:
            weight = torch.full((), self.momentum, dtype=mean.dtype, device=mean.device)
        weight = torch.where(any_row, weight, torch.zeros_like(weight)).to(self.running_mean.dtype)
        unbiased = variance * rows / (rows - 1).clamp(min=1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), weight)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), weight)


class _SumOverRanks(torch.autograd.Function):
    """Sum over ranks. The value of one rank changes the result of all, so its gradient is the sum of theirs.

    The public function of torch is deprecated in favour of a private one.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        ctx.group = group
        total = values.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total, None


def _masked_sum(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of the real entries, and their number."""
    if not isinstance(values, Tensor):
        raise SchemaError(f"the values must be a tensor of floats, but are {type(values).__name__}; give a tensor.")
    if not (values.is_floating_point() or values.is_complex()):
        raise SchemaError(f"the values must be floats, but are {values.dtype}; give values.float().")
    _check_mask(values, mask)
    real = mask.reshape(mask.shape + (1,) * (values.ndim - mask.ndim)).expand_as(values)
    # In half precision, sums overflow or lose digits; like torch, this takes them in float32.
    exact = _statistics_dtype(values.dtype)
    total = torch.where(real, values, torch.zeros((), dtype=values.dtype, device=values.device)).sum(dtype=exact)
    return total, real.sum()


def _statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _check_mask(values: Tensor, mask: Tensor) -> None:
    if not isinstance(mask, Tensor):
        raise SchemaError(f"the mask must be a bool tensor, but is {type(mask).__name__}; use batch.graph_mask, say.")
    if mask.dtype != torch.bool or mask.shape != values.shape[: mask.ndim]:
        raise SchemaError(
            f"the mask must be bool with a leading part of the shape {tuple(values.shape)}, but is {mask.dtype} with "
            f"shape {tuple(mask.shape)}; use batch.node_mask, batch.edge_mask or batch.graph_mask."
        )
