"""Change the layers of any model, nested layers too, so that they read the masks of padded batches."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from dgl_tuplepack._core.checks import shown, true_or_false
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn.masks import checked_rows
from dgl_tuplepack.nn.norm import MaskedBatchNorm1d
from dgl_tuplepack.nn.pyg_layers import add_hook, has_hook, mixes_rows

Model = TypeVar("Model", bound=nn.Module)
# Lazy norms must be listed: they are not subclasses of the other norms.
_BATCH_NORMS = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm,
    nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d,
)  # fmt: skip


def convert(model: Model, rows: Mapping[str, str] | None = None, *, verbose: bool = True) -> Model:
    """Change a model in place, so that layers that mix rows, such as batch norms, leave padding out.

    Every `torch.nn.BatchNorm1d` and `torch.nn.SyncBatchNorm` becomes a `MaskedBatchNorm1d` with the same parameters,
    buffers, hooks and names. This includes norms in containers, and in DGL and PyG layers such as PNAConv, EdgeConv
    and TWIRLSConv. The following PyG layers get a hook, so that real rows have the same results as without padding:

    - GraphNorm, GraphSizeNorm, InstanceNorm, LayerNorm, MeanSubtractionNorm and PairNorm, when called without `batch`,
      as inside an MLP;
    - LSTMAggregation, GRUAggregation, LCMAggregation and PatchTransformerAggregation, which pad to the size of the
      largest group;
    - GPSConv, SGFormer and Polynormer, which pad to the size of the largest graph, or mix graphs when called without
      `batch`.

    Afterwards, call the model inside ``with tp.nn.masked(batch):``. Outside such a scope, the model raises SchemaError.

    Parameters
    ----------
    model
        Model or layer; state dicts stay compatible in both directions.
    rows
        Dict from a layer's name (as in ``model.named_modules()``) to the component of the layer's rows: ``nodes``,
        ``edges`` or ``graphs``, or with several types ``nodes:TYPE`` or ``edges:SRC:TYPE:DST``. A layer needs an entry
        if another component has the same number of slots as the layer's component; otherwise the number of rows
        identifies the component.
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
        Some layers mix rows, but stay as they are: PyG's HeteroBatchNorm, HANConv, EquilibriumAggregation and
        DeepGraphInfomax; PyG's GAE and its subclasses, whose losses are means over all rows; InstanceNorm of torch or
        PyG with running statistics; BatchNorm2d and BatchNorm3d; scripted norms; lazy norms that have not seen a batch;
        your own subclasses of torch's batch norms; norms of other packages, such as e3nn, with a buffer `running_mean`
        or `running_var`; and subclasses of the PyG layers above that override the forward pass. Norms called as
        functions (`torch.nn.functional.batch_norm`) are not found.

    Examples
    --------
    >>> import torch
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
    >>> [type(layer).__name__ for layer in convert(mlp, verbose=False)]
    ['Linear', 'MaskedBatchNorm1d', 'ReLU']
    """
    if not isinstance(model, nn.Module):
        raise SchemaError(
            f"convert() needs a torch.nn.Module, but got {type(model).__name__}; give a model or a layer."
        )
    if not isinstance(rows or {}, Mapping):
        raise SchemaError(f"rows must be a dict from names of layers to components, but is {shown(rows)}; give a dict.")
    true_or_false("verbose", verbose, SchemaError)
    modules = dict(model.named_modules())
    plain = {name: module for name, module in modules.items() if type(module) in (nn.BatchNorm1d, nn.SyncBatchNorm)}
    norms = plain | {name: module for name, module in modules.items() if isinstance(module, MaskedBatchNorm1d)}
    hookable = {name: module for name, module in modules.items() if has_hook(module)}
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
                "two layers, or leave it out, so that the number of rows decides."
            )
    for module in plain.values():
        _become_masked(module)
    for module in hookable.values():
        add_hook(module)
    for name, layer in (norms | hookable).items():
        layer.__dict__["name_in_model"] = name
    for layer, chosen in bound.items():
        setattr(layer, "rows" if layer in norms.values() else "masked_rows", chosen)
    unmasked = [(name, module) for name, module in model.named_modules() if _mixes_rows_without_masks(module)]
    left = [f"{name or 'the model'} ({type(module).__name__})" for name, module in unmasked]
    if left:
        warnings.warn(
            f"convert() leaves {', '.join(left)} unchanged, so padding can change results; replace such layers, "
            "or apply them only to the real rows.",
            stacklevel=2,
        )
    if verbose:
        reading = [name or "the model" for name in modules if name in plain or name in hookable]
        number = "1 layer reads masks" if len(reading) == 1 else f"{len(reading)} layers read masks"
        names = ", ".join(reading)
        print(f"convert: {f'{number} now: {names}' if reading else 'no layer was changed.'}", file=sys.stderr)
    return model


def _become_masked(module: Any) -> None:
    """Change the class of a norm in place: references to the norm, its parameters and its hooks stay valid."""
    across_ranks = isinstance(module, nn.SyncBatchNorm)
    group = module.process_group if across_ranks else None
    module.__class__ = MaskedBatchNorm1d
    module.across_ranks, module.group, module.rows = across_ranks, group, None


def _mixes_rows_without_masks(module: nn.Module) -> bool:
    """Return whether a layer mixes real rows with padding, because it reads no masks."""
    # A scripted layer does not have its original class, only the name of that class.
    if isinstance(module, torch.jit.ScriptModule) and "BatchNorm" in str(module.original_name):
        return True
    if isinstance(module, _BATCH_NORMS) and not isinstance(module, MaskedBatchNorm1d):
        return True
    # Running statistics are means over rows, in norms of any package. If the scale is a buffer too, the norm is frozen.
    buffers = {name for name, _ in module.named_buffers(recurse=False)}
    if buffers & {"running_mean", "running_var"} and "weight" not in buffers:
        return not isinstance(module, MaskedBatchNorm1d)
    return mixes_rows(module)
