"""From a list of graphs to one padded batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType
from dgl_tuplepack.graphs.items import Identified, Parts, is_iterable, parts_of
from dgl_tuplepack.graphs.merge import batch_of, edges_by_id
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, as_tensors, stack_labels
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.padding.batch import PaddedBatch
from dgl_tuplepack.padding.shape import Fill, PaddedShape


class PaddedCollate:
    """Collate graphs into a `PaddedBatch`; every call gives the same shape, for no graphs too.

    Parameters
    ----------
    limits
        Limits of one pack with a cap on graphs, usually ``sampler.limits``.
    example
        One item of the dataset, DGLGraph, (DGLGraph, label) or (DGLGraph, label, id): it tells types, features and
        labels, and whether there are ids. An id is an integer >= 0, and goes into ``graph_ids`` (see `with_ids` too).
    packs_per_batch
        p >= 1, that of the sampler.
    label_fill
        Label of padding: a number, or a dict of numbers by name for dict labels.
    feature_fill
        Feature of padding: a number, or a dict of numbers by feature name.
    cover_padding
        Give every padding node an incoming edge (of each type), so that layers which refuse nodes without one,
        such as GraphConv and GATConv, accept the batch. The number of edge slots then is
        p x edges + p x nodes + 1 instead of p x edges.
    idtype
        torch.int64 or torch.int32, of the edges' endpoints.

    Raises
    ------
    LimitsError
        The limits have no cap on graphs, or are for other components than the example.
    SchemaError
        The example holds no graph, or a fill value does not fit.

    Notes
    -----
    A call raises GraphTooLargeError if the graphs exceed p x limits, SchemaError if one differs from the example, in
    having an id (see `with_ids`) too.
    Padding edges lead from padding nodes to padding nodes (self-loops where both are of one type), spread evenly.

    Examples
    --------
    >>> import dgl
    >>> pair = dgl.graph(([0, 1], [1, 0]))
    >>> PaddedCollate(Limits(nodes=6, edges=8, graphs=4), example=pair)([pair, pair])
    PaddedBatch(7 nodes, 8 edges, 5 graphs; real: 4 nodes, 4 edges, 2 graphs; device cpu)
    """

    def __init__(
        self,
        limits: Limits,
        example: Any,
        packs_per_batch: int = 1,
        *,
        label_fill: Fill = 0,
        feature_fill: Fill = 0,
        cover_padding: bool = False,
        idtype: torch.dtype = torch.int64,
    ) -> None:
        self.shape = PaddedShape(
            Schema.of(example), limits, packs_per_batch, label_fill, feature_fill, cover_padding, idtype
        )
        self.schema = self.shape.schema

    def __call__(self, items: Iterable[Any]) -> PaddedBatch:
        """Pad `items` (DGLGraph, (DGLGraph, label) or (DGLGraph, label, id)) to the static shape."""
        if not is_iterable(items):
            raise SchemaError(
                f"a batch is made of a list of items, but got {shown(items)}; give a list, [] for a batch of padding."
            )
        items = list(items)
        where = [_place(item, i) for i, item in enumerate(items)]
        parts = [parts_of(item, place) for item, place in zip(items, where, strict=True)]
        graphs = [part.graph for part in parts]
        batch = batch_of(self.schema, graphs, where)
        device = torch.device("cpu") if batch is None else batch.device
        nodes = {t: batch.num_nodes(t) if batch is not None else 0 for t in self.schema.node_types}
        edges = {t: batch.num_edges(t) if batch is not None else 0 for t in self.schema.edge_types}
        self.shape.check_content([*nodes.values(), *edges.values(), len(graphs)])

        src, dst = {}, {}
        for edge_type in self.schema.edge_types:
            src[edge_type], dst[edge_type] = self._endpoints(batch, edge_type, nodes, edges[edge_type], device)
        return PaddedBatch(
            node_types=self.schema.node_types,
            edge_types=self.schema.edge_types,
            labels=self._labels(parts, where, device),
            graph_mask=torch.arange(self.shape.num_graphs, device=device) < len(graphs),
            graph_ids=self._ids(parts, where, device),
            num_real_graphs=len(graphs),
            _num_real_nodes=nodes,
            _num_real_edges=edges,
            _src=src,
            _dst=dst,
            _node_features=self._features(
                batch and batch.nodes, nodes, self.shape.num_nodes, self.schema.node_features, device
            ),
            _edge_features=self._features(
                batch and batch.edges, edges, self.shape.num_edges, self.schema.edge_features, device
            ),
            _nodes_per_graph={
                t: self._per_graph(batch and batch.batch_num_nodes(t), self.shape.num_nodes[t] - n, device)
                for t, n in nodes.items()
            },
            _edges_per_graph={
                t: self._per_graph(batch and batch.batch_num_edges(t), self.shape.num_edges[t] - n, device)
                for t, n in edges.items()
            },
            _node_masks={t: torch.arange(self.shape.num_nodes[t], device=device) < n for t, n in nodes.items()},
            _edge_masks={t: torch.arange(self.shape.num_edges[t], device=device) < n for t, n in edges.items()},
        )

    def _endpoints(
        self, batch: Any, edge_type: EdgeType, nodes: dict[str, int], real: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        padding = torch.arange(self.shape.num_edges[edge_type] - real, device=device)
        ends = []
        found = edges_by_id(batch, edge_type) if real else (padding[:0], padding[:0])
        for node_type, endpoints in zip((edge_type[0], edge_type[2]), found, strict=True):
            spare = self.shape.num_nodes[node_type] - nodes[node_type]
            # Edge j of m runs at padding node j * spare // m: even, ascending, one each where m >= spare.
            loops = nodes[node_type] + padding * spare // max(len(padding), 1)
            ends.append(torch.cat([endpoints.to(self.shape.idtype), loops.to(self.shape.idtype)]))
        return ends[0], ends[1]

    def _features(
        self,
        views: Any,
        real: Mapping[Any, int],
        slots: Mapping[Any, int],
        specs_by_type: Mapping[Any, Mapping[str, ArraySpec]],
        device: torch.device,
    ) -> dict[Any, dict[str, Tensor]]:
        """Features of each node (or edge) type, real ones first; `views` is what DGL indexes by type."""
        features: dict[Any, dict[str, Tensor]] = {}
        for t, specs in specs_by_type.items():
            padding = {
                name: spec.filled(slots[t] - real[t], self.shape.feature_values[name], device)
                for name, spec in specs.items()
            }
            # Without a node of the type there may be no feature either.
            found = views[t].data if real[t] else {}
            features[t] = {n: torch.cat([found[n], fill]) if real[t] else fill for n, fill in padding.items()}
        return features

    def _per_graph(self, real: Tensor | None, padding: int, device: torch.device) -> Tensor:
        """Counts for the real graphs, zeros for empty slots, and the padding in the last slot."""
        counts = torch.zeros(self.shape.num_graphs, dtype=torch.int64, device=device)
        if real is not None:
            counts[: len(real)] = real
        counts[-1] = padding
        return counts

    def _labels(self, items: Sequence[Parts], where: list[str], device: torch.device) -> Any:
        real = stack_labels([as_tensors(item.label) for item in items], self.schema, where) if items else {}
        if not self.schema.labels:
            return None
        labels = {}
        for name, spec in self.schema.labels.items():
            fill = spec.filled(self.shape.num_graphs - len(items), self.shape.label_values[name], device)
            labels[name] = torch.cat([real[name].to(device), fill]) if items else fill
        return labels[""] if set(labels) == {""} else labels

    def _ids(self, items: Sequence[Parts], where: list[str], device: torch.device) -> Tensor | None:
        # As the example has it, so that a batch without graphs is no exception.
        for item, place in zip(items, where, strict=True):
            if (item.id is not None) != self.schema.has_ids:
                has, example = ("no", "one") if self.schema.has_ids else ("an", "none")
                raise SchemaError(
                    f"{place} has {has} id, but the example has {example}; take both from with_ids(dataset), or "
                    "neither."
                )
        if not self.schema.has_ids:
            return None
        ids = torch.full((self.shape.num_graphs,), -1, dtype=torch.int64, device=device)
        ids[: len(items)] = torch.tensor([item.id for item in items], dtype=torch.int64, device=device)
        return ids


def _place(item: Any, index: int) -> str:
    """What messages call an item."""
    return f"graph {shown(item.id)}" if isinstance(item, Identified) else f"item {index}"
