"""`torch.nn.BatchNorm1d` over real rows only: torch's norm applied to these rows, or masked sums over all rows."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dgl_tuplepack._core.checks import true_or_false
from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn.losses import statistics_dtype
from dgl_tuplepack.nn.masks import as_row_mask, checked_rows, current_mask


class MaskedBatchNorm1d(nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` with statistics of the real rows only.

    It has the parameters, buffers and state dict of its base class. Real rows have the same results as without padding;
    padding rows become 0. A batch without real rows leaves the running statistics unchanged. With a single real row,
    the variance is 0 (`torch.nn.BatchNorm1d` raises an error then). The mask is an argument of the call, or is read
    from ``with tp.nn.masked(batch):``. `convert` replaces the norms of a model by this layer.

    Parameters
    ----------
    num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        As in the base class.
    across_ranks
        Whether training uses statistics of the real rows of all ranks, as `torch.nn.SyncBatchNorm`, which has no mask.
    group
        Processes whose rows are combined; each must call this layer in each step. None: all processes.
    rows
        Component whose mask is read from `masked`: ``nodes``, ``edges`` or ``graphs``, and with several types
        ``nodes:TYPE`` or ``edges:SRC:TYPE:DST``. None: the component with as many slots as the input has rows.

    Notes
    -----
    Torch's own norm runs on the real rows of a padded batch. With any other mask, in compiled code, and in training
    with `across_ranks` (two small all-reduces in each pass), statistics are computed by masked sums instead.

    Do not apply ``SyncBatchNorm.convert_sync_batchnorm`` (Lightning's ``sync_batchnorm=True``) to a model with this
    layer: torch's SyncBatchNorm would take its place, which includes padding even inside `masked`.

    Examples
    --------
    >>> import torch
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
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        if not true_or_false("bias", bias, SchemaError):
            # Older releases of torch have no argument `bias`.
            self.register_parameter("bias", None)
        self.across_ranks = true_or_false("across_ranks", across_ranks, SchemaError)
        self.group = group
        self.rows = checked_rows("rows", rows)

    def forward(self, input: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalise `input` ``[N, C]`` or ``[N, C, L]``; `mask` is bool ``[N]``, True = real."""
        if not isinstance(input, Tensor):
            raise SchemaError(f"the input must be a tensor, but is {type(input).__name__}; give [N, C] or [N, C, L].")
        if input.ndim not in (2, 3) or input.shape[1] != self.num_features:
            raise SchemaError(
                f"the input must have {self.num_features} channels, as set by num_features, but has shape "
                f"{tuple(input.shape)}; give [N, C] or [N, C, L] with C = {self.num_features}."
            )
        if not input.is_floating_point():
            raise SchemaError(f"the input must be real floats, but is {input.dtype}; give input.float().")
        row_mask = current_mask(input, self.rows, self) if mask is None else as_row_mask(input, mask)
        num_real = len(input) if row_mask is None else row_mask.num_real
        by_sums = is_traced() or self._sums_over_ranks()
        # For fewer than two rows, torch's norm raises an error or returns NaN.
        if by_sums or num_real is None or num_real < 2:
            everywhere = torch.ones(len(input), dtype=torch.bool, device=input.device)
            return self._by_sums(input, everywhere if row_mask is None else row_mask.mask)
        if num_real == len(input):
            return super().forward(input)
        # In the backward pass, `split_with_sizes` and `cat` copy less data than slicing and padding would.
        front, padding = input.split_with_sizes([num_real, len(input) - num_real])
        return torch.cat([super().forward(front), torch.zeros_like(padding)])

    def extra_repr(self) -> str:
        """Return the settings of the base class, and settings of this layer that differ from the defaults."""
        own = [f"rows={self.rows!r}"] * (self.rows is not None) + ["across_ranks=True"] * self.across_ranks
        return ", ".join([super().extra_repr(), *own])  # type: ignore[no-untyped-call]

    def _by_sums(self, input: Tensor, mask: Tensor) -> Tensor:
        """Normalise by masked sums, or running statistics, for any `mask`, bool ``[N]``; never wait for the device."""
        real = mask.reshape((-1,) + (1,) * (input.ndim - 1))
        zero = torch.zeros((), dtype=input.dtype, device=input.device)
        x = torch.where(real, input, zero).to(statistics_dtype(input.dtype))
        if self.training or self.running_mean is None or self.running_var is None:
            number, mean, variance = self._statistics(x, mask, real)
            if self.training and self.track_running_stats:
                self._update_statistics(number.detach(), mean.detach(), variance.detach())
        else:
            mean, variance = self.running_mean.to(x.dtype), self.running_var.to(x.dtype)
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        result = (x - _of_channels(mean, x)) * _of_channels(scale, x)
        if self.bias is not None:
            result = result + _of_channels(self.bias, x)
        return torch.where(real, result, torch.zeros_like(result)).to(input.dtype)

    def _statistics(self, x: Tensor, mask: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the number of real values in a channel, and the mean and biased variance of each channel, ``[C]``."""
        dims, across_ranks = [dim for dim in range(x.ndim) if dim != 1], self._sums_over_ranks()
        number = mask.sum() * (x.shape[2] if x.ndim == 3 else 1)
        total, number = x.sum(dims), number.to(x.dtype)
        if across_ranks:
            # One all-reduce for both sums.
            both = self._over_ranks(torch.cat([total, number.reshape(1)]))
            total, number = both[:-1], both[-1].detach()
        mean = total / number.clamp(min=1)
        deviation = torch.where(real, x - _of_channels(mean, x), torch.zeros_like(x))
        # Sum up squared deviations: the mean of squares minus the square of the mean would lose digits.
        squares = deviation.square().sum(dims)
        return number, mean, (self._over_ranks(squares) if across_ranks else squares) / number.clamp(min=1)

    def _sums_over_ranks(self) -> bool:
        return self.training and self.across_ranks and dist.is_available() and dist.is_initialized()

    def _over_ranks(self, sums: Tensor) -> Tensor:
        return cast(Tensor, _SumOverRanks.apply(sums, self.group))  # type: ignore[no-untyped-call]

    def _update_statistics(self, number: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics, unless `number` (of real values) is 0; never wait for the device."""
        running_mean, running_var = self.running_mean, self.running_var
        if running_mean is None or running_var is None:
            return
        if not is_traced():
            # Hide the update from autograd, as torch's norm does; else the backward pass refuses changed statistics.
            running_mean, running_var = running_mean.data, running_var.data
        has_values = number > 0
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(has_values)
        if self.momentum is None:
            if self.num_batches_tracked is None:
                return
            weight = 1.0 / self.num_batches_tracked.clamp(min=1).to(mean.dtype)
        else:
            weight = torch.full((), self.momentum, dtype=mean.dtype, device=mean.device)
        weight = torch.where(has_values, weight, torch.zeros_like(weight)).to(running_mean.dtype)
        unbiased = variance * number / (number - 1).clamp(min=1)
        running_mean.lerp_(mean.to(running_mean.dtype), weight)
        running_var.lerp_(unbiased.to(running_var.dtype), weight)


def _of_channels(values: Tensor, x: Tensor) -> Tensor:
    """Return the values ``[C]`` of the channels in a shape that broadcasts to `x` ``[N, C]`` or ``[N, C, L]``."""
    return values.reshape((1, -1) + (1,) * (x.ndim - 2))


class _SumOverRanks(torch.autograd.Function):
    """Sum values over ranks, and gradients too. Torch's public function is deprecated in favour of a private one."""

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
