"""From a list of graphs to one padded batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from dgl_tuplepack._checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType, GraphType
from dgl_tuplepack.graphs.items import Identified, Parts, is_iterable, parts_of
from dgl_tuplepack.graphs.merge import batch_of, edges_by_id
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, as_label, as_tensors, stack_labels
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.padding.batch import Labels, PaddedBatch
from dgl_tuplepack.padding.coordinates import Coordinates
from dgl_tuplepack.padding.shape import Fill, PaddedShape
from dgl_tuplepack.padding.sorted_edges import sorted_by_destination

if TYPE_CHECKING:
    from dgl import DGLGraph

# A node type, or an edge type.
Type = TypeVar("Type", bound=GraphType)


class PaddedCollate:
    """Collate graphs into a `PaddedBatch`; every call returns the same shape, also for an empty list.

    Parameters
    ----------
    limits
        Limits of one pack with a cap on graphs, usually ``sampler.limits``.
    example
        One item of the dataset, DGLGraph, (DGLGraph, label) or (DGLGraph, label, id). It defines types, features and
        labels, and whether items have ids. An id is an integer >= 0, kept in ``graph_ids`` (see `with_ids` too).
    packs_per_batch
        p >= 1, as in the sampler.
    label_fill
        Label of padding: a number, or a dict by name for dict labels, of numbers or arrays with the shape of a label.
    feature_fill
        Feature of padding: a number, or a dict by feature name, of numbers or arrays with the shape of a feature.
    cover_padding
        Give every padding node an incoming edge (of each type), so that layers which refuse nodes without one,
        such as GraphConv and GATConv, accept the batch. A batch then has p x edges + p x nodes + 1 edge slots
        instead of p x edges.
    idtype
        dtype of `src` and `dst`, torch.int64 or torch.int32.
    coordinates
        Names of node features that hold positions ``[V, ..., D]``, as ``("pos",)``, for models that divide by distances
        or take angles. Padding nodes then lie at least 1 apart, and padding edges lead from one to the next, so no
        padding edge has length 0; a batch has p x nodes + 2 node slots. ``{"pos": 12.0}`` puts them at least 12 apart:
        take a length beyond the cutoff of the model.
    sort_edges
        Sort the edges of a batch, of each type, by their destination; edges of one destination keep their order. The
        batch then has `row_pointers`, and its `graph` needs no conversion for sums over incoming edges. Real edges
        still come first, those of a graph stay together, and `unpad` gives each graph its own order back.

    Raises
    ------
    LimitsError
        The limits have no cap on graphs, or are for other components than the example.
    SchemaError
        The example is not a graph with an optional label and id, or a fill value does not fit.

    Notes
    -----
    A call raises GraphTooLargeError if the graphs exceed p x limits, and SchemaError if one differs from the example,
    for instance in having an id. Padding edges are spread evenly over the padding nodes: self-loops within one node
    type (without `coordinates`), else from padding nodes to padding nodes.

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
        coordinates: Coordinates = (),
        sort_edges: bool = False,
    ) -> None:
        self.shape = PaddedShape(
            Schema.of(example),
            limits,
            packs_per_batch,
            label_fill,
            feature_fill,
            cover_padding,
            idtype,
            coordinates,
            sort_edges,
        )
        self.schema = self.shape.schema

    def __call__(self, items: Iterable[Any]) -> PaddedBatch:
        """Pad `items` (DGLGraph, (DGLGraph, label) or (DGLGraph, label, id)) to the static shape."""
        if not is_iterable(items):
            raise SchemaError(
                f"a batch needs a list of items, but got {shown(items)}; give a list, or [] for a batch of padding."
            )
        items = list(items)
        where = [f"graph {shown(i.id)}" if isinstance(i, Identified) else f"item {n}" for n, i in enumerate(items)]
        parts = [parts_of(item, name) for item, name in zip(items, where, strict=True)]
        batch = batch_of(self.schema, [part.graph for part in parts], where)
        device = torch.device("cpu") if batch is None else batch.device
        nodes = {t: batch.num_nodes(t) if batch is not None else 0 for t in self.schema.node_types}
        edges = {t: batch.num_edges(t) if batch is not None else 0 for t in self.schema.edge_types}
        self.shape.check_content([*nodes.values(), *edges.values(), len(items)])

        shape, schema = self.shape, self.schema
        ends = {t: self._endpoints(batch, t, nodes, edges[t], device) for t in schema.edge_types}
        node_views, node_counts = (batch.nodes, batch.batch_num_nodes) if batch is not None else (None, None)
        edge_views, edge_counts = (batch.edges, batch.batch_num_edges) if batch is not None else (None, None)
        padded = PaddedBatch(
            node_types=schema.node_types,
            edge_types=schema.edge_types,
            labels=self._labels(parts, where, device),
            graph_mask=torch.arange(shape.num_graphs, device=device) < len(items),
            graph_ids=self._ids(parts, where, device),
            num_real_graphs=len(items),
            _num_real_nodes=nodes,
            _num_real_edges=edges,
            _src={t: src for t, (src, _) in ends.items()},
            _dst={t: dst for t, (_, dst) in ends.items()},
            _node_features=self._features("node_feature", node_views, nodes, schema.node_features, device),
            _edge_features=self._features("edge_feature", edge_views, edges, schema.edge_features, device),
            _nodes_per_graph=self._per_graph(node_counts, nodes, shape.num_nodes, device),
            _edges_per_graph=self._per_graph(edge_counts, edges, shape.num_edges, device),
            _node_masks={t: torch.arange(shape.num_nodes[t], device=device) < n for t, n in nodes.items()},
            _edge_masks={t: torch.arange(shape.num_edges[t], device=device) < n for t, n in edges.items()},
        )
        return sorted_by_destination(padded) if shape.sort_edges else padded

    def _endpoints(
        self, batch: DGLGraph | None, edge_type: EdgeType, nodes: dict[str, int], real: int, device: torch.device
    ) -> list[Tensor]:
        padding = torch.arange(self.shape.num_edges[edge_type] - real, device=device)
        real_ends = edges_by_id(batch, edge_type) if real else (padding[:0], padding[:0])
        ends = []
        ahead = (0, int(self.shape.is_chained(edge_type)))
        for node_type, endpoints, steps in zip((edge_type[0], edge_type[2]), real_ends, ahead, strict=True):
            spare = self.shape.num_nodes[node_type] - nodes[node_type]
            # Edge j of m is at padding node j * spare // m: even, ascending, at least one each where m >= spare.
            at = nodes[node_type] + (padding * spare // max(len(padding), 1) + steps) % spare
            ends.append(torch.cat([endpoints.to(self.shape.idtype), at.to(self.shape.idtype)]))
        return ends

    def _features(
        self,
        content: str,
        views: Any,
        real: Mapping[Type, int],
        specs_by_type: Mapping[Type, Mapping[str, ArraySpec]],
        device: torch.device,
    ) -> dict[Type, dict[str, Tensor]]:
        """Features of each node (or edge) type, real ones first; `views` is what DGL indexes by type."""
        features: dict[Type, dict[str, Tensor]] = {}
        for t, specs in specs_by_type.items():
            padding = {name: self.shape.padding_of((content, t, name), real[t], device) for name in specs}
            # Graphs without nodes of the type may lack its features.
            data = views[t].data if real[t] else {}
            features[t] = {n: torch.cat([data[n], fill] if real[t] else [fill]) for n, fill in padding.items()}
        return features

    def _per_graph(
        self,
        counts_of: Callable[[Type], Tensor] | None,
        real: Mapping[Type, int],
        slots: Mapping[Type, int],
        device: torch.device,
    ) -> dict[Type, Tensor]:
        """Counts of each type: of the real graphs, zeros for empty slots, and the padding in the last slot."""
        counts = {t: torch.zeros(self.shape.num_graphs, dtype=torch.int64, device=device) for t in real}
        for t, of_type in counts.items():
            if counts_of is not None:
                of_real = counts_of(t)
                of_type[: len(of_real)] = of_real
            of_type[-1] = slots[t] - real[t]
        return counts

    def _labels(self, items: Sequence[Parts], where: list[str], device: torch.device) -> Labels:
        real = stack_labels([as_tensors(item.label) for item in items], self.schema, where) if items else {}
        labels = {}
        for name in self.schema.labels:
            fill = self.shape.padding_of(("label", None, name), len(items), device)
            labels[name] = torch.cat([real[name].to(device), fill] if items else [fill])
        return as_label(labels)

    def _ids(self, items: Sequence[Parts], where: list[str], device: torch.device) -> Tensor | None:
        # Whether there are ids depends on the example alone, so that empty batches have them too.
        for item, name in zip(items, where, strict=True):
            if (item.id is not None) != self.schema.has_ids:
                has, example = ("no", "one") if self.schema.has_ids else ("an", "none")
                raise SchemaError(
                    f"{name} has {has} id, but the example has {example}; take both from with_ids(dataset), or neither."
                )
        if not self.schema.has_ids:
            return None
        ids = torch.full((self.shape.num_graphs,), -1, dtype=torch.int64, device=device)
        ids[: len(items)] = torch.tensor([item.id for item in items], dtype=torch.int64, device=device)
        return ids
