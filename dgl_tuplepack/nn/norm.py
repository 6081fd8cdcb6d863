"""`torch.nn.BatchNorm1d` over real rows alone: by kernels on the CPU, by torch's norm or by masked sums elsewhere."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dgl_tuplepack._checks import true_or_false
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn.kernel_norm import DTYPES, has_kernel, kernel_norm
from dgl_tuplepack.nn.masks import RowMask, as_row_mask, checked_rows, current_mask
from dgl_tuplepack.nn.means import statistics_dtype
from dgl_tuplepack.nn.sums_norm import normalised, row_statistics


class MaskedBatchNorm1d(nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` with statistics of the real rows only.

    It has the parameters, buffers and state dict of its base. Real rows come out as if there were no padding, padded
    rows as 0. A batch without real rows leaves the running statistics unchanged; with a single one the variance
    is 0 (torch refuses that case, but a check would need a synchronisation with the device).

    The mask is an argument of the call, or is read from ``with tp.nn.masked(batch):``, so that a model can call the
    layer as it calls its base; `convert` puts it in place of the norms of a model.

    Parameters
    ----------
    num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        As in the base.
    across_ranks
        Whether statistics in training are those of the real rows of all ranks, so that outputs and gradients are those
        of one process that holds them all; it replaces `torch.nn.SyncBatchNorm`, which has no mask. False: each rank
        normalises by itself.
    group
        Processes of `across_ranks`; each of them must call this in each step. None: all processes.
    rows
        Component whose mask is read from `masked`: ``nodes``, ``edges`` or ``graphs``, and with several types
        ``nodes:TYPE`` or ``edges:SRC:TYPE:DST``. None: the one with as many slots as the input has rows.

    Notes
    -----
    On the CPU, with one or two threads, kernels of this package take any mask. Elsewhere torch's norm runs on the front
    of a padded batch, whose number of real rows is known on the host. A mask given by hand is not read on other
    devices, which would be a synchronisation, nor in compiled code, where it would be a graph break: there the
    statistics are masked sums.

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
        bias: bool = True,
        across_ranks: bool = False,
        group: dist.ProcessGroup | None = None,
        rows: str | None = None,
    ) -> None:
        # Older releases of torch have no such argument.
        without = {} if true_or_false("bias", bias, SchemaError) else {"bias": False}
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, **without)
        self.across_ranks = true_or_false("across_ranks", across_ranks, SchemaError)
        self.group = group
        self.rows = checked_rows("rows", rows)

    def forward(self, input: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalise `input` ``[N, C]`` or ``[N, C, L]``; `mask` bool ``[N]``, True = real."""
        if not isinstance(input, Tensor):
            raise SchemaError(f"the input must be a tensor, but is {type(input).__name__}; give [N, C] or [N, C, L].")
        self._check_input_dim(input)
        if input.shape[1] != self.num_features:
            raise SchemaError(
                f"the input must have {self.num_features} channels, as num_features says, but has shape "
                f"{tuple(input.shape)}; give [N, C] or [N, C, L] with C = {self.num_features}."
            )
        if not input.is_floating_point():
            raise SchemaError(f"the input must be real floats, but is {input.dtype}; give input.float().")
        row_mask = current_mask(input, self.rows) if mask is None else as_row_mask(input, mask)
        if row_mask is None:
            row_mask = RowMask(torch.ones(len(input), dtype=torch.bool, device=input.device), len(input))
        if torch.compiler.is_compiling() or self._sums_over_ranks():
            return self._by_sums(input, row_mask.mask)
        # In training, torch notes statistics only where they are tracked.
        has_statistics = self.running_mean is not None and self.running_var is not None
        uses = has_statistics and (self.track_running_stats or not self.training)
        running = (self.running_mean, self.running_var, self.num_batches_tracked) if uses else (None, None, None)
        parameters = (self.weight, self.bias, *running)
        if has_kernel(input, row_mask.mask, parameters):
            by_batch = self.training or not has_statistics
            return kernel_norm(input, row_mask.mask, parameters, by_batch, self.momentum, self.eps)
        if row_mask.num_real is not None and row_mask.num_real > 1 and self._has_dtype(input):
            return self._by_torch(input, row_mask.num_real)
        return self._by_sums(input, row_mask.mask)

    def extra_repr(self) -> str:
        """Settings of the base, and what differs from the defaults here."""
        own = [f"rows={self.rows!r}"] * (self.rows is not None) + ["across_ranks=True"] * self.across_ranks
        return ", ".join([super().extra_repr(), *own])  # type: ignore[no-untyped-call]

    def _has_dtype(self, input: Tensor) -> bool:
        """Whether torch's norm computes in the dtype of parameters and statistics, with as many digits as ours."""
        others = (self.weight, self.bias, self.running_mean, self.running_var)
        return input.dtype in DTYPES and all(other is None or other.dtype == input.dtype for other in others)

    def _by_torch(self, input: Tensor, num_real: int) -> Tensor:
        """Normalise the first rows, two at least, by torch's own norm: of a single row it would return NaN."""
        front = super().forward(input[:num_real])
        padding = (0, 0) * (input.ndim - 1) + (0, len(input) - num_real)
        return nn.functional.pad(front, padding)

    def _by_sums(self, input: Tensor, mask: Tensor) -> Tensor:
        """Normalise by masked sums."""
        if self.training or self.running_mean is None or self.running_var is None:
            statistics = row_statistics(input, mask, self._over_ranks if self._sums_over_ranks() else None)
            if self.training and self.track_running_stats:
                self._update_statistics(*(each.detach() for each in statistics))
            _, mean, variance = statistics
        else:
            exact = statistics_dtype(input.dtype)
            mean, variance = self.running_mean.to(exact), self.running_var.to(exact)
        return normalised(input, mask, mean, torch.rsqrt(variance + self.eps), self.weight, self.bias)

    def _sums_over_ranks(self) -> bool:
        return self.training and self.across_ranks and dist.is_available() and dist.is_initialized()

    def _over_ranks(self, sums: Tensor) -> Tensor:
        """Sums over all ranks; gradients are summed likewise."""
        return cast(Tensor, _SumOverRanks.apply(sums, self.group))  # type: ignore[no-untyped-call]

    def _update_statistics(self, rows: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics, without reading values on the host."""
        if self.running_mean is None or self.running_var is None:
            return
        any_row = rows > 0
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(any_row)
        if self.momentum is None:
            if self.num_batches_tracked is None:
                return
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
