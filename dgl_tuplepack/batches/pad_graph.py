"""Pad graphs, which are already joined into tensors, to a static shape."""

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
    """Return the padded batch of the graphs, without ids.

    Raise GraphTooLargeError if the graphs exceed the limits of `shape`.
    """
    # real[t]: number of real nodes or edges of type t; real[None]: number of graphs. Node types come first, None last.
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


def _endpoints(shape: PaddedShape, graphs: JoinedGraphs, edge_type: EdgeType) -> tuple[Tensor, Tensor]:
    """Return the source nodes and the destination nodes of all edges of a type, ``[slots]`` each.

    Real edges come first, then padding edges, which join padding nodes.
    """
    padding_edges = torch.arange(shape.slots[edge_type] - graphs.numbers[edge_type], device=graphs.device)

    def with_padding(real: Tensor, node_type: str, shift: int) -> Tensor:
        """Return `real` followed by one end of each padding edge, moved on by `shift` padding nodes."""
        first_padding = graphs.numbers[node_type]
        num_padding = shape.slots[node_type] - first_padding
        # Spread the padding edges evenly over the padding nodes, in ascending order.
        padding = first_padding + (padding_edges * num_padding // max(len(padding_edges), 1) + shift) % num_padding
        return torch.cat([real.to(shape.idtype), padding.to(shape.idtype)])

    src_type, _, dst_type = edge_type
    src, dst = graphs.ends[edge_type]
    # In a chain, each padding edge leads to the next padding node.
    step = int(shape.has_padding_chains(edge_type))
    return with_padding(src, src_type, 0), with_padding(dst, dst_type, step)


def _padded(shape: PaddedShape, graphs: JoinedGraphs, column: Column) -> Tensor:
    """Return a feature or label with its padding; indices count the nodes (edges) of the batch, not of each graph."""
    values = graphs.shifted(column, shape.schema.index_columns.get(column))
    return torch.cat([values, shape.padding_of(column, graphs.numbers, graphs.device)])


def _per_graph(shape: PaddedShape, graphs: JoinedGraphs, t: GraphType) -> Tensor:
    """Return the number of nodes (edges) of type t in each graph slot; the last slot has all padding nodes (edges)."""
    counts = torch.zeros(shape.num_graphs, dtype=torch.int64, device=graphs.device)
    counts[: graphs.numbers[None]] = graphs.lengths[t]
    counts[-1] = shape.slots[t] - graphs.numbers[t]
    return counts
