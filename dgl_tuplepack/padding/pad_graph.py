"""Pad one batched DGLGraph to a static shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from dgl_tuplepack.graphs.blocks import EdgeType, GraphType
from dgl_tuplepack.graphs.joining import edges_by_id
from dgl_tuplepack.graphs.relations import Column
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, as_label
from dgl_tuplepack.padding.batch import PaddedBatch
from dgl_tuplepack.padding.shape import PaddedShape
from dgl_tuplepack.padding.sorted_edges import sorted_by_destination

if TYPE_CHECKING:
    from dgl import DGLGraph

# A node type, or an edge type.
Type = TypeVar("Type", bound=GraphType)


def content_of(schema: Schema, batch: DGLGraph | None, num_graphs: int) -> list[int]:
    """Return the nodes of each type, the edges of each type, and the graphs of a batch; None stands for no graphs."""
    if batch is None:
        return [0] * (len(schema.node_types) + len(schema.edge_types)) + [num_graphs]
    return [*map(batch.num_nodes, schema.node_types), *map(batch.num_edges, schema.edge_types), num_graphs]


def padded_batch(
    shape: PaddedShape, batch: DGLGraph | None, num_graphs: int, labels: Mapping[str, Tensor] | None = None
) -> PaddedBatch:
    """Return the batch of `num_graphs` graphs, joined in `batch` (None for no graphs), without ids.

    `labels` ``[num_graphs, ...]`` may be missing for no graphs. GraphTooLargeError if they exceed the shape.
    """
    schema = shape.schema
    device = torch.device("cpu") if batch is None else batch.device
    content = content_of(schema, batch, num_graphs)
    shape.check_content(content)
    nodes = dict(zip(schema.node_types, content, strict=False))
    edges = dict(zip(schema.edge_types, content[len(nodes) : -1], strict=True))

    ends = {t: _endpoints(shape, batch, t, nodes, edges[t], device) for t in schema.edge_types}
    node_views, node_counts = (batch.nodes, batch.batch_num_nodes) if batch is not None else (None, None)
    edge_views, edge_counts = (batch.edges, batch.batch_num_edges) if batch is not None else (None, None)
    columns = _Columns(shape, batch, {**nodes, **edges, None: num_graphs}, device)
    padded = PaddedBatch(
        node_types=schema.node_types,
        edge_types=schema.edge_types,
        graph_names=schema.graph_names,
        labels=as_label({n: columns.padded(("label", None, n), (labels or {}).get(n)) for n in schema.labels}),
        graph_mask=torch.arange(shape.num_graphs, device=device) < num_graphs,
        graph_ids=None,
        num_real_graphs=num_graphs,
        _num_real_nodes=nodes,
        _num_real_edges=edges,
        _src={t: src for t, (src, _) in ends.items()},
        _dst={t: dst for t, (_, dst) in ends.items()},
        _node_features=columns.features("node_feature", node_views, schema.node_features),
        _edge_features=columns.features("edge_feature", edge_views, schema.edge_features),
        _nodes_per_graph=_per_graph(shape, node_counts, nodes, shape.num_nodes, device),
        _edges_per_graph=_per_graph(shape, edge_counts, edges, shape.num_edges, device),
        _node_masks={t: torch.arange(shape.num_nodes[t], device=device) < n for t, n in nodes.items()},
        _edge_masks={t: torch.arange(shape.num_edges[t], device=device) < n for t, n in edges.items()},
        _ties=schema.tied,
        _indices=schema.index_columns,
        _pyg=schema.pyg,
        _idtype=schema.idtype,
    )
    return sorted_by_destination(padded) if shape.sort_edges else padded


def _endpoints(
    shape: PaddedShape,
    batch: DGLGraph | None,
    edge_type: EdgeType,
    nodes: dict[str, int],
    real: int,
    device: torch.device,
) -> list[Tensor]:
    padding = torch.arange(shape.num_edges[edge_type] - real, device=device)
    real_ends = edges_by_id(batch, edge_type) if real else (padding[:0], padding[:0])
    ends = []
    ahead = (0, int(shape.is_chained(edge_type)))
    for node_type, endpoints, steps in zip((edge_type[0], edge_type[2]), real_ends, ahead, strict=True):
        spare = shape.num_nodes[node_type] - nodes[node_type]
        # Edge j of m is at padding node j * spare // m: even, ascending, at least one each where m >= spare.
        at = nodes[node_type] + (padding * spare // max(len(padding), 1) + steps) % spare
        ends.append(torch.cat([endpoints.to(shape.idtype), at.to(shape.idtype)]))
    return ends


class _Columns:
    """Pads features and labels of a batch; `real` has the numbers of its nodes, edges and graphs (None)."""

    def __init__(
        self, shape: PaddedShape, batch: DGLGraph | None, real: Mapping[Any, int], device: torch.device
    ) -> None:
        self._shape, self._batch, self._real, self._device = shape, batch, real, device

    def padded(self, column: Column, values: Tensor | None) -> Tensor:
        """Return the values of a column, real ones first; those that are indices are shifted to their graph."""
        padding = self._shape.padding_of(column, self._real, self._device)
        if not self._real[column[1]] or values is None:
            return torch.cat([padding])
        values, target = values.to(self._device), self._shape.schema.index_columns.get(column)
        return torch.cat([values if target is None else self._shifted(values, column[1], target), padding])

    def _shifted(self, values: Tensor, t: GraphType | None, target: GraphType) -> Tensor:
        counts = self._counts(target)
        first = torch.cumsum(counts, 0) - counts
        if t is not None:
            first = torch.repeat_interleave(first, self._counts(t), output_size=len(values))
        return values + first.to(values.dtype).reshape(-1, *[1] * (values.dim() - 1))

    def _counts(self, t: GraphType) -> Tensor:
        assert self._batch is not None
        counts: Tensor = self._batch.batch_num_nodes(t) if isinstance(t, str) else self._batch.batch_num_edges(t)
        return counts.long()

    def features(
        self, content: str, views: Any, specs_by_type: Mapping[Type, Mapping[str, ArraySpec]]
    ) -> dict[Type, dict[str, Tensor]]:
        """Return the features of each node (or edge) type; `views` is what DGL indexes by type."""
        features: dict[Type, dict[str, Tensor]] = {}
        for t, specs in specs_by_type.items():
            # Graphs without nodes of the type may lack its features.
            data = views[t].data if self._real[t] else {}
            features[t] = {n: self.padded((content, t, n), data.get(n)) for n in specs}
        return features


def _per_graph(
    shape: PaddedShape,
    counts_of: Callable[[Type], Tensor] | None,
    real: Mapping[Type, int],
    slots: Mapping[Type, int],
    device: torch.device,
) -> dict[Type, Tensor]:
    """Counts of each type: of the real graphs, zeros for empty slots, and the padding in the last slot."""
    counts = {t: torch.zeros(shape.num_graphs, dtype=torch.int64, device=device) for t in real}
    for t, of_type in counts.items():
        if counts_of is not None:
            of_real = counts_of(t)
            of_type[: len(of_real)] = of_real
        of_type[-1] = slots[t] - real[t]
    return counts
