"""Means over real entries, such as the losses of padded batches."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import Tensor

from dgl_tuplepack._core.checks import real_number
from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn.masks import check_mask


def masked_mean(values: Tensor, mask: Tensor, *, count: float | Tensor | None = None) -> Tensor:
    """Return the sum over the real entries, divided by the number of real entries in this batch, or by `count`.

    Packs of large graphs hold few graphs. If the sum of a batch is divided by the number of graphs in the batch, a
    large graph weighs more in an epoch than a small one. For training, divide by a number that is the same for all
    batches, such as the mean number of graphs of the batches of a `PackBatchSampler`::

        tp.nn.masked_mean(losses, batch.graph_mask, count=sampler.graphs_per_batch)

    Then the expected gradient of a step is the gradient of the mean loss over the dataset. If the model stays fixed,
    the mean gradient over the steps of an epoch is equal to that gradient. This holds on several ranks too, since
    DistributedDataParallel averages gradients over ranks. Without `count`, the result is the mean over this batch, for
    evaluation. If no entry is real, the result is 0, with zero gradients.

    Parameters
    ----------
    values
        Real or complex floats ``[G, ...]``, for example one loss for each graph slot.
    mask
        Bool ``[G]`` or any leading part of the shape of `values`; True = real.
    count
        Number of entries of the *mask* to divide by: positive and finite, a Python number or a 0-dimensional tensor
        (which ``torch.compile`` does not treat as a constant). If the mask has fewer dimensions than `values`, `count`
        is multiplied by the number of values for each entry of the mask. So if `count` equals the number of real
        entries of the mask, the result is the same as without `count`.

    Returns
    -------
    Tensor
        Scalar of the dtype of `values`.

    Raises
    ------
    SchemaError
        `values` holds integers or bools; the mask is not bool, or its shape is not a leading part of the shape of
        `values`; `count` is not positive and finite (not checked for tensors), or has one dimension or more.

    Notes
    -----
    The *values* of padding may be any numbers, but they must be computed from finite numbers. For example, the loss of
    a NaN label has the gradient NaN. A mask multiplies this gradient by 0, which gives NaN. `masked_loss` avoids this.

    Examples
    --------
    >>> import torch
    >>> losses, mask = torch.tensor([1.0, 3.0, 100.0]), torch.tensor([True, True, False])
    >>> masked_mean(losses, mask)
    tensor(2.)
    >>> masked_mean(losses, mask, count=8.0)
    tensor(0.5000)
    """
    _check_values(values, mask)
    # Number of values for each entry of the mask.
    entries = max(1, math.prod(values.shape[mask.ndim :]))
    number = mask.sum().clamp(min=1) if count is None else _checked_count(count)
    return (_masked_sum(values, mask) / (number * entries)).to(values.dtype)


def distributed_masked_mean(values: Tensor, mask: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Return this rank's contribution to the mean over the real entries of all ranks, for DistributedDataParallel.

    Ranks hold different numbers of real graphs, so the mean of the ranks' means is not the mean over all graphs. For R
    ranks, with real entries x on rank r and n real entries on all ranks together, the result on rank r is::

        L_r = R / n * (sum of x on rank r)

    DistributedDataParallel averages gradients over ranks, and the mean of all L_r is (sum of all x) / n. So the
    gradients are equal to the gradients of one process that holds every graph, unless a layer has statistics of a
    single rank (see `across_ranks` of `MaskedBatchNorm1d`). If no rank holds a real entry, the result is 0.

    Parameters
    ----------
    values, mask
        As in `masked_mean`.
    group
        Processes that average their gradients; each process must call this function in each step. None: all processes.
        Without an initialised process group, the result is the same as from `masked_mean`.

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
    The function runs one all-reduce of a single integer, on the device of `values`; no gradient passes through the
    all-reduce. If gradients of several steps are accumulated, each step contributes its own mean.

    Examples
    --------
    >>> import torch
    >>> distributed_masked_mean(torch.tensor([1.0, 3.0, 100.0]), torch.tensor([True, True, False]))
    tensor(2.)
    """
    _check_values(values, mask)
    total, number = _masked_sum(values, mask), mask.sum() * math.prod(values.shape[mask.ndim :])
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(number, group=group)
        total = total * dist.get_world_size(group)
    return (total / number.clamp(min=1)).to(values.dtype)


def _checked_count(count: float | Tensor) -> float | Tensor:
    """Return `count`; raise SchemaError unless it is a positive number or a 0-dimensional tensor of a real number.

    The values of tensors, and numbers in compiled code, are not checked.
    """
    hint = "give sampler.graphs_per_batch, or sampler.count_tensor in compiled code."
    if not isinstance(count, Tensor):
        compiling = is_traced()
        return count if compiling else float(real_number("count", count, above=0, hint=hint, error=SchemaError))
    if count.ndim or count.is_complex() or count.dtype == torch.bool:
        raise SchemaError(
            "count must be a positive number, as a Python number or a 0-dimensional tensor, but is a tensor of "
            f"{count.dtype} with shape {tuple(count.shape)}; {hint}"
        )
    return count


def _check_values(values: Tensor, mask: Tensor) -> None:
    """Raise SchemaError unless `values` is a tensor of floats that `mask` fits."""
    if not isinstance(values, Tensor):
        raise SchemaError(f"the values must be a tensor of floats, but are {type(values).__name__}; give a tensor.")
    if not (values.is_floating_point() or values.is_complex()):
        raise SchemaError(f"the values must be floats, but are {values.dtype}; give values.float().")
    check_mask(values, mask)


def _masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    padding = ~mask.reshape(mask.shape + (1,) * (values.ndim - mask.ndim))
    return values.masked_fill(padding, 0).sum(dtype=statistics_dtype(values.dtype))


def statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype for sums: float32 for half precision, as in torch, to avoid overflow and lost digits."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
