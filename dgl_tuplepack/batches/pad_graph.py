"""Pad joined graphs to a static shape."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.layout import Key, batch_of
from dgl_tuplepack.batches.shape import PaddedShape
from dgl_tuplepack.batches.sorted_edges import sorted_by_destination
from dgl_tuplepack.graphs.blocks import ENDS, EdgeType, GraphType
from dgl_tuplepack.graphs.joined import JoinedGraphs
from dgl_tuplepack.graphs.relations import Column


def padded_batch(shape: PaddedShape, graphs: JoinedGraphs) -> PaddedBatch:
    """Return a padded batch with `graph_ids` None; raise GraphTooLargeError if the graphs exceed the shape."""
    # real[t]: number of real nodes or edges of type t; real[None]: number of graphs. `shape.slots` has the same keys.
    # Both are in the order nodes, edges, graphs.
    schema, real, device = shape.schema, graphs.numbers, graphs.device
    shape.check_content(list(real.values()))
    # The keys of the tensors are those of `layout_of`.
    tensors: dict[Key, Tensor] = {
        ("mask", t): torch.arange(slots, device=device) < real[t] for t, slots in shape.slots.items()
    }
    tensors |= {("per_graph", t): _per_graph(shape, graphs, t) for t in schema.types.values()}
    for e in schema.edge_types:
        tensors |= zip(((end, e) for end in ENDS), _endpoints(shape, graphs, e), strict=True)
    tensors |= {column: _padded(shape, graphs, column) for column, _ in schema.columns()}
    padded = batch_of(schema, tensors, list(real.values()))
    return sorted_by_destination(padded) if shape.sort_edges else padded


def _endpoints(shape: PaddedShape, graphs: JoinedGraphs, edge_type: EdgeType) -> list[Tensor]:
    """Return the sources and the destinations of all edges: real edges, then padding edges between padding nodes."""
    padding_edges = torch.arange(shape.slots[edge_type] - graphs.numbers[edge_type], device=graphs.device)
    ends = []
    # In a chain, a padding edge ends at the padding node after its source. Otherwise it is a self-loop, or joins nodes
    # of two types.
    # ahead: shift of the sources, and of the destinations.
    ahead = (0, int(shape.has_padding_chains(edge_type)))
    for node_type, real, shift in zip((edge_type[0], edge_type[2]), graphs.ends[edge_type], ahead, strict=True):
        first_padding = graphs.numbers[node_type]
        num_padding = shape.slots[node_type] - first_padding
        # Spread the padding edges evenly over the padding nodes, in ascending order.
        padding = first_padding + (padding_edges * num_padding // max(len(padding_edges), 1) + shift) % num_padding
        ends.append(torch.cat([real.to(shape.idtype), padding.to(shape.idtype)]))
    return ends


def _padded(shape: PaddedShape, graphs: JoinedGraphs, column: Column) -> Tensor:
    """Return the values of a feature or label, then its padding; indices within a graph become indices in the batch."""
    values = graphs.shifted(column, shape.schema.index_columns.get(column))
    return torch.cat([values, shape.padding_of(column, graphs.numbers, graphs.device)])


def _per_graph(shape: PaddedShape, graphs: JoinedGraphs, t: GraphType) -> Tensor:
    """Return the number of nodes (edges) of type t in each graph slot; the last slot has all padding."""
    # Empty graph slots keep the number 0.
    counts = torch.zeros(shape.num_graphs, dtype=torch.int64, device=graphs.device)
    counts[: graphs.numbers[None]] = graphs.lengths[t]
    counts[-1] = shape.slots[t] - graphs.numbers[t]
    return counts
