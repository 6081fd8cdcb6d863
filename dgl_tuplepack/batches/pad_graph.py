"""Pad joined graphs to a static shape."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.shape import PaddedShape
from dgl_tuplepack.batches.sorted_edges import sorted_by_destination
from dgl_tuplepack.graphs.blocks import EdgeType, GraphType
from dgl_tuplepack.graphs.joined import JoinedGraphs
from dgl_tuplepack.graphs.relations import Column
from dgl_tuplepack.graphs.schema import as_label


def padded_batch(shape: PaddedShape, graphs: JoinedGraphs) -> PaddedBatch:
    """Return a padded batch with `graph_ids` None; raise GraphTooLargeError if the graphs exceed the shape."""
    # Numbers by type; the key None holds the number of graphs, here and in `shape.slots`.
    schema, real = shape.schema, graphs.numbers
    shape.check_content(list(real.values()))
    ends = {e: _endpoints(shape, graphs, e) for e in schema.edge_types}
    node_features, edge_features, labels = schema.arranged(lambda column: _padded(shape, graphs, column))
    masks = {t: torch.arange(slots, device=graphs.device) < real[t] for t, slots in shape.slots.items()}
    padded = PaddedBatch(
        node_types=schema.node_types,
        edge_types=schema.edge_types,
        graph_names=schema.graph_names,
        labels=as_label(labels),
        graph_mask=masks[None],
        graph_ids=None,
        num_real_graphs=real[None],
        _num_real_nodes={t: real[t] for t in schema.node_types},
        _num_real_edges={e: real[e] for e in schema.edge_types},
        _src={t: src for t, (src, _) in ends.items()},
        _dst={t: dst for t, (_, dst) in ends.items()},
        _node_features=node_features,
        _edge_features=edge_features,
        _nodes_per_graph={t: _per_graph(shape, graphs, t) for t in schema.node_types},
        _edges_per_graph={e: _per_graph(shape, graphs, e) for e in schema.edge_types},
        _node_masks={t: masks[t] for t in schema.node_types},
        _edge_masks={e: masks[e] for e in schema.edge_types},
        _ties=schema.tied,
        _indices=schema.index_columns,
        _pyg=schema.pyg,
        _idtype=schema.idtype,
    )
    return sorted_by_destination(padded) if shape.sort_edges else padded


def _endpoints(shape: PaddedShape, graphs: JoinedGraphs, edge_type: EdgeType) -> list[Tensor]:
    """Return sources and destinations: first of the real edges, then of padding edges, which join padding nodes."""
    padding_edges = torch.arange(shape.slots[edge_type] - graphs.numbers[edge_type], device=graphs.device)
    ends = []
    # A chained padding edge leads to the next padding node, others to the node at the same place among theirs.
    ahead = (0, int(shape.is_chained(edge_type)))
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
