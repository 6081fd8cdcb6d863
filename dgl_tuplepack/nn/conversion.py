"""Norms of any model, wherever they are nested, that read the masks of padded batches from then on."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from dgl_tuplepack._checks import shown, true_or_false
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.nn.masks import checked_rows
from dgl_tuplepack.nn.norm import MaskedBatchNorm1d

Model = TypeVar("Model", bound=nn.Module)

# Layers whose result for one row depends on the other rows, and that have no masked form. Layers that normalise row by
# row, or graph by graph (with `batch=`), need none.
_ACROSS_ROWS = {
    "torch_geometric.nn.norm": {"PairNorm", "MeanSubtractionNorm", "HeteroBatchNorm"},
    "torch_geometric.nn.aggr": {"EquilibriumAggregation"},
}


def convert(model: Model, rows: Mapping[str, str] | None = None, *, verbose: bool = True) -> Model:
    """Replace the batch norms in a model, in place, by norms that see real rows alone.

    Every `torch.nn.BatchNorm1d` and `torch.nn.SyncBatchNorm`, however deep in containers or in layers of DGL or PyG
    (PNAConv, EdgeConv, TWIRLSConv and others have one inside), becomes a `MaskedBatchNorm1d` with the same
    parameters, buffers, hooks and names. Afterwards, call the model inside ``with tp.nn.masked(batch):``; without, it
    refuses to run.

    Parameters
    ----------
    model
        Model or layer; state dicts stay compatible in both directions.
    rows
        Names of norms (as in ``model.named_modules()``) to the component whose rows they see: ``nodes``, ``edges`` or
        ``graphs``, or with several types ``nodes:TYPE`` or ``edges:SRC:TYPE:DST``. Needed where two components of a
        batch have equally many slots; elsewhere the number of rows tells.
    verbose
        Whether to print to stderr what was replaced.

    Returns
    -------
    torch.nn.Module
        `model` itself.

    Raises
    ------
    SchemaError
        `model` is not a module, or `rows` names what is not a batch norm of it.

    Warns
    -----
    UserWarning
        Some layers mix rows in other ways and are left as they are: PyG's PairNorm, MeanSubtractionNorm,
        HeteroBatchNorm, EquilibriumAggregation and InstanceNorm with running statistics, scripted norms, lazy norms
        that have not seen a batch, and subclasses with a forward pass of their own. Norms called as functions
        (`torch.nn.functional.batch_norm`) cannot be seen.

    Examples
    --------
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
    >>> [type(layer).__name__ for layer in convert(mlp, verbose=False)]
    ['Linear', 'MaskedBatchNorm1d', 'ReLU']
    """
    if not isinstance(model, nn.Module):
        raise SchemaError(
            f"convert() takes a torch.nn.Module, but got {type(model).__name__}; give a model or a layer."
        )
    if not isinstance(rows or {}, Mapping):
        raise SchemaError(f"rows must be a dict of names of norms to components, but is {shown(rows)}; give {{}}, say.")
    true_or_false("verbose", verbose, SchemaError)
    modules = dict(model.named_modules())
    plain = {name: module for name, module in modules.items() if type(module) in (nn.BatchNorm1d, nn.SyncBatchNorm)}
    norms = plain | {name: module for name, module in modules.items() if isinstance(module, MaskedBatchNorm1d)}
    for name, component in (rows or {}).items():
        if name not in norms:
            raise SchemaError(
                f"rows names {shown(name)}, which is not a batch norm of the model; give names of these: "
                f"{shown(list(norms), 1000)}."
            )
        checked_rows(f"rows[{shown(name)}]", component)
    for module in plain.values():
        _become_masked(module)
    for name, component in (rows or {}).items():
        norms[name].rows = component
    left = [
        f"{name or 'it'} ({type(module).__name__})" for name, module in model.named_modules() if _mixes_rows(module)
    ]
    if left:
        warnings.warn(
            f"convert() leaves {', '.join(left)} as they are: they mix rows, and padding among them; replace them, or "
            "apply them to the real rows alone.",
            stacklevel=2,
        )
    if verbose:
        number = f"{len(plain)} batch norm reads masks" if len(plain) == 1 else f"{len(plain)} batch norms read masks"
        names = ", ".join(name or "the model" for name in plain)
        print(f"convert: {f'{number} now: {names}' if plain else 'the model has no batch norm.'}", file=sys.stderr)
    return model


def _become_masked(module: Any) -> None:
    """Change the class of a norm: whoever holds it, its parameters and its hooks keep them."""
    across_ranks = isinstance(module, nn.SyncBatchNorm)
    group = module.process_group if across_ranks else None
    module.__class__ = MaskedBatchNorm1d
    module.across_ranks, module.group, module.rows = across_ranks, group, None


def _mixes_rows(module: nn.Module) -> bool:
    kind = type(module)
    # What is inside of a scripted layer cannot be told from here.
    if isinstance(module, torch.jit.ScriptModule) and "BatchNorm" in str(module.original_name):
        return True
    if isinstance(module, _BatchNorm) and not isinstance(module, MaskedBatchNorm1d):
        return True
    # Graph by graph, but its running statistics are means over the graphs, and padding among them.
    if isinstance(module, _InstanceNorm) and kind.__module__.startswith("torch_geometric"):
        return module.track_running_stats
    return any(
        kind.__module__.startswith(package) and kind.__name__ in names for package, names in _ACROSS_ROWS.items()
    )
