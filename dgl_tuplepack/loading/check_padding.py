"""`check_padding`: whether a model gives the same results on a padded batch as on its real graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.collate import unpad
from dgl_tuplepack.compiling.check import check_call
from dgl_tuplepack.errors import CompileError, InputError
from dgl_tuplepack.loading.cuts import Cuts
from dgl_tuplepack.loading.padded_call import Captured, Inputs, plain_call
from dgl_tuplepack.nn.masks import masked


def check_padding(model: Callable[[Any], Any], batch: Any) -> None:
    """Compare a model on a padded batch with the same model on the real graphs: outputs, gradients and buffers.

    It is the check of `compile` with a loader, for uncompiled code that gets padded batches. Nothing is changed.

    Parameters
    ----------
    model
        A model, or a function of a graph, such as ``lambda graph: model(graph, graph.ndata["x"])``. It is called inside
        of ``masked``, with ``batch.graph``, its graphs by name, or the given batch of PyG.
    batch
        A `PaddedBatch`, or its `pyg`, with at least one real graph.

    Raises
    ------
    CompileError
        A result differs; the message names it.
    InputError
        `batch` is not a padded batch, or has no real graph; or nothing can be compared, for example since the model
        draws random numbers other than those of dropout.

    Examples
    --------
    >>> import dgl, torch
    >>> import dgl_tuplepack as tp
    >>> graph = dgl.graph(([0, 1], [1, 0]))
    >>> graph.ndata["x"] = torch.ones(2, 3)
    >>> batch = tp.PaddedCollate(tp.Limits(nodes=5, edges=5, graphs=2), example=graph)([graph])
    >>> tp.check_padding(lambda graph: dgl.sum_nodes(graph, "x"), batch)
    >>> tp.check_padding(lambda graph: graph.ndata["x"].mean(), batch)
    Traceback (most recent call last):
        ...
    dgl_tuplepack.errors.CompileError: with padding, the output result.output is 0.333333 with padding ...
    """
    is_pyg = not isinstance(batch, PaddedBatch) and hasattr(batch, "to_data_list") and hasattr(batch, "row_masks")
    if not (is_pyg or isinstance(batch, PaddedBatch)) or not batch.num_real_graphs:
        raise InputError(f"check_padding needs a padded batch with real graphs, but got {shown(batch)}; give one.")
    if is_pyg:
        graph, real = batch, load("torch_geometric.data").Batch.from_data_list(batch.to_data_list())
    else:
        graph, real = batch.graphs if batch.graph_names else batch.graph, _joined(unpad(batch))
    padded, plain = Inputs(("graph",), (graph,), {}), Inputs(("graph",), (real,), {})

    def on_real() -> Captured:
        with masked(None):
            return plain_call(model, plain, torch.clone)

    def on_padded() -> Captured:
        with masked(batch):
            return plain_call(model, padded, torch.clone)

    cuts = Cuts.found(on_real, on_padded, (), padded.counts, plain.counts)

    def cut() -> Captured:
        return cuts.applied(on_padded(), plain.counts)

    checked = check_call(on_real, cut, (), {}, {}, True, False, cut)
    if checked.with_padding:
        raise CompileError(f"with padding, {checked.with_padding}; leave padding out of this result.")
    if checked.skipped and not checked.skipped.startswith("compiled code"):
        raise InputError(f"nothing was compared, since {checked.skipped}.")


def _joined(graphs: list[Any]) -> Any:
    """Return the batched graph of DGLGraphs, or of dicts of them."""
    dgl = load("dgl")
    if isinstance(graphs[0], dict):
        return {name: dgl.batch([each[name] for each in graphs]) for name in graphs[0]}
    return dgl.batch(graphs)
