"""Layers of PyG whose real rows depend on padding: hooks that give them the masks of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dgl_tuplepack.nn.masks import current_mask


def _graph_of_real_rows(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Give a norm that is called without `batch` real rows as one graph, and padding as another."""
    x, batch = _first(("x", "batch"), args, kwargs)
    real = None if batch is not None else _real_rows(module, x)
    return None if real is None else ((x, (~real).long(), 2), {})


def _layer_norm(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: Tensor) -> Tensor | None:
    """Normalise by all real entries; called with `batch`, this norm adds its epsilon in another place."""
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
    """Give an aggregation that runs over as many steps as the largest group has elements that of real groups."""
    x, index = _first(("x", "index"), args, kwargs)
    real = None if index is None or kwargs.get("max_num_elements") is not None else _real_rows(module, x)
    if real is None or not kwargs["dim_size"]:
        return None
    most = int(index.new_zeros(kwargs["dim_size"]).index_add(0, index, real.long()).max())
    if most == 0:
        return None
    # It counts one element more.
    return args, {**kwargs, "max_num_elements": most + (type(module).__name__ == "PatchTransformerAggregation")}


def _padding_in_small_graphs(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Divide padding into graphs no larger than the largest real one, whose size this attention depends on."""
    x, edge_index, batch = _first(("x", "edge_index", "batch"), args, kwargs)
    # Attention of torch within graphs has a mask of its own.
    is_exact = getattr(module, "attn_type", None) == "multihead" and batch is not None
    real = None if is_exact else _real_rows(module, x)
    if real is None:
        return None
    batch = torch.zeros_like(real, dtype=torch.long) if batch is None else batch
    sizes = batch.new_zeros(int(batch.max()) + 1 if len(batch) else 1).index_add(0, batch, real.long())
    padding = (~real).long().cumsum(0) - 1
    slots = len(sizes) + padding // sizes.max().clamp(min=1)
    others = {name: value for name, value in kwargs.items() if name not in ("x", "edge_index", "batch")}
    return (x, edge_index, torch.where(real, batch, slots), *args[3:]), others


def _first(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the first arguments, given by position or by name; None for those not given."""
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
# They mix rows in ways that a mask cannot undo from outside.
_WITHOUT_MASKS = {"DeepGraphInfomax", "EquilibriumAggregation", "HANConv", "HeteroBatchNorm"}


def has_hook(module: nn.Module) -> bool:
    """Whether `add_hook` makes the real rows of this layer right."""
    return _kind(module) in _HOOKS and not _mixes_graphs(module)


def add_hook(module: Any) -> None:
    """Let a layer read the masks of the batch, once; its parameters and their names stay."""
    if hasattr(module, "masked_rows"):
        return
    hook = _HOOKS[_kind(module)]
    module.masked_rows = None
    if hook is _layer_norm:
        module.register_forward_hook(hook, with_kwargs=True)
    else:
        module.register_forward_pre_hook(hook, with_kwargs=True)


def mixes_rows(module: nn.Module) -> bool:
    """Whether this is a layer of PyG, or a class made from one, whose real rows depend on padding without remedy."""
    names = {each.__name__ for each in type(module).__mro__ if _is_of_pyg(each)}
    return bool(names & (_WITHOUT_MASKS | _HOOKS.keys())) and not has_hook(module)


def _kind(module: nn.Module) -> str:
    """Return the name of the class of PyG whose forward pass this layer has; empty if it has another one."""
    owner = next((each for each in type(module).__mro__ if "forward" in vars(each)), nn.Module)
    return owner.__name__ if _is_of_pyg(owner) else ""


def _mixes_graphs(module: Any) -> bool:
    """Running statistics of an InstanceNorm are means over all graphs, and padding among them."""
    return _kind(module) == "InstanceNorm" and bool(module.track_running_stats)


def _is_of_pyg(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch_geometric"
