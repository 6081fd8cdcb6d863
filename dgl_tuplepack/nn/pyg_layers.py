"""Apply the masks of the batch in PyG layers by hooks, so that results of real rows do not depend on padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dgl_tuplepack.nn.masks import current_mask


def _graph_of_real_rows(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """For a norm that is called without `batch`: pass real rows as one graph, and padding as a second graph."""
    x, batch = _first(("x", "batch"), args, kwargs)
    real = None if batch is not None else _real_rows(module, x)
    # x, batch and batch_size.
    return None if real is None else ((x, (~real).long(), 2), {})


def _layer_norm(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: Tensor) -> Tensor | None:
    """Normalise over all real entries, if the norm is called without `batch` and its mode is "graph".

    `_graph_of_real_rows` would give other results: with `batch`, LayerNorm adds its epsilon at another step.
    """
    x, batch = _first(("x", "batch"), args, kwargs)
    real = None if batch is not None or module.mode != "graph" else _real_rows(module, x)
    if real is None:
        return None
    padding, number = ~real[:, None], real.sum().clamp(min=1) * x.shape[1]
    x = x.masked_fill(padding, 0)
    x = (x - x.sum() / number).masked_fill(padding, 0)
    # Without real rows the variance is 0. The root of 0 has an infinite derivative, so use the root of 1, times 0.
    variance = x.square().sum() / number
    x = x / (torch.where(variance > 0, variance, 1).sqrt() * (variance > 0) + module.eps)
    out: Tensor = x if module.weight is None else x * module.weight + module.bias
    return out


def _largest_real_group(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Make an aggregation pad groups to the largest number of real rows in a group.

    Groups of padding can be larger; the aggregation then leaves out their last rows.
    """
    x, index = _first(("x", "index"), args, kwargs)
    real = None if index is None or kwargs.get("max_num_elements") is not None else _real_rows(module, x)
    # PyG's Aggregation always passes `dim_size`, the number of groups, by name.
    if real is None or not kwargs["dim_size"]:
        return None
    most = int(index.new_zeros(kwargs["dim_size"]).index_add(0, index, real.long()).max())
    if most == 0:
        return None
    # PatchTransformerAggregation expects one more than the size of the largest group.
    return args, {**kwargs, "max_num_elements": most + (type(module).__name__ == "PatchTransformerAggregation")}


def _padding_in_small_graphs(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Divide padding rows into graphs of their own, none larger than the largest real graph.

    The layers with this hook pad each graph to the size of the largest graph. One large graph of padding rows would
    cost time and, except with torch's attention, change the results of real rows.
    """
    x, edge_index, batch = _first(("x", "edge_index", "batch"), args, kwargs)
    real = _real_rows(module, x)
    if real is None:
        return None
    batch = torch.zeros_like(real, dtype=torch.long) if batch is None else batch
    sizes = batch.new_zeros(int(batch.max()) + 1 if len(batch) else 1).index_add(0, batch, real.long())
    # Real rows get numbers too, which are not used.
    padding_index = (~real).long().cumsum(0) - 1
    padding_graphs = len(sizes) + padding_index // sizes.max().clamp(min=1)
    others = {name: value for name, value in kwargs.items() if name not in ("x", "edge_index", "batch")}
    return (x, edge_index, torch.where(real, batch, padding_graphs), *args[3:]), others


def _first(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the values of a call's first arguments, whose names are `names`; None for a missing argument."""
    return [args[i] if i < len(args) else kwargs.get(name) for i, name in enumerate(names)]


def _real_rows(module: nn.Module, x: Tensor) -> Tensor | None:
    """Return the mask of the rows of `x`, True = real; None if nothing is padding."""
    row_mask = current_mask(x, module.masked_rows, module)  # type: ignore[arg-type]
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
# PyG classes that mix rows inside their methods, which hooks cannot change. VGAE, ARGA and ARGVA are subclasses of GAE.
_WITHOUT_MASKS = {"DeepGraphInfomax", "EquilibriumAggregation", "GAE", "HANConv", "HeteroBatchNorm"}


def has_hook(module: nn.Module) -> bool:
    """Return whether `add_hook` can make the real rows of this layer independent of padding."""
    name = _forward_class(module)
    # The running statistics of an InstanceNorm are means over all graphs and padding.
    return name in _HOOKS and not (name == "InstanceNorm" and bool(module.track_running_stats))


def add_hook(module: Any) -> None:
    """Make a layer read the masks of the batch, unless it already does; parameters and their names do not change.

    The new attribute `masked_rows` is the component of the rows; None: the number of rows identifies the component.
    """
    if hasattr(module, "masked_rows"):
        return
    hook = _HOOKS[_forward_class(module)]
    module.masked_rows = None
    if hook is _layer_norm:
        module.register_forward_hook(hook, with_kwargs=True)
    else:
        module.register_forward_pre_hook(hook, with_kwargs=True)


def mixes_rows(module: nn.Module) -> bool:
    """Return whether a layer is of a PyG class that mixes rows, or of a subclass of one, and cannot get a hook."""
    names = {each.__name__ for each in type(module).__mro__ if _is_of_pyg(each)}
    return bool(names & (_WITHOUT_MASKS | _HOOKS.keys())) and not has_hook(module)


def _forward_class(module: nn.Module) -> str:
    """Return the name of the PyG class whose forward pass this layer uses; empty if the class is not from PyG."""
    owner = next((each for each in type(module).__mro__ if "forward" in vars(each)), nn.Module)
    return owner.__name__ if _is_of_pyg(owner) else ""


def _is_of_pyg(layer_class: type) -> bool:
    return layer_class.__module__.partition(".")[0] == "torch_geometric"
