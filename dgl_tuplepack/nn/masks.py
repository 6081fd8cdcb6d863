"""Keep the masks of the batch that a model is applied to, for layers that read them; and check masks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.compiling.torch_private import known_equal, may_be_equal
from dgl_tuplepack.errors import SchemaError


class RowMask(NamedTuple):
    """The mask of one component of a batch, and the number of its real rows."""

    # Bool ``[N]``, True = real.
    mask: Tensor
    # None, unless the real rows come first and their number is known on the host.
    num_real: int | None
    # Whether the component is tied to another component of the batch, which has an equal mask.
    is_tied: bool = False


class _Current(threading.local):
    """The masks of the innermost scope of `masked` in this thread; None outside a scope."""

    def __init__(self) -> None:
        # Set on the instance, since torch's compiler guards class attributes differently.
        self.masks: Mapping[str, RowMask] | None = None


_current = _Current()


class masked:
    """Provide the masks of a batch to layers that read masks, within a scope ``with masked(batch):``.

    Parameters
    ----------
    batch
        The `PaddedBatch` that the model is applied to, its `tensors` or its `pyg`; None if nothing is padding, as in
        the result of ``dgl.batch``.

    Notes
    -----
    A layer reads the mask of the component that has as many slots as the layer's input has rows: the nodes of a type,
    the edges of a type, or the graphs. If several components have that many slots, name one with
    ``convert(model, rows={...})``; components that are tied to each other count as one, since their masks are equal.

    A scope may be inside a compiled function, or around a call of it. The innermost scope of the thread applies. With
    ``torch.utils.checkpoint``, enter the scope inside the checkpointed function, which may run in another thread.

    Examples
    --------
    >>> import dgl, torch
    >>> from dgl_tuplepack import Limits, PaddedCollate, nn
    >>> pair = dgl.graph(([0, 1], [1, 0]))
    >>> pair.ndata["x"] = torch.tensor([[1.0], [3.0]])
    >>> batch = PaddedCollate(Limits(nodes=3, edges=2, graphs=1), example=pair)([pair])
    >>> norm = nn.convert(torch.nn.BatchNorm1d(1), verbose=False)
    >>> with masked(batch):
    ...     norm(batch.node_features["x"]).detach().round().flatten().tolist()
    [-1.0, 1.0, 0.0, 0.0]
    """

    def __init__(self, batch: Any) -> None:
        if batch is not None and (isinstance(batch, type) or not hasattr(batch, "row_masks")):
            raise SchemaError(
                "masked() needs a PaddedBatch or its tensors, or None if nothing is padding, but got "
                f"{type(batch).__name__}; give a batch from PaddedCollate or a store's padded view."
            )
        self._masks: Mapping[str, RowMask] = {} if batch is None else batch.row_masks()
        self._before: list[Mapping[str, RowMask] | None] = []

    def __enter__(self) -> None:
        self._before.append(_current.masks)
        _current.masks = self._masks

    def __exit__(self, *error: object) -> None:
        _current.masks = self._before.pop()


def checked_rows(what: str, rows: object) -> str | None:
    """Return `rows`, a component's name or None; raise SchemaError for another type."""
    if rows is not None and not isinstance(rows, str):
        raise SchemaError(f"{what} must be the name of a component, but is {shown(rows)}; give a name such as 'nodes'.")
    return rows


def current_mask(input: Tensor, rows: str | None, layer: nn.Module) -> RowMask | None:
    """Return the mask of the component `rows` in the current batch, for the `input` of a layer; None without padding.

    If `rows` is None, the component is the only one with as many slots as `input` has rows. Otherwise SchemaError.
    """
    masks, number = _current.masks, input.shape[0]
    if masks is None:
        raise _refusal(number, rows, layer, None, [])
    if not masks:
        return None
    # Of tied components, only one counts, unless `rows` names the other.
    candidates = [name for name, each in masks.items() if (not each.is_tied if rows is None else name == rows)]
    fitting = [name for name in candidates if known_equal(masks[name].mask.shape[0], number)]
    if not fitting and is_traced() and "graphs" in candidates and may_be_equal(masks["graphs"].mask.shape[0], number):
        # Pools of PyG without a size make as many rows as there are graph slots, which the tracer does not know.
        torch._check(number == masks["graphs"].mask.shape[0])  # type: ignore[no-untyped-call]
        fitting = ["graphs"]
    if len(fitting) != 1:
        raise _refusal(number, rows, layer, masks, fitting)
    return masks[fitting[0]]


