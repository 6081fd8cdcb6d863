"""Sort the edges of a padded batch by destination, and restore the order that the edges had in their graphs.

Nodes that are tied to edges are sorted like these edges. Endpoints and indices of moved nodes and edges are renumbered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.graphs.blocks import EdgeType
from dgl_tuplepack.graphs.relations import sorting_order
from dgl_tuplepack.graphs.schema import as_label

# Node or edge type -> name of a feature -> feature.
Features = dict[Any, dict[str, Tensor]]


@dataclass(frozen=True)
class ReorderableTensors:
    """The tensors that depend on the order of edges: endpoints and features by type, and labels by name."""

    src: dict[EdgeType, Tensor]
    dst: dict[EdgeType, Tensor]
    node_features: Features
    edge_features: Features
    labels: dict[str, Tensor]

    @classmethod
    def of(cls, batch: PaddedBatch) -> ReorderableTensors:
        """Return the tensors of a batch, with the edges in their current order."""
        nodes, edges = batch._node_features, batch._edge_features
        return cls(dict(batch._src), dict(batch._dst), _copied(nodes), _copied(edges), batch._labels_by_name())

    def reorder_edges(self, e: EdgeType, order: Tensor) -> None:
        """Move edge ``order[j]`` of type `e` to position j, for each j."""
        self.src[e], self.dst[e] = self.src[e][order], self.dst[e][order]
        self.edge_features[e] = {name: value[order] for name, value in self.edge_features[e].items()}

    def renumber(self, positions: Mapping[Any, Tensor], batch: PaddedBatch) -> None:
        """Renumber the indices of each type t in `positions`, in features and labels: i becomes ``positions[t][i]``."""
        for column, target in batch._indices.items():
            content, t, name = column
            by_type: Any = self.node_features if content == "node_feature" else self.edge_features
            columns = self.labels if content == "label" else by_type[t]
            # The user may have deleted the feature or label, or replaced its indices.
            if target in positions and name in columns and batch._indexed_by(column, columns[name]) is not None:
                columns[name] = positions[target][columns[name].long()].to(columns[name].dtype)


def sorted_by_destination(batch: PaddedBatch) -> PaddedBatch:
    """Return a batch with the edges of each type sorted by destination. No operation makes the CPU wait for the GPU.

    The nodes of a graph are consecutive, and graphs are in order. Therefore each edge stays within the edge slots of
    its graph, and masks and counts do not change.
    """
    content, tied = ReorderableTensors.of(batch), {e: t for t, e in batch._ties.items()}
    # orders[e][j]: old position of the edge of type e that is now at position j. pointers[e][v]: position of the first
    # edge to node v. positions[t][i]: new position of the node (edge) of type t that was at position i.
    orders: dict[EdgeType, Tensor] = {}
    pointers: dict[EdgeType, Tensor] = {}
    positions: dict[Any, Tensor] = {}
    # Edge types with tied nodes come first: the endpoints of other edges need the new positions of these nodes.
    for e in sorting_order(batch.edge_types, batch._ties):
        for ends, t in ((content.src, e[0]), (content.dst, e[2])):
            if t in positions:
                ends[e] = positions[t][ends[e].long()].to(ends[e].dtype)
        orders[e] = order = torch.argsort(content.dst[e], stable=True)
        content.reorder_edges(e, order)
        dst, number = content.dst[e], len(batch._node_masks[e[2]])
        pointers[e] = torch.searchsorted(dst, torch.arange(number + 1, dtype=dst.dtype, device=batch.device))
        if e in tied:
            t = tied[e]
            content.node_features[t] = {name: value[order] for name, value in content.node_features[t].items()}
            positions[t] = inverse(order)
        if e in batch._indices.values():
            positions[e] = inverse(order)
    content.renumber(positions, batch)
    return replace(
        batch,
        labels=as_label(content.labels),
        _src=content.src,
        _dst=content.dst,
        _node_features=content.node_features,
        _edge_features=content.edge_features,
        _row_pointers={e: pointers[e] for e in batch.edge_types},
        _edge_orders={e: orders[e] for e in batch.edge_types},
    )


def in_order_of_graphs(batch: PaddedBatch) -> ReorderableTensors:
    """Return the tensors of a batch, with nodes and edges in the order of the original graphs."""
    content = ReorderableTensors.of(batch)
    if batch._edge_orders is None:
        return content
    # orders[t][j]: original position of the node (edge) of type t that is now at position j.
    orders: dict[Any, Tensor] = dict(batch._edge_orders)
    for t, e in batch._ties.items():
        orders[t] = orders[e]
        positions = inverse(orders[e])
        content.node_features[t] = {name: value[positions] for name, value in content.node_features[t].items()}
    for e in batch.edge_types:
        content.reorder_edges(e, inverse(orders[e]))
        for ends, t in ((content.src, e[0]), (content.dst, e[2])):
            if t in batch._ties:
                ends[e] = orders[t][ends[e].long()].to(ends[e].dtype)
    content.renumber(orders, batch)
    return content


def inverse(order: Tensor) -> Tensor:
    """Return the inverse `positions` of the permutation `order`: ``positions[order[j]] = j``."""
    positions = torch.empty_like(order)
    positions[order] = torch.arange(len(order), device=order.device)
    return positions


def _copied(features: Mapping[Any, dict[str, Tensor]]) -> Features:
    return {t: dict(own) for t, own in features.items()}
