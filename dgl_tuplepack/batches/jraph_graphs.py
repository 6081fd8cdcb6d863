"""A padded batch with jraph's fields and order of graphs, as NumPy arrays; `PaddedBatch.jraph` loads this module."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack.graphs.blocks import Array

if TYPE_CHECKING:
    from dgl_tuplepack.batches.content import BatchContent


class GraphsTuple(NamedTuple):
    """The fields of ``jraph.GraphsTuple``, used if jraph is not installed."""

    nodes: Any
    edges: Any
    receivers: Any
    senders: Any
    globals: Any
    n_node: Any
    n_edge: Any


def graphs_tuple(batch: BatchContent) -> Any:
    """Return a batch as a ``GraphsTuple``; see `PaddedBatch.jraph`."""
    tuple_class: Any = GraphsTuple
    # jraph is optional. It is not maintained, and with a newer JAX its import may raise any error.
    with suppress(Exception):
        tuple_class = importlib.import_module("jraph").GraphsTuple

    def array(tensor: Tensor) -> Array:
        """Return a tensor as a NumPy array."""
        if tensor.dtype == torch.bfloat16:
            # NumPy has no bfloat16, but the package ml_dtypes has, which JAX installs.
            bfloat16 = importlib.import_module("ml_dtypes").bfloat16
            return array(tensor.detach().contiguous().view(torch.int16)).view(bfloat16)
        made: Array = tensor.numpy(force=True)
        return made

    def counts(tensor: Tensor) -> Array:
        """Return numbers per graph slot as an array, with the padding graph moved directly after the real graphs."""
        given, real = tensor.numpy(force=True), batch.num_real_graphs
        moved = np.zeros(len(given), np.int32)
        moved[:real], moved[real] = given[:real], given[-1]
        return moved

    of_graphs = {"labels": batch.labels, "graph_ids": batch.graph_ids}
    return tuple_class(
        nodes=_each(batch.node_features, array),
        edges=_each(batch.edge_features, array),
        receivers=_each(batch.dst, array),
        senders=_each(batch.src, array),
        globals=_each({name: value for name, value in of_graphs.items() if value is not None}, array),
        n_node=_each(batch.nodes_per_graph, counts),
        n_edge=_each(batch.edges_per_graph, counts),
    )


def _each(value: Any, function: Callable[[Tensor], Array]) -> Any:
    """Apply a function to a tensor, or to all tensors of nested dicts."""
    return {k: _each(v, function) for k, v in value.items()} if isinstance(value, Mapping) else function(value)