def current_graph_mask(number: int) -> Tensor | None:
    """Return which of `number` graphs are real by the innermost scope of `masked`; None if it has no such mask."""
    row_mask = (_current.masks or {}).get("graphs")
    return row_mask.mask if row_mask is not None and known_equal(row_mask.mask.shape[0], number) else None


def _refusal(
    number: int, rows: str | None, layer: nn.Module, masks: Mapping[str, RowMask] | None, fitting: list[str]
) -> SchemaError:
    """Return the error for a layer that has no mask, or for which no mask or several masks fit."""
    # Only messages read the name: code that reads it would be compiled again for each name.
    name, is_norm = getattr(layer, "name_in_model", ""), isinstance(layer, nn.BatchNorm1d)
    kind = "norm" if is_norm else type(layer).__name__
    who = f"{kind} {name!r}" if name else "a norm" if is_norm else kind
    if masks is None:
        by_hand = ", or give the mask as the second argument" if is_norm else ""
        return SchemaError(
            f"{who} over {number} rows has no mask; call the model inside `with tp.nn.masked(batch):` (masked(None) if "
            f"nothing is padding){by_hand}. With torch.utils.checkpoint, enter it inside the checkpointed function."
        )
    slots = ", ".join(f"{name} ({len(row_mask.mask)})" for name, row_mask in masks.items())
    if rows is not None:
        problem = f"is bound to {rows!r} and has {number} rows, but the batch has the slots {slots}"
        remedy = "bind it to another component with convert(model, rows={...})"
    elif fitting:
        problem = f"has {number} rows, and {' and '.join(fitting)} have that many slots: {slots}"
        remedy = f"name one: convert(model, rows={{{name or 'NAME'!r}: {fitting[0]!r}}})"
    else:
        problem = f"has {number} rows, and no component of the batch has that many slots: {slots}"
        remedy = "give it one row for each node, edge or graph"
        if is_norm:
            remedy += (
                "; or, if the model made these rows (heads, pooled nodes, triplets), make it a "
                "tp.nn.MaskedBatchNorm1d, and give it their mask as the second argument"
            )
    return SchemaError(f"{who} {problem}; {remedy}.")


def as_row_mask(input: Tensor, mask: Tensor) -> RowMask:
    """Wrap `mask` in a `RowMask`; `num_real` is None unless `mask` is one of the masks of the current batch."""
    check_mask(input, mask)
    if mask.ndim != 1:
        raise SchemaError(f"the mask of rows must have shape [N], but has shape {tuple(mask.shape)}.")
    for known in (_current.masks or {}).values():
        if known.mask is mask:
            return known
    return RowMask(mask, None)


def check_mask(values: Tensor, mask: Tensor) -> None:
    """Raise SchemaError unless `mask` is bool, of shape ``values.shape[:mask.ndim]``, on the device of `values`."""
    if not isinstance(mask, Tensor):
        raise SchemaError(f"the mask must be a bool tensor, but is {type(mask).__name__}; give batch.graph_mask.")
    if mask.dtype != torch.bool or mask.shape != values.shape[: mask.ndim]:
        raise SchemaError(
            f"the mask must be bool, and its shape must be a leading part of the shape {tuple(values.shape)} of the "
            f"values, but it is {mask.dtype} with shape {tuple(mask.shape)}; use batch.node_mask, batch.edge_mask or "
            "batch.graph_mask."
        )
    if mask.device != values.device:
        raise SchemaError(f"the mask is on {mask.device}, but the values are on {values.device}; move one of them.")
