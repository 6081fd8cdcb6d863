"""Losses and means over real entries: padding and missing labels change neither the value nor the gradients."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dgl_tuplepack._core.checks import real_number, shown
from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn.masks import check_mask


def masked_loss(
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    outputs: Tensor,
    labels: Any,
    batch_or_mask: Any,
    *,
    count: float | Tensor | None = None,
    missing: float | None = math.nan,
) -> Tensor:
    """Return the mean of a loss over the labels that are real and not missing.

    Before `loss_fn` is called, entries of missing labels and of padding are replaced by 0, both in `outputs` and in
    `labels`. So their gradients are 0, whatever their values were.

    Parameters
    ----------
    loss_fn
        Function or module that returns a loss for each label: ``torch.nn.BCEWithLogitsLoss(reduction="none")``.
    outputs
        Floats in the shape of `labels`, or ``[G, C, ...]`` for integer labels ``[G, ...]`` of C classes. If a row has
        more outputs than labels, such as a mean and a variance, outputs are replaced only in rows without any label.
    labels
        Tensor with one row for each slot, such as ``[G]`` for G graph slots, or ``[G, T]`` for T labels of each graph.
    batch_or_mask
        For graph labels, the `PaddedBatch`, its `tensors` or its `pyg`. For any labels, a bool mask, True = real, such
        as ``batch.node_mask``, whose shape is a leading part of the shape of `labels`.
    count
        Number of labels (not of graphs) to divide by, as in `masked_mean`: for labels ``[G, T]``,
        ``sampler.labels_per_batch(label_mask)``; for one label of each graph, ``sampler.graphs_per_batch``, or in
        compiled code ``sampler.count_tensor``. None: number of the labels here that are real and not missing.
    missing
        Value that marks a missing label; None if no labels are missing.

    Returns
    -------
    Tensor
        Scalar of the dtype of the losses; 0, with zero gradients, if all labels are missing or padding.

    Raises
    ------
    SchemaError
        The loss is reduced (give ``reduction="none"``), or outputs, labels, losses and mask do not match.

    Warns
    -----
    UserWarning
        Outputs of padding or of missing labels are not finite, so gradients can be NaN (checked only on the CPU,
        uncompiled). Or each row has as many outputs as there are rows, and a loss may mix rows.

    Examples
    --------
    >>> import torch
    >>> outputs = torch.zeros(4, requires_grad=True)
    >>> labels, mask = torch.tensor([1.0, float("nan"), 3.0, 7.0]), torch.tensor([True, True, True, False])
    >>> loss = masked_loss(torch.nn.MSELoss(reduction="none"), outputs, labels, mask)
    >>> loss.backward()
    >>> loss.item(), outputs.grad
    (5.0, tensor([-1.,  0., -3.,  0.]))
    """
    mask, has_classes = _checked(outputs, labels, batch_or_mask, missing)
    dropped = ~mask.reshape(mask.shape + (1,) * (labels.ndim - mask.ndim)).expand(labels.shape)
    if missing is not None:
        dropped = dropped | (labels.isnan() if math.isnan(missing) else labels == missing)
    left_out = dropped.unsqueeze(1) if has_classes else dropped
    if outputs.shape != labels.shape and not has_classes:
        # It is unknown which outputs in a row belong to which label.
        left_out = dropped.unsqueeze(1).flatten(1).all(1).reshape((-1,) + (1,) * (outputs.ndim - 1))
    _warn_if_not_finite(outputs, left_out)
    try:
        losses = loss_fn(outputs.masked_fill(left_out, 0), labels.masked_fill(dropped, 0))
    except RuntimeError as error:
        if not labels.is_floating_point():
            error.add_note(f"The labels are {labels.dtype}. If the loss needs floats, pass labels.float().")
        elif outputs.shape != labels.shape:
            error.add_note(f"The outputs have shape {tuple(outputs.shape)}, the labels {tuple(labels.shape)}.")
        raise
    if not isinstance(losses, Tensor) or losses.ndim == 0:
        raise SchemaError(
            "the loss function returns no tensor, or a single number, which includes padding and missing labels; make "
            'it return a tensor with a loss for each label, with reduction="none".'
        )
    if losses.shape != labels.shape[: losses.ndim]:
        raise SchemaError(
            f"the loss function returns shape {tuple(losses.shape)} for labels of shape {tuple(labels.shape)} and "
            f"outputs of shape {tuple(outputs.shape)}; give it outputs and labels that match."
        )
    if not has_classes:
        _warn_if_broadcast(outputs, labels)
    if losses.ndim < labels.ndim:
        # One loss covers several labels, such as class probabilities. Drop a loss if any of its labels is dropped.
        dropped = dropped.flatten(losses.ndim).any(dim=-1)
    return masked_mean(losses, ~dropped, count=count)


def _checked(outputs: Tensor, labels: Any, batch_or_mask: Any, missing: float | None) -> tuple[Tensor, bool]:
    """Return the mask, and whether axis 1 of the outputs has classes; raise SchemaError if arguments do not fit."""
    for what, value in (("outputs", outputs), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise SchemaError(f"the {what} must be a tensor, but are {type(value).__name__}; give a tensor.")
    if not (missing is None or (isinstance(missing, int | float) and not isinstance(missing, bool))):
        raise SchemaError(f"missing must be a number or None, but is {shown(missing)}; for example, give float('nan').")
    mask = batch_or_mask if isinstance(batch_or_mask, Tensor) else getattr(batch_or_mask, "graph_mask", None)
    if not isinstance(mask, Tensor):
        raise SchemaError(
            f"masked_loss() needs a padded batch, its tensors or a bool mask, but got {type(batch_or_mask).__name__}; "
            "give a batch from a loader with padded=True. Without padding, divide the sum of the losses by "
            "loader.graphs_per_batch."
        )
    check_mask(labels, mask)
    is_same = outputs.shape == labels.shape
    has_classes = not (is_same or labels.is_floating_point()) and labels.shape == outputs.shape[:1] + outputs.shape[2:]
    # If torch broadcasts more outputs to fewer labels, there are more losses than labels, which is refused later.
    has_more = outputs.shape[:1] == labels.shape[:1] and math.prod(outputs.shape[1:]) > math.prod(labels.shape[1:])
    if not (is_same or has_classes or has_more):
        raise SchemaError(
            f"outputs of shape {tuple(outputs.shape)} do not fit labels of shape {tuple(labels.shape)} "
            f"({labels.dtype}), though torch may broadcast them; reshape one of them, as in outputs.squeeze(-1)."
        )
    return mask, has_classes


def _warn_if_broadcast(outputs: Tensor, labels: Tensor) -> None:
    """Warn if torch can broadcast labels over the wrong axes of the outputs, so that a loss mixes rows unnoticed."""
    pairs = zip(outputs.shape[::-1], labels.shape[::-1], strict=False)
    fits = outputs.ndim > labels.ndim and labels.numel() > 1 and all(a == b or 1 in (a, b) for a, b in pairs)
    if fits and not is_traced():
        warnings.warn(
            f"outputs {list(outputs.shape)} have as many columns as rows, so a loss that compares them with labels "
            f"{list(labels.shape)} may mix rows without an error; in the loss, use labels.unsqueeze(-1).",
            stacklevel=3,
        )


def _warn_if_not_finite(outputs: Tensor, left_out: Tensor) -> None:
    """Warn if outputs that the loss leaves out are not finite, unless the check would wait for a device."""
    if is_traced() or outputs.device.type != "cpu" or not outputs.requires_grad:
        return
    try:
        # If the sum is finite, all outputs are. In most steps this is the only cost.
        values = outputs.detach()
        if values.sum().isfinite() or values.masked_fill(~left_out, 0).isfinite().all():
            return
    except RuntimeError:
        # Inside torch.func.vmap, values cannot be read.
        return
    # Python shows equal texts once for each line of the user's code.
    warnings.warn(
        "outputs that the loss leaves out (padding, missing labels) are not finite, so gradients can be NaN although "
        "the loss is finite. Empty graph slots have no nodes: divide by number.clamp(min=1). Values of graphs are 0 in "
        "padding: give the loader label_fill=. Padding nodes all have the same position: give it coordinates=.",
        stacklevel=3,
    )


def masked_mean(values: Tensor, mask: Tensor, *, count: float | Tensor | None = None) -> Tensor:
    """Return the sum over the real entries, divided by the number of real entries in this batch, or by `count`.

    Packs of large graphs hold few graphs, so a mean over each batch would weigh large graphs more than small ones. For
    training, divide by the same number in all batches: ``count=sampler.graphs_per_batch``. Then the mean gradient over
    the steps of an epoch is the gradient of the mean loss over the dataset, also on several ranks. Without `count`, the
    result is the mean over this batch, for evaluation. If no entry is real, the result is 0, with zero gradients.

    Parameters
    ----------
    values
        Real or complex floats ``[G, ...]``, for example one loss for each graph slot. Values of padding must come from
        finite numbers, since the gradient of a NaN label is NaN; `masked_loss` avoids this.
    mask
        Bool ``[G]`` or any leading part of the shape of `values`; True = real.
    count
        Number of entries of the *mask* to divide by: positive and finite, a Python number or a 0-dimensional tensor
        (in compiled code). If the mask has fewer dimensions than `values`, `count` is multiplied by the number of
        values for each entry of the mask.

    Returns
    -------
    Tensor
        Scalar of the dtype of `values`.

    Raises
    ------
    SchemaError
        `values` are no floats; the mask is not bool, or does not fit them; or `count` is not positive and finite (not
        checked for tensors), or has a dimension.

    Examples
    --------
    >>> import torch
    >>> losses, mask = torch.tensor([1.0, 3.0, 100.0]), torch.tensor([True, True, False])
    >>> masked_mean(losses, mask)
    tensor(2.)
    >>> masked_mean(losses, mask, count=8.0)
    tensor(0.5000)
    """
    total = _masked_sum(values, mask)
    # Number of values for each entry of the mask.
    entries = max(1, math.prod(values.shape[mask.ndim :]))
    number = mask.sum().clamp(min=1) if count is None else _checked_count(count)
    return (total / (number * entries)).to(values.dtype)


def distributed_masked_mean(values: Tensor, mask: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Return this rank's contribution to the mean over the real entries of all ranks, for DistributedDataParallel.

    For R ranks with n real entries together, the result is ``R / n`` times the sum of this rank's entries. Since
    DistributedDataParallel averages gradients, they are as in one process that holds every graph. If no rank holds a
    real entry, the result is 0. It runs one all-reduce of an integer. Accumulated steps each contribute their mean.

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

    Examples
    --------
    >>> import torch
    >>> distributed_masked_mean(torch.tensor([1.0, 3.0, 100.0]), torch.tensor([True, True, False]))
    tensor(2.)
    """
    total, number = _masked_sum(values, mask), mask.sum() * math.prod(values.shape[mask.ndim :])
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(number, group=group)
        total = total * dist.get_world_size(group)
    return (total / number.clamp(min=1)).to(values.dtype)


