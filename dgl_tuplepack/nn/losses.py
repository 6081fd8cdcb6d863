"""Losses over real labels: padding and missing labels change neither the value nor the gradients."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from torch import Tensor

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn.masks import check_mask
from dgl_tuplepack.nn.means import masked_mean


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
    `labels`. So the gradients of these entries are 0, whatever their values were. If NaN labels were masked after the
    loss instead, all gradients would be NaN.

    Parameters
    ----------
    loss_fn
        Function or module that returns a loss for each label: ``torch.nn.BCEWithLogitsLoss(reduction="none")``, or
        ``functools.partial(torch.nn.functional.huber_loss, reduction="none")``.
    outputs
        Floats in the shape of `labels`, or ``[G, C, ...]`` for integer labels ``[G, ...]`` of C classes. Each row may
        also have more outputs than labels, such as a mean and a variance, if `loss_fn` returns a loss for each label or
        each row; then outputs are replaced only in rows without any label.
    labels
        Tensor with one row for each slot: ``[G]`` for G graph slots, ``[G, T]`` for T labels of each graph, or another
        shape. If the batch has a dict of labels, give one tensor of the dict.
    batch_or_mask
        For graph labels, the `PaddedBatch`, its `tensors` or its `pyg`. For any labels, a bool mask, True = real, such
        as ``batch.node_mask`` for node labels. The shape of a mask is a leading part of the shape of `labels`.
    count
        Number of labels (not of graphs) that the sum of the losses is divided by, as in `masked_mean`. For labels
        ``[G, T]`` give ``sampler.labels_per_batch(label_mask)`` of the `PackBatchSampler`. If each graph has exactly
        one label, give ``sampler.graphs_per_batch``, or in compiled code ``sampler.count_tensor``. None: the number of
        labels in this batch that are real and not missing.
    missing
        Value that marks a missing label; None if no labels are missing.

    Returns
    -------
    Tensor
        Scalar of the dtype of the losses; 0, with zero gradients, if all labels are missing or padding.

    Raises
    ------
    SchemaError
        The loss is reduced (give ``reduction="none"``); outputs, labels and losses do not match; or the mask does not
        fit the labels.

    Warns
    -----
    UserWarning
        Outputs of padding or of missing labels are not finite, so gradients can be NaN although the loss is finite.
        This is checked only on the CPU, outside compiled code, and if `outputs` require gradients. Or each row has as
        many outputs as there are rows, so that a loss without ``labels.unsqueeze(-1)`` would mix rows.

    Examples
    --------
    >>> import torch
    >>> outputs = torch.zeros(4, requires_grad=True)
    >>> labels, mask = torch.tensor([1.0, float("nan"), 3.0, 7.0]), torch.tensor([True, True, True, False])
    >>> loss = masked_loss(torch.nn.MSELoss(reduction="none"), outputs, labels, mask)
    >>> loss
    tensor(5., grad_fn=<DivBackward0>)
    >>> loss.backward()
    >>> outputs.grad
    tensor([-1.,  0., -3.,  0.])
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
            "give a batch from a loader with padded=True. Without padding, no mask is needed: divide the sum of the "
            "losses by loader.graphs_per_batch, so that all graphs weigh equally."
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
        "the loss is finite. Empty graph slots have no nodes: in a mean, divide by number.clamp(min=1). Values of "
        "graphs are 0 in padding, and so is a determinant: give the loader label_fill=. Padding nodes all have the "
        "same position: give it coordinates=.",
        stacklevel=3,
    )
