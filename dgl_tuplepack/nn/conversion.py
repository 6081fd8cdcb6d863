"""Change the layers of any model, nested layers too, so that they read the masks of padded batches.

How data flows: ``with masked(batch):`` (`masks.py`) sets the masks of a batch for this thread. Layers that `convert`
has changed ask `current_mask` for the mask with as many rows as their input: a `MaskedBatchNorm1d` (`norm.py`) leaves
padding out of its means, and layers of PyG get a hook that changes their arguments. `masked_loss` (`losses.py`) takes
the masks from the batch that it gets.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dgl_tuplepack._core.checks import shown, true_or_false
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn.masks import checked_rows, current_mask
from dgl_tuplepack.nn.norm import MaskedBatchNorm1d

Model = TypeVar("Model", bound=nn.Module)
# Lazy norms must be listed: they are not subclasses of the other norms.
_BATCH_NORMS = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm,
    nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d,
)  # fmt: skip


def convert(model: Model, rows: Mapping[str, str] | None = None, *, verbose: bool = True) -> Model:
    """Change a model in place, so that layers that mix rows, such as batch norms, leave padding out.

    Every `torch.nn.BatchNorm1d` and `torch.nn.SyncBatchNorm`, also inside DGL and PyG layers, becomes a
    `MaskedBatchNorm1d` with the same parameters, buffers, hooks and names. These PyG layers get a hook:

    - GraphNorm, GraphSizeNorm, InstanceNorm, LayerNorm, MeanSubtractionNorm and PairNorm, if called without `batch`;
    - LSTMAggregation, GRUAggregation, LCMAggregation and PatchTransformerAggregation, which pad to the largest group;
    - GPSConv, SGFormer and Polynormer, which pad to the largest graph.

    Afterwards, call the model inside ``with tp.nn.masked(batch):``. Outside such a scope, the model raises SchemaError.

    Parameters
    ----------
    model
        Model or layer; state dicts stay compatible in both directions.
    rows
        Dict from a layer's name in ``model.named_modules()`` to the component of its rows: ``nodes``, ``edges`` or
        ``graphs``, or with several types ``nodes:TYPE`` or ``edges:SRC:TYPE:DST``. A layer needs an entry if another
        component has as many slots as its own.
    verbose
        Whether to print to stderr which layers read masks.

    Returns
    -------
    torch.nn.Module
        `model` itself.

    Raises
    ------
    SchemaError
        `model` is not a module; `rows` is not a dict, or has the name of a layer that reads no mask.

    Warns
    -----
    UserWarning
        Some layers mix rows, but stay as they are: PyG's HeteroBatchNorm, HANConv, EquilibriumAggregation,
        DeepGraphInfomax, and GAE with its subclasses; other norms with running statistics, such as BatchNorm2d, lazy
        norms that have not seen a batch, your own subclasses, and norms of other packages; and subclasses of the PyG
        layers above that override the forward pass. Norms that are called as functions are not found.

    Examples
    --------
    >>> import torch
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
    >>> [type(layer).__name__ for layer in convert(mlp, verbose=False)]
    ['Linear', 'MaskedBatchNorm1d', 'ReLU']
    """
    if not isinstance(model, nn.Module):
        raise SchemaError(f"convert() needs a torch.nn.Module, but got {type(model).__name__}; give a model.")
    if not isinstance(rows or {}, Mapping):
        raise SchemaError(f"rows must be a dict from names of layers to components, but is {shown(rows)}; give a dict.")
    true_or_false("verbose", verbose, SchemaError)
    modules = dict(model.named_modules())
    plain: dict[str, Any] = {n: each for n, each in modules.items() if type(each) in (nn.BatchNorm1d, nn.SyncBatchNorm)}
    norms = plain | {name: module for name, module in modules.items() if isinstance(module, MaskedBatchNorm1d)}
    hookable = {name: module for name, module in modules.items() if _has_hook(module)}
    # A layer that the model has in several places has several names.
    layers, bound = dict(model.named_modules(remove_duplicate=False)), dict[Any, str | None]()
    for name, component in (rows or {}).items():
        layer = layers.get(name)
        if layer not in (*norms.values(), *hookable.values()):
            raise SchemaError(
                f"rows has the name {shown(name)}, but the layers that read masks are "
                f"{shown([*norms, *hookable], 1000)}; give only names of these layers."
            )
        if bound.setdefault(layer, checked_rows(f"rows[{shown(name)}]", component)) != component:
            raise SchemaError(
                f"rows binds the layer {shown(name)} to {component!r}, but under another name to {bound[layer]!r}; use "
                "two layers, or leave it out."
            )
    for module in plain.values():
        # Change the class in place: references to the norm, its parameters and its hooks stay valid.
        module.across_ranks, module.group = isinstance(module, nn.SyncBatchNorm), getattr(module, "process_group", None)
        module.__class__, module.rows = MaskedBatchNorm1d, None
    for module in hookable.values():
        _add_hook(module)
    for name, layer in (norms | hookable).items():
        layer.__dict__["name_in_model"] = name
    for layer, chosen in bound.items():
        setattr(layer, "rows" if layer in norms.values() else "masked_rows", chosen)
    left = {name or "the model": each for name, each in model.named_modules() if _mixes_rows_without_masks(each)}
    if left:
        names = ", ".join(f"{name} ({type(each).__name__})" for name, each in left.items())
        warnings.warn(
            f"convert() leaves {names} unchanged, so padding can change results; replace such layers, or apply them "
            "only to the real rows.",
            stacklevel=2,
        )
    if verbose:
        reading = [name or "the model" for name in modules if name in plain or name in hookable]
        number = "1 layer reads masks" if len(reading) == 1 else f"{len(reading)} layers read masks"
        said = f"{number} now: {', '.join(reading)}" if reading else "no layer was changed."
        print(f"convert: {said}", file=sys.stderr)
    return model


class Masking:
    """A scope in which the layers of a model read masks, as after `convert`; outside of it, the model is as it was.

    In the scope, layers of DGL also accept nodes without incoming edges, such as nodes of padding. Only the classes of
    layers change: changes of their attributes would make torch check again all that compiled code depends on.
    """

    def __init__(self, model: nn.Module) -> None:
        # Module, and its classes outside and inside of the scope.
        self._changes: list[tuple[nn.Module, type, type]] = []
        # Whether a layer of DGL refuses nodes without incoming edges outside of the scope.
        self.refuses_lonely_nodes = False
        # Whether one does inside of the scope too, so that nodes of padding need edges: it has no such attribute.
        self.needs_edges = False
        for module in model.modules():
            cls: Any = type(module)
            if cls in _NORMS:
                self._changes.append((module, cls, _NORMS[cls]))
            elif _has_hook(module) and not hasattr(module, "masked_rows"):
                self._changes.append((module, cls, _with_hook(cls, _HOOKS[_forward_class(module)])))
            elif getattr(module, "_allow_zero_in_degree", None) is False:
                self.refuses_lonely_nodes = True
                self._changes.append((module, cls, _allowing_lonely_nodes(cls)))
            elif cls.__name__ == "EGATConv" and cls.__module__.startswith("dgl."):
                self.refuses_lonely_nodes = self.needs_edges = True

    def __enter__(self) -> None:
        for module, _, inside in self._changes:
            # Setting the class as usual would pass through torch's `__setattr__`.
            object.__setattr__(module, "__class__", inside)

    def __exit__(self, *error: object) -> None:
        for module, outside, _ in self._changes:
            object.__setattr__(module, "__class__", outside)


class _Norm(MaskedBatchNorm1d):
    across_ranks, group, rows = False, None, None


class _SyncNorm(MaskedBatchNorm1d):
    across_ranks, rows = True, None
    group = property(lambda norm: norm.process_group)


_NORMS: dict[type, type] = {nn.BatchNorm1d: _Norm, nn.SyncBatchNorm: _SyncNorm}


@functools.cache
def _allowing_lonely_nodes(cls: type) -> type:
    allowed = property(lambda layer: True, lambda layer, value: None)
    return type(cls.__name__, (cls,), {"_allow_zero_in_degree": allowed, "__module__": cls.__module__})


@functools.cache
def _with_hook(cls: Any, hook: Callable[..., Any]) -> type:
    """Return a subclass of a layer of PyG whose forward pass has a hook, as `_add_hook` adds one."""
    is_after = hook is _layer_norm

    def forward(layer: Any, *args: Any, **kwargs: Any) -> Any:
        changed = None if is_after else hook(layer, args, kwargs)
        if changed is not None:
            args, kwargs = changed
        output = cls.forward(layer, *args, **kwargs)
        changed = hook(layer, args, kwargs, output) if is_after else None
        return output if changed is None else changed

    return type(cls.__name__, (cls,), {"forward": forward, "masked_rows": None, "__module__": cls.__module__})


def _mixes_rows_without_masks(module: nn.Module) -> bool:
    """Return whether a layer mixes real rows with padding, because it reads no masks."""
    if isinstance(module, MaskedBatchNorm1d):
        return False
    # Running statistics are means over rows, in norms of any package. If the scale is a buffer too, the norm is frozen.
    buffers = {name for name, _ in module.named_buffers(recurse=False)}
    has_statistics = bool(buffers & {"running_mean", "running_var"}) and "weight" not in buffers
    # A scripted layer does not have its original class, only the name of that class.
    is_scripted = "BatchNorm" in getattr(module, "original_name", "")
    if has_statistics or is_scripted or isinstance(module, _BATCH_NORMS):
        return True
    # PyG's classes that mix rows, and their subclasses, unless they have a hook.
    names = {each.__name__ for each in type(module).__mro__ if _is_of_pyg(each)}
    return bool(names & (_WITHOUT_MASKS | _HOOKS.keys())) and not _has_hook(module)


# Hooks by which PyG's layers read the masks of the batch, so that results of real rows do not depend on padding.


def _graph_of_real_rows(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """For a norm that is called without `batch`: pass real rows as one graph, and padding as a second graph."""
    x, batch = _first(("x", "batch"), args, kwargs)
    real = None if batch is not None else _real_rows(module, x)
    # x, batch and batch_size.
    return None if real is None else ((x, (~real).long(), 2), {})


def _layer_norm(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: Tensor) -> Tensor | None:
    """Normalise over all real entries, as LayerNorm does without `batch`; with it, epsilon is added elsewhere."""
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
    """Make an aggregation pad groups to the largest number of real rows; it leaves out more rows of padding."""
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
    """Divide padding rows into graphs that are not larger than real ones, since layers pad to the largest graph."""
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


def _has_hook(module: nn.Module) -> bool:
    """Return whether `_add_hook` can make the real rows of this layer independent of padding."""
    name = _forward_class(module)
    # The running statistics of an InstanceNorm are means over all graphs and padding.
    return name in _HOOKS and not (name == "InstanceNorm" and bool(module.track_running_stats))


def _add_hook(module: Any) -> None:
    """Make a layer read the masks of the batch, unless it already does; `masked_rows` is the component of its rows."""
    if hasattr(module, "masked_rows"):
        return
    hook = _HOOKS[_forward_class(module)]
    module.masked_rows = None
    register = module.register_forward_hook if hook is _layer_norm else module.register_forward_pre_hook
    register(hook, with_kwargs=True)


def _forward_class(module: nn.Module) -> str:
    """Return the name of the PyG class whose forward pass this layer uses; empty if the class is not from PyG."""
    owner = next((each for each in type(module).__mro__ if "forward" in vars(each)), nn.Module)
    return owner.__name__ if _is_of_pyg(owner) else ""


def _is_of_pyg(layer_class: type) -> bool:
    return layer_class.__module__.partition(".")[0] == "torch_geometric"
