"""Edges of a padded batch in order of their destinations, and in the order of the graphs again."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from dgl_tuplepack.graphs.blocks import EdgeType
from dgl_tuplepack.padding.batch import PaddedBatch


class Edges(NamedTuple):
    """The edges of one type: endpoints ``[E]``, and features ``[E, ...]`` by name."""

    src: Tensor
    dst: Tensor
    features: dict[str, Tensor]

    def taken(self, order: Tensor) -> Edges:
        """Return the edges in another order."""
        return Edges(self.src[order], self.dst[order], {name: value[order] for name, value in self.features.items()})


def sorted_by_destination(batch: PaddedBatch) -> PaddedBatch:
    """Return a batch with the edges of each type sorted by destination; nothing waits for the device.

    Nodes of a graph stand together, and graphs stand in order, so the edges of a graph stay together too, in the slots
    that they had: masks and counts stay as they are.
    """
    orders = {t: torch.argsort(dst, stable=True) for t, dst in batch._dst.items()}
    by_type = {t: edges_of(batch, t).taken(order) for t, order in orders.items()}
    return replace(
        batch,
        _src={t: edges.src for t, edges in by_type.items()},
        _dst={t: edges.dst for t, edges in by_type.items()},
        _edge_features={t: edges.features for t, edges in by_type.items()},
        _row_pointers={
            t: torch.searchsorted(
                edges.dst, torch.arange(len(batch._node_masks[t[2]]) + 1, dtype=edges.dst.dtype, device=batch.device)
            )
            for t, edges in by_type.items()
        },
        _edge_orders=orders,
    )


def edges_of(batch: PaddedBatch, edge_type: EdgeType) -> Edges:
    """Return the edges of one type as they stand in the batch."""
    return Edges(batch._src[edge_type], batch._dst[edge_type], batch._edge_features[edge_type])


def edges_of_graphs(batch: PaddedBatch, edge_type: EdgeType) -> Edges:
    """Return the edges of one type in the order of the graphs that the batch was made of."""
    edges = edges_of(batch, edge_type)
    if batch._edge_orders is None:
        return edges
    order = batch._edge_orders[edge_type]
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device)
    return edges.taken(places)