def _checked_count(count: float | Tensor) -> float | Tensor:
    """Return `count`, which must be positive; values of tensors, and numbers in compiled code, are not checked."""
    hint = "give sampler.graphs_per_batch, or sampler.count_tensor in compiled code."
    if not isinstance(count, Tensor):
        return count if is_traced() else float(real_number("count", count, above=0, hint=hint, error=SchemaError))
    if count.ndim or count.is_complex() or count.dtype == torch.bool:
        raise SchemaError(
            "count must be a positive number, as a Python number or a 0-dimensional tensor, but is a tensor of "
            f"{count.dtype} with shape {tuple(count.shape)}; {hint}"
        )
    return count


def _masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Return the sum over the real entries; SchemaError unless `values` is a tensor of floats that `mask` fits."""
    if not isinstance(values, Tensor):
        raise SchemaError(f"the values must be a tensor of floats, but are {type(values).__name__}; give a tensor.")
    if not (values.is_floating_point() or values.is_complex()):
        raise SchemaError(f"the values must be floats, but are {values.dtype}; give values.float().")
    check_mask(values, mask)
    padding = ~mask.reshape(mask.shape + (1,) * (values.ndim - mask.ndim))
    return values.masked_fill(padding, 0).sum(dtype=statistics_dtype(values.dtype))


def statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype for sums: float32 for half precision, as in torch, to avoid overflow and lost digits."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
