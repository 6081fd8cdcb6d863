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
    # Numbers by type; the key None holds the number of graphs, here and in `shape.slots`.
    schema, real, device = shape.schema, graphs.numbers, graphs.device
    shape.check_content(list(real.values()))
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
    """Return sources and destinations: of real edges, then of padding edges between padding nodes."""
    padding_edges = torch.arange(shape.slots[edge_type] - graphs.numbers[edge_type], device=graphs.device)
    ends = []
    # In a chain, a padding edge ends at the padding node after its source; otherwise it is a self-loop.
    ahead = (0, int(shape.has_padding_chains(edge_type)))
    for node_type, real, shift in zip((edge_type[0], edge_type[2]), graphs.ends[edge_type], ahead, strict=True):
        first = graphs.numbers[node_type]
        nodes = shape.slots[node_type] - first
        # Spread the padding edges evenly over the padding nodes, in ascending order.
        at = first + (padding_edges * nodes // max(len(padding_edges), 1) + shift) % nodes
        ends.append(torch.cat([real.to(shape.idtype), at.to(shape.idtype)]))
    return ends


def _padded(shape: PaddedShape, graphs: JoinedGraphs, column: Column) -> Tensor:
    """Return the values of a column, followed by padding; indices within a graph become indices into the batch."""
    values = graphs.shifted(column, shape.schema.index_columns.get(column))
    return torch.cat([values, shape.padding_of(column, graphs.numbers, graphs.device)])


def _per_graph(shape: PaddedShape, graphs: JoinedGraphs, t: GraphType) -> Tensor:
    """Return the number of nodes (edges) in each graph slot; empty slots have 0, the last slot has all padding."""
    counts = torch.zeros(shape.num_graphs, dtype=torch.int64, device=graphs.device)
    counts[: graphs.numbers[None]] = graphs.lengths[t]
    counts[-1] = shape.slots[t] - graphs.numbers[t]
    return counts
