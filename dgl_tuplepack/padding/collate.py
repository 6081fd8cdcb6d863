"""From a list of graphs to one padded batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._checks import whole_number
from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import GraphTooLargeError, LimitsError, SchemaError
from dgl_tuplepack.limits import Limits, as_limits
from dgl_tuplepack.padding.batch import PaddedBatch
from dgl_tuplepack.padding.schema import (
    ArraySpec,
    EdgeType,
    Fill,
    Schema,
    as_tensors,
    fill_values,
    label_of,
    stack_labels,
)
from dgl_tuplepack.sources import Identified, graph_of


class PaddedCollate:
    """Collate graphs into a `PaddedBatch`; every call gives the same shape, for no graphs too.

    Parameters
    ----------
    limits
        Limits of one pack with a cap on graphs, usually ``sampler.limits``.
    example
        One item of the dataset, DGLGraph or (DGLGraph, label): it tells types, features and labels.
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
    A call raises GraphTooLargeError if the graphs exceed p x limits, SchemaError if one differs from the example.
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
        self.schema = schema = Schema.of(example)
        most_graphs = as_limits(limits).graphs
        if most_graphs is None:
            raise LimitsError("padding needs a cap on graphs, but limits.graphs is None; use sampler.limits.")
        if idtype not in (torch.int32, torch.int64):
            raise SchemaError(f"idtype must be torch.int32 or torch.int64, but is {idtype}.")
        self.limits = limits.aligned(schema.components)
        self.packs_per_batch = packs_per_batch = whole_number("packs_per_batch", packs_per_batch, 1, error=LimitsError)
        self.cover_padding = cover_padding
        self.idtype = idtype

        # Components are the node types, then the edge types.
        most = [packs_per_batch * limit for limit in self.limits.values]
        most_nodes = dict(zip(schema.node_types, most, strict=False))
        most_edges = dict(zip(schema.edge_types, most[len(most_nodes) :], strict=True))
        self._most_graphs = packs_per_batch * most_graphs
        self.num_nodes = {t: number + 1 for t, number in most_nodes.items()}
        self.num_edges = {t: n + (self.num_nodes[t[2]] if cover_padding else 0) for t, n in most_edges.items()}
        self.num_graphs = self._most_graphs + 1

        specs = [*schema.node_features.values(), *schema.edge_features.values()]
        self._feature_fill = fill_values(feature_fill, specs, "feature_fill")
        self._label_fill = fill_values(label_fill, [schema.labels], "label_fill")

    def __call__(self, items: Sequence[Any]) -> PaddedBatch:
        """Pad `items` (DGLGraph or (DGLGraph, label), with ids or without) to the static shape."""
        where = [f"graph {item.id}" if isinstance(item, Identified) else f"item {i}" for i, item in enumerate(items)]
        graphs = [graph_of(item, place) for item, place in zip(items, where, strict=True)]
        batch = self._batch_of(graphs, where)
        device = torch.device("cpu") if batch is None else batch.device
        nodes = {t: batch.num_nodes(t) if batch is not None else 0 for t in self.schema.node_types}
        edges = {t: batch.num_edges(t) if batch is not None else 0 for t in self.schema.edge_types}
        self._check_content(nodes, edges, len(graphs))

        src, dst = {}, {}
        for edge_type in self.schema.edge_types:
            src[edge_type], dst[edge_type] = self._endpoints(batch, edge_type, nodes, edges[edge_type], device)
        return PaddedBatch(
            node_types=self.schema.node_types,
            edge_types=self.schema.edge_types,
            labels=self._labels(items, where, device),
            graph_mask=torch.arange(self.num_graphs, device=device) < len(graphs),
            graph_ids=self._ids(items, device),
            num_real_graphs=len(graphs),
            _num_real_nodes=nodes,
            _num_real_edges=edges,
            _src=src,
            _dst=dst,
            _node_features=self._features(
                batch and batch.nodes, nodes, self.num_nodes, self.schema.node_features, device
            ),
            _edge_features=self._features(
                batch and batch.edges, edges, self.num_edges, self.schema.edge_features, device
            ),
            _nodes_per_graph={
                t: self._per_graph(batch and batch.batch_num_nodes(t), self.num_nodes[t] - n, device)
                for t, n in nodes.items()
            },
            _edges_per_graph={
                t: self._per_graph(batch and batch.batch_num_edges(t), self.num_edges[t] - n, device)
                for t, n in edges.items()
            },
            _node_masks={t: torch.arange(self.num_nodes[t], device=device) < n for t, n in nodes.items()},
            _edge_masks={t: torch.arange(self.num_edges[t], device=device) < n for t, n in edges.items()},
        )

    def _batch_of(self, graphs: list[Any], where: list[str]) -> Any:
        """What `dgl.batch` makes of the real graphs; None for no graphs."""
        if not graphs:
            return None
        dgl = load("dgl")
        try:
            # DGL takes the types of the first graph for granted and checks that features agree among the graphs;
            # so it is enough to hold the result against the example, and to look for a culprit only on failure.
            for graph, place in zip(graphs, where, strict=True):
                self.schema.check_types(graph, place)
            batch = dgl.batch(graphs)
            if batch.batch_size == len(graphs) and self.schema.matches_features(batch):
                return batch
        except dgl.DGLError:
            pass
        for graph, place in zip(graphs, where, strict=True):
            self.schema.check_graph(graph, place)
        # No culprit: where no graph has nodes (edges) of a type, DGL asks for equal features of nothing.
        return dgl.batch([_without_empty_features(graph) for graph in graphs])

    def _check_content(self, nodes: dict[str, int], edges: dict[EdgeType, int], graphs: int) -> None:
        found_of = dict(zip(self.schema.components, [*nodes.values(), *edges.values()], strict=True))
        most_of = {name: self.packs_per_batch * limit for name, limit in self.limits.maxima.items()}
        for name, most in (most_of | {"graphs": self._most_graphs}).items():
            found = found_of.get(name, graphs)
            if found > most:
                raise GraphTooLargeError(
                    f"the batch holds {found} {name}, but {self.packs_per_batch} packs of {self.limits!r} hold {most}; "
                    "use a PackBatchSampler with these limits and packs_per_batch, and PaddedCollate(sampler.limits)."
                )

    def _endpoints(
        self, batch: Any, edge_type: EdgeType, nodes: dict[str, int], real: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        padding = torch.arange(self.num_edges[edge_type] - real, device=device)
        ends = []
        found = _edges_by_id(batch, edge_type) if real else (padding[:0], padding[:0])
        for node_type, endpoints in zip((edge_type[0], edge_type[2]), found, strict=True):
            spare = self.num_nodes[node_type] - nodes[node_type]
            # Edge j of m runs at padding node j * spare // m: even, ascending, one each where m >= spare.
            loops = nodes[node_type] + padding * spare // max(len(padding), 1)
            ends.append(torch.cat([endpoints.to(self.idtype), loops.to(self.idtype)]))
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
                name: spec.filled(slots[t] - real[t], self._feature_fill[name], device) for name, spec in specs.items()
            }
            # Without a node of the type there may be no feature either.
            found = views[t].data if real[t] else {}
            features[t] = {n: torch.cat([found[n], fill]) if real[t] else fill for n, fill in padding.items()}
        return features

    def _per_graph(self, real: Tensor | None, padding: int, device: torch.device) -> Tensor:
        """Counts for the real graphs, zeros for empty slots, and the padding in the last slot."""
        counts = torch.zeros(self.num_graphs, dtype=torch.int64, device=device)
        if real is not None:
            counts[: len(real)] = real
        counts[-1] = padding
        return counts

    def _labels(self, items: Sequence[Any], where: list[str], device: torch.device) -> Any:
        real = stack_labels([as_tensors(label_of(item)) for item in items], self.schema, where) if items else {}
        if not self.schema.labels:
            return None
        labels = {}
        for name, spec in self.schema.labels.items():
            fill = spec.filled(self.num_graphs - len(items), self._label_fill[name], device)
            labels[name] = torch.cat([real[name].to(device), fill]) if items else fill
        return labels[""] if set(labels) == {""} else labels

    def _ids(self, items: Sequence[Any], device: torch.device) -> Tensor | None:
        known = [isinstance(item, Identified) for item in items] or [self.schema.has_ids]
        if not all(known):
            return None
        ids = torch.full((self.num_graphs,), -1, dtype=torch.int64, device=device)
        ids[: len(items)] = torch.tensor([item.id for item in items], dtype=torch.int64, device=device)
        return ids


def _edges_by_id(batch: Any, edge_type: EdgeType) -> tuple[Tensor, Tensor]:
    """Endpoints in the order of edge ids, also of a graph that may keep no format that is in this order."""
    src, dst, ids = batch.edges(form="all", order=None, etype=edge_type)
    return torch.empty_like(src).index_put_((ids,), src), torch.empty_like(dst).index_put_((ids,), dst)


def _without_empty_features(graph: Any) -> Any:
    """A view of the graph that has no features of types of which it has no nodes (edges)."""
    graph = graph.local_var()
    for node_type in graph.ntypes:
        if not graph.num_nodes(node_type):
            graph.nodes[node_type].data.clear()
    for edge_type in graph.canonical_etypes:
        if not graph.num_edges(edge_type):
            graph.edges[edge_type].data.clear()
    return graph
