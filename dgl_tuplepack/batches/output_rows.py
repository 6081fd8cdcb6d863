"""Find the rows of a model's outputs that belong to each graph, for padded, PyG and DGL batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.checks import as_integers, shown
from dgl_tuplepack.batches.content import BatchContent
from dgl_tuplepack.batches.tensors import BatchTensors
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.blocks import components_of
from dgl_tuplepack.graphs.named import is_graph, is_pyg

GRAPHS = "graphs"


class OutputRows(NamedTuple):
    """The rows of one component of a batch.

    Attributes
    ----------
    ids
        Integers: the ids of the n real graphs, ``[n]``; or the ids of all graph slots, ``[G]``, the real graphs first.
    slots
        Number of rows, padding included.
    counts
        int64 ``[n]``, the number of rows of each real graph; None if the rows are graphs.
    order
        int64 ``[slots]``: the slot of each row before edges were sorted. None if these rows were not sorted.
    """

    ids: Tensor
    num_real_graphs: int
    slots: int
    counts: Tensor | None = None
    order: Tensor | None = None


def output_rows(batch: Any, of: str) -> OutputRows:
    """Return the rows of the component `of`; for ``"graphs"``, each graph is one row.

    Parameters
    ----------
    batch
        A `PaddedBatch` or its tensors; a PyG batch with `graph_ids`; (graph, labels, ids), as from a loader of DGL
        graphs; or only ids, if the rows are graphs.
    of
        ``"graphs"``, or the name of a component, such as ``"nodes"``.

    Raises
    ------
    InputError
        The batch has no ids or no such component.
    """
    if isinstance(batch, BatchContent):
        return _of_padded(batch, of)
    if isinstance(batch, BatchTensors):
        return _of_tensors(batch, of)
    if is_pyg(batch):
        return _of_pyg(batch, of)
    if isinstance(batch, tuple | list) and batch and is_graph(batch[0]):
        # A pair (graph, labels) has no ids.
        graph, ids = batch[0], _ids(batch[-1] if len(batch) > 2 else None)
        nodes = {t: graph.batch_num_nodes(t) for t in graph.ntypes}
        edges = {e: graph.batch_num_edges(e) for e in graph.canonical_etypes}
        return _rows(of, ids, len(ids), len(ids), nodes, edges)
    if of != GRAPHS:
        raise InputError(f"rows of {of} need the batch, not only ids; give (graph, labels, ids), or the PaddedBatch.")
    ids = _ids(batch if isinstance(batch, Tensor) else torch.from_numpy(as_integers(batch).astype(np.int64)))
    if (ids < 0).any():
        raise InputError("ids have -1, which marks padding; give the batch itself instead of its graph_ids.")
    return OutputRows(ids, len(ids), len(ids))


def _of_padded(batch: BatchContent, of: str) -> OutputRows:
    ids, number, num_graphs = _ids(batch.graph_ids), batch.num_real_graphs, len(batch.graph_mask)
    if of == GRAPHS:
        return OutputRows(ids, number, num_graphs)
    orders: dict[Any, Tensor] = dict(batch.edge_orders or {})
    # Nodes of type t that are tied to edges of type e are sorted like these edges.
    orders |= {t: orders[e] for t, e in batch.ties.items() if e in orders}
    nodes, edges = batch.nodes_per_graph_by_type, batch.edges_per_graph_by_type
    slots = [len(batch.node_masks_by_type[t]) for t in nodes] + [len(batch.edge_masks_by_type[e]) for e in edges]
    return _rows(of, ids, number, num_graphs, nodes, edges, slots, orders=orders, named=bool(batch.graph_names))


def _of_tensors(batch: BatchTensors, of: str) -> OutputRows:
    if batch.row_pointers is not None and of != GRAPHS:
        raise InputError(f"batch.tensors has no original order of {of} if edges are sorted; give the batch instead.")
    node_type, edge_type = batch.type_names or ("nodes", "edges")
    has_types = isinstance(batch.node_mask, dict)
    nodes, node_masks, edges, edge_masks = (
        value if has_types else {t: value}
        for t, value in (
            (node_type, batch.nodes_per_graph), (node_type, batch.node_mask),
            (edge_type, batch.edges_per_graph), (edge_type, batch.edge_mask),
        )
    )  # fmt: skip
    slots = [len(node_masks[t]) for t in nodes] + [len(edge_masks[e]) for e in edges]
    ids, number = _ids(batch.graph_ids), int(batch.graph_mask.sum())
    return _rows(of, ids, number, len(batch.graph_mask), nodes, edges, slots, named=bool(batch.graph_names))


def _of_pyg(batch: Any, of: str) -> OutputRows:
    ids = _ids(batch.get("graph_ids") if hasattr(batch, "get") else getattr(batch, "graph_ids", None))
    # Only a batch made by `PaddedBatch.pyg` or a store has an origin.
    origin = batch.__dict__.get("_origin")
    if origin is not None:
        nodes, edges = origin.counts
        slots = [int(sum(numbers)) for numbers in (*nodes.values(), *edges.values())]
        orders: dict[Any, Tensor] = dict(origin.edge_orders)
        orders |= {t: orders[e] for t, e in origin.ties.items() if e in orders}
        number = origin.num_real_graphs
        return _rows(of, ids, number, origin.num_graphs, nodes, edges, slots, orders=orders, named=origin.is_named)
    # PyG made the batch. An edge belongs to the graph of its source node.
    if not hasattr(batch, "node_types"):
        storages = {"nodes": batch}
        edges = {"edges": torch.bincount(batch.batch[batch.edge_index[0]], minlength=len(ids))}
    else:
        storages = {t: batch[t] for t in batch.node_types}
        edges = {
            e: torch.bincount(batch[e[0]].batch[batch[e].edge_index[0]], minlength=len(ids)) for e in batch.edge_types
        }
    return _rows(of, ids, len(ids), len(ids), {t: storage.ptr.diff() for t, storage in storages.items()}, edges)


def _rows(
    of: str, ids: Tensor, num_real_graphs: int, num_graphs: int, nodes: Mapping[Any, Any], edges: Mapping[Any, Any],
    slots: Sequence[int] | None = None, *, orders: Mapping[Any, Tensor] | None = None, named: bool = False,
) -> OutputRows:  # fmt: skip
    """Return the rows of the component `of`.

    `nodes` and `edges` have, by type, the number of nodes and edges of each graph. `num_graphs` is the number of graph
    slots. `slots` has the number of slots of each type in `nodes`, then in `edges`; None if no row is padding. `orders`
    has the slot of each row before edges were sorted.
    """
    if of == GRAPHS:
        return OutputRows(ids, num_real_graphs, num_graphs)
    names = components_of(tuple(nodes), tuple(edges), named)
    if of not in names:
        raise InputError(f"a batch has no rows of {shown(of)}; choose {' or '.join([GRAPHS, *names])}.")
    index = names.index(of)
    # In the tensors of named graphs, a node type and an edge type may have the same key.
    t, counts_of_slots = (*nodes.items(), *edges.items())[index]
    counts = torch.as_tensor(counts_of_slots)[:num_real_graphs]
    num_rows = int(counts.sum()) if slots is None else slots[index]
    return OutputRows(ids, num_real_graphs, num_rows, counts, None if orders is None else orders.get(t))


def _ids(ids: Any) -> Tensor:
    """Return `ids`; raise InputError if they are not a vector of integers."""
    if not isinstance(ids, Tensor) or ids.dim() != 1 or ids.dtype not in (torch.int32, torch.int64):
        raise InputError(
            "the batch has no ids of its graphs. Padded batches of stores and of packed_loader have ids. For batches "
            "without padding, set with_ids=True; for PaddedCollate, use tp.with_ids(dataset). For graphs without "
            "labels, give (graph, None, ids)."
        )
    return ids
