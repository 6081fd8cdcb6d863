"""Hooks that apply the masks of the batch in PyG layers whose real rows would otherwise depend on padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dgl_tuplepack.nn.masks import current_mask


def _graph_of_real_rows(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Pass real rows as one graph and padding as another, to a norm that is called without `batch`."""
    x, batch = _first(("x", "batch"), args, kwargs)
    real = None if batch is not None else _real_rows(module, x)
    return None if real is None else ((x, (~real).long(), 2), {})


def _layer_norm(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: Tensor) -> Tensor | None:
    """Normalise by all real entries; with `batch`, this norm would add its epsilon elsewhere in the formula."""
    x, batch = _first(("x", "batch"), args, kwargs)
    real = None if batch is not None or module.mode != "graph" else _real_rows(module, x)
    if real is None:
        return None
    padding, number = ~real[:, None], real.sum().clamp(min=1) * x.shape[1]
    x = x.masked_fill(padding, 0)
    x = (x - x.sum() / number).masked_fill(padding, 0)
    # The derivative of the root is infinite at 0, where there is no real row.
    variance = x.square().sum() / number
    x = x / (torch.where(variance > 0, variance, 1).sqrt() * (variance > 0) + module.eps)
    out: Tensor = x if module.weight is None else x * module.weight + module.bias
    return out


def _largest_real_group(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Limit an aggregation, which runs one step for each element of the largest group, to the largest real group."""
    x, index = _first(("x", "index"), args, kwargs)
    real = None if index is None or kwargs.get("max_num_elements") is not None else _real_rows(module, x)
    if real is None or not kwargs["dim_size"]:
        return None
    most = int(index.new_zeros(kwargs["dim_size"]).index_add(0, index, real.long()).max())
    if most == 0:
        return None
    # PatchTransformerAggregation counts one element more.
    return args, {**kwargs, "max_num_elements": most + (type(module).__name__ == "PatchTransformerAggregation")}


def _padding_in_small_graphs(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Divide padding into graphs no larger than the largest real graph: the largest size decides on attention's cost.

    Attention other than torch's, which has a mask of its own, depends on that size too.
    """
    x, edge_index, batch = _first(("x", "edge_index", "batch"), args, kwargs)
    real = _real_rows(module, x)
    if real is None:
        return None
    batch = torch.zeros_like(real, dtype=torch.long) if batch is None else batch
    sizes = batch.new_zeros(int(batch.max()) + 1 if len(batch) else 1).index_add(0, batch, real.long())
    padding = (~real).long().cumsum(0) - 1
    slots = len(sizes) + padding // sizes.max().clamp(min=1)
    others = {name: value for name, value in kwargs.items() if name not in ("x", "edge_index", "batch")}
    return (x, edge_index, torch.where(real, batch, slots), *args[3:]), others


def _first(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the first arguments, given by position or by name; None for arguments not given."""
    return [args[i] if i < len(args) else kwargs.get(name) for i, name in enumerate(names)]


def _real_rows(module: nn.Module, x: Tensor) -> Tensor | None:
    row_mask = current_mask(x, module.masked_rows, type(module).__name__)  # type: ignore[arg-type]
    return None if row_mask is None else row_mask.mask


_HOOKS = {
    **dict.fromkeys(
        ("GraphNorm", "GraphSizeNorm", "InstanceNorm", "MeanSubtractionNorm", "PairNorm"), _graph_of_real_rows
    ),
    **dict.fromkeys(
        ("GRUAggregation", "LCMAggregation", "LSTMAggregation", "PatchTransformerAggregation"), _largest_real_group
    ),
    **dict.fromkeys(("GPSConv", "Polynormer", "SGFormer"), _padding_in_small_graphs),
    "LayerNorm": _layer_norm,
}
# Layers that mix rows in ways that a mask cannot undo from outside; VGAE, ARGA and ARGVA are subclasses of GAE.
_WITHOUT_MASKS = {"DeepGraphInfomax", "EquilibriumAggregation", "GAE", "HANConv", "HeteroBatchNorm"}


def has_hook(module: nn.Module) -> bool:
    """Return whether a hook makes the real rows of this layer independent of padding."""
    return _forward_class(module) in _HOOKS and not _mixes_graphs(module)


def add_hook(module: Any) -> None:
    """Make a layer read the masks of the batch, unless it does already; its parameters and their names stay."""
    if hasattr(module, "masked_rows"):
        return
    hook = _HOOKS[_forward_class(module)]
    module.masked_rows = None
    if hook is _layer_norm:
        module.register_forward_hook(hook, with_kwargs=True)
    else:
        module.register_forward_pre_hook(hook, with_kwargs=True)


def mixes_rows(module: nn.Module) -> bool:
    """Return whether this is a PyG layer, or a subclass of one, whose real rows depend on padding and no hook helps."""
    names = {each.__name__ for each in type(module).__mro__ if _is_of_pyg(each)}
    return bool(names & (_WITHOUT_MASKS | _HOOKS.keys())) and not has_hook(module)


def _forward_class(module: nn.Module) -> str:
    """Return the name of the PyG class whose forward pass this layer uses; empty if the class is not from PyG."""
    owner = next((each for each in type(module).__mro__ if "forward" in vars(each)), nn.Module)
    return owner.__name__ if _is_of_pyg(owner) else ""


def _mixes_graphs(module: Any) -> bool:
    """Return whether running statistics of an InstanceNorm average over all graphs, including padding."""
    return _forward_class(module) == "InstanceNorm" and bool(module.track_running_stats)


def _is_of_pyg(layer_class: type) -> bool:
    return layer_class.__module__.partition(".")[0] == "torch_geometric"
