"""The graph of each node, read from any batch, and graphs that are too large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dgl_tuplepack._core.checks import shown, whole_number
from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.errors import GraphTooLargeError, SchemaError
from dgl_tuplepack.nn.masks import current_graph_mask


class NodeGraphs(NamedTuple):
    """The graphs of the nodes of a batch.

    Attributes
    ----------
    of_nodes
        Graph of each node, int64 ``[N]``, ascending.
    offsets
        First node of each graph, int64 ``[G + 1]``.
    real
        Which graphs are real, bool ``[G]``; None if no padding is known.
    """

    of_nodes: Tensor
    offsets: Tensor
    real: Tensor | None

    def check_rows(self, name: str, x: Tensor) -> None:
        """Raise SchemaError unless `x` has a row for each node."""
        if self.of_nodes.shape[0] != x.shape[0]:
            raise SchemaError(
                f"{name} has {x.shape[0]} rows, but the batch has {self.of_nodes.shape[0]} nodes; give one row for "
                "each node of the same batch, with the padding of a padded batch."
            )

    def too_large(self, max_nodes: int) -> Tensor:
        """Return which real graphs have more than `max_nodes` nodes: none, except in traced code.

        Raises
        ------
        GraphTooLargeError
            There is one. In traced code, where values cannot be read, callers mark its results.
        """
        counts = self.offsets.diff()
        found = counts > max_nodes if self.real is None else (counts > max_nodes) & self.real
        if is_traced() or not bool(found.any()):
            return found
        graph = int(found.nonzero()[0])
        padding = ""
        if self.real is None:
            padding = " If it is the padding graph of a padded batch, give the batch itself, or its tensors, as batch."
        raise GraphTooLargeError(
            f"graph {graph} of the batch has {int(counts[graph])} nodes, but max_nodes is {max_nodes}; give at least "
            f"the number of nodes of the largest graph of the dataset, loader.max_nodes.{padding}"
        )


def checked_max_nodes(max_nodes: Any) -> int:
    """Return `max_nodes`; SchemaError unless it is a positive whole number."""
    # Traced code follows no more than a comparison.
    if isinstance(max_nodes, int) and not isinstance(max_nodes, bool) and 1 <= max_nodes <= 2**31:
        return max_nodes
    return whole_number("max_nodes", max_nodes, 1, 2**31, SchemaError)


def node_graphs(batch: Any, number: int | None, ntype: str | None) -> NodeGraphs:
    """Return the graph of each node of a batch, or of an index of graphs, which needs their number."""
    if isinstance(batch, Tensor):
        _check_type(ntype, [])
        slots, number = batch, _checked_index(batch, number)
        offsets = torch.searchsorted(slots, torch.arange(number + 1, device=slots.device))
        return NodeGraphs(slots, offsets, current_graph_mask(number))
    if number is not None:
        raise SchemaError(
            f"num_graphs={shown(number)} is for an index of graphs, but batch is {type(batch).__name__}, which has "
            "its number of graphs; leave num_graphs out."
        )
    real = getattr(batch, "graph_mask", None)
    if hasattr(batch, "nodes_per_graph"):
        counts, slots = batch.nodes_per_graph, batch.node_graph_slots
        _check_type(ntype, [*counts] if isinstance(counts, dict) else [])
        if isinstance(counts, dict):
            counts, slots = counts[ntype], slots[ntype]
    elif hasattr(batch, "batch_num_nodes"):
        _check_type(ntype, batch.ntypes)
        counts = batch.batch_num_nodes(ntype)
        if hasattr(batch, "node_graph_slots"):
            slots = batch.node_graph_slots(ntype)
        else:
            graphs = torch.arange(counts.shape[0], device=counts.device)
            slots = graphs.repeat_interleave(counts, output_size=batch.num_nodes(ntype))
    else:
        is_hetero = hasattr(batch, "node_types")
        _check_type(ntype, batch.node_types if is_hetero else [])
        index = getattr(batch[ntype] if is_hetero else batch, "batch", None)
        if not isinstance(index, Tensor) or isinstance(batch, type):
            raise SchemaError(
                f"batch must be a batched DGLGraph, TensorGraph or PyG Batch, a PaddedBatch or its tensors, or an "
                f"index of graphs, but is {shown(batch)}; give what the model gets, or the index of its nodes."
            )
        found = node_graphs(index, batch.num_graphs, None)
        return found if real is None else found._replace(real=real)
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return NodeGraphs(slots, offsets, current_graph_mask(counts.shape[0]) if real is None else real)


def _check_type(ntype: Any, types: Sequence[str]) -> None:
    """Raise SchemaError unless `ntype` is one of the node types; None is allowed if there is only one."""
    if (len(types) > 1) if ntype is None else not (isinstance(ntype, str) and ntype in types):
        remedy = f"name one of {[*types]}" if types else "leave it out, since the batch has one node type"
        raise SchemaError(f"ntype is {shown(ntype)}, but must be a node type of the batch; {remedy}.")


def _checked_index(index: Tensor, number: int | None) -> int:
    """Return the number of graphs of an index; SchemaError for other tensors. Traced values are not checked."""
    if number is None:
        raise SchemaError("batch is an index of graphs, but num_graphs is missing; give it, such as data.num_graphs.")
    if index.ndim != 1 or index.dtype != torch.int64:
        raise SchemaError(
            f"the index of graphs must be int64 of shape [N], but is {index.dtype} of shape {tuple(index.shape)}; give "
            "the graph of each node, such as data.batch."
        )
    if is_traced():
        return number
    number = whole_number("num_graphs", number, 0, error=SchemaError)
    if index.shape[0] and not (bool((index.diff() >= 0).all()) and 0 <= int(index[0]) <= int(index[-1]) < number):
        raise SchemaError(
            f"the index of graphs must be ascending and in 0..{number - 1}, but is {shown(index.tolist())}; sort the "
            "nodes by graph, and give the number of graphs as num_graphs."
        )
    return number
