"""The fields of a padded batch: plain tensors of static shape, and properties computed from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.kernels.graph_slots import fill_graph_slots
from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType, components_of, public_type
from dgl_tuplepack.graphs.named import count, features_of, located_types
from dgl_tuplepack.graphs.pyg_layout import PygLayout
from dgl_tuplepack.graphs.relations import INDEX_TYPES, Column
from dgl_tuplepack.nn.masks import RowMask

if TYPE_CHECKING:
    from dgl import DGLGraph


Labels = Tensor | dict[str, Tensor] | None


def _by_type(field_name: str, description: str) -> property:
    """Return a property that reads the field `field_name`, a dict by type, and passes it through `_one_or_all`."""
    return property(lambda batch: batch._one_or_all(getattr(batch, field_name)), doc=description)


@dataclass(eq=False)
class BatchContent:
    """The fields of a `PaddedBatch`, and properties computed from them; `PaddedBatch` describes them."""

    node_types: tuple[str, ...]
    edge_types: tuple[EdgeType, ...]
    labels: Labels
    graph_mask: Tensor
    graph_ids: Tensor | None
    num_real_graphs: int
    num_real_nodes_by_type: dict[str, int]
    num_real_edges_by_type: dict[EdgeType, int]
    src_by_type: dict[EdgeType, Tensor]
    dst_by_type: dict[EdgeType, Tensor]
    node_features_by_type: dict[str, dict[str, Tensor]]
    edge_features_by_type: dict[EdgeType, dict[str, Tensor]]
    nodes_per_graph_by_type: dict[str, Tensor]
    edges_per_graph_by_type: dict[EdgeType, Tensor]
    node_masks_by_type: dict[str, Tensor]
    edge_masks_by_type: dict[EdgeType, Tensor]
    # With sorted edges: the first incoming edge of each node, and the position of each edge before sorting.
    row_pointers_by_type: dict[EdgeType, Tensor] | None = None
    edge_orders: dict[EdgeType, Tensor] | None = None
    graph_names: tuple[str, ...] = ()
    # ties: node type -> edge type whose edges are these nodes. indices: feature or label -> node type or edge type
    # that it indexes.
    ties: dict[str, EdgeType] = field(default_factory=dict)
    indices: dict[Column, GraphType] = field(default_factory=dict)
    # How PyG attributes become features and labels; None if the graphs are not PyG graphs.
    pyg_layout: PygLayout | None = None
    # Index type of the graphs before they were padded.
    idtype: torch.dtype = torch.int64
    # The DGLGraph of the batch, or a dict with one for each graph name; None until it is built.
    _graph: DGLGraph | dict[str, DGLGraph] | None = field(default=None, repr=False)
    # The features of each type at the last time when the batch and its graph had equal features.
    _agreed: dict[GraphType, dict[str, Tensor]] = field(default_factory=dict, repr=False)

    # Properties of nodes and edges return Any: with a union, every caller would have to check the type.
    def _one_or_all(self, by_type: Mapping[Any, object]) -> Any:
        """Return the only value for homogeneous graphs, else a dict of the values, keyed as in `PaddedBatch`."""
        if self.graph_names:
            return {public_type(t): value for t, value in by_type.items()}
        if len(self.node_types) == 1 and len(self.edge_types) == 1:
            return next(iter(by_type.values()))
        return dict(by_type)

    src = _by_type("src_by_type", "Source node of each edge, integers ``[E]``.")
    dst = _by_type("dst_by_type", "Destination node of each edge, integers ``[E]``.")
    node_mask = _by_type("node_masks_by_type", "Bool ``[V]``.")
    edge_mask = _by_type("edge_masks_by_type", "Bool ``[E]``.")
    nodes_per_graph = _by_type("nodes_per_graph_by_type", "Nodes in each graph slot, int64 ``[G]``.")
    edges_per_graph = _by_type("edges_per_graph_by_type", "Edges in each graph slot, int64 ``[G]``.")
    num_real_nodes = _by_type("num_real_nodes_by_type", "Number of real nodes.")
    num_real_edges = _by_type("num_real_edges_by_type", "Number of real edges.")
    tied_node_types = property(lambda batch: tuple(batch.ties), doc="Node types that are tied to edge types.")

    @property
    def node_features(self) -> Any:
        """Feature name -> tensor ``[V, ...]``."""
        self.sync_with_graph()
        return self._one_or_all(self.node_features_by_type)

    @property
    def edge_features(self) -> Any:
        """Feature name -> tensor ``[E, ...]``."""
        self.sync_with_graph()
        return self._one_or_all(self.edge_features_by_type)

    @property
    def node_graph_slots(self) -> Any:
        """Graph slot of each node, int64 ``[V]``: the segment ids of a readout."""
        return self._graph_slots(self.nodes_per_graph_by_type, self.node_masks_by_type)

    @property
    def edge_graph_slots(self) -> Any:
        """Graph slot of each edge, int64 ``[E]``."""
        return self._graph_slots(self.edges_per_graph_by_type, self.edge_masks_by_type)

    def _graph_slots(self, counts: Mapping[Any, Tensor], masks: Mapping[Any, Tensor]) -> Any:
        return self._one_or_all({t: slots_and_pointers(t, n, len(masks[t]))[0] for t, n in counts.items()})

    @property
    def row_pointers(self) -> Any:
        """First incoming edge of each node, int64 ``[V + 1]``; None unless edges are sorted (`sort_edges`).

        The incoming edges of node v are the edges ``row_pointers[v]`` to ``row_pointers[v + 1] - 1``.
        """
        return None if self.row_pointers_by_type is None else self._one_or_all(self.row_pointers_by_type)

    @property
    def type_names(self) -> tuple[str, EdgeType] | None:
        """Node type and edge type of homogeneous graphs; None for other graphs, or if both are DGL's defaults."""
        names = self.node_types, self.edge_types
        if self.graph_names or tuple(map(len, names)) != (1, 1) or names == ((NODE_TYPE,), (EDGE_TYPE,)):
            return None
        return self.node_types[0], self.edge_types[0]

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.graph_mask.device

    def _features_by_type(self) -> Iterator[tuple[GraphType, MutableMapping[str, Tensor], dict[str, Tensor]]]:
        """Yield each type, its features in the graph, and its features in the batch."""
        own_features: dict[Any, dict[str, Tensor]] = {**self.node_features_by_type, **self.edge_features_by_type}
        for t, graph, type_in_graph in located_types(self._graph):
            yield t, features_of(graph, type_in_graph), own_features[t]

    def _changed_shape(self) -> list[str]:
        """Return a text for each type whose number of nodes (edges) in the graph is not its number of slots."""
        masks: dict[Any, Tensor] = {**self.node_masks_by_type, **self.edge_masks_by_type}
        counts = [
            (t, count(graph, type_in_graph), len(masks[t])) for t, graph, type_in_graph in located_types(self._graph)
        ]
        return [
            f"{number} {'nodes' if isinstance(t, str) else 'edges'} of type {t!r} instead of {slots}"
            for t, number, slots in counts
            if number != slots
        ]

    def sync_with_graph(self) -> None:
        """If the graph of the batch is built, make the features of batch and graph equal; see `_equalise`.

        Raise SchemaError if the user has changed the number of nodes or edges of the graph.
        """
        if self._graph is None:
            return
        if changed := self._changed_shape():
            raise SchemaError(
                f"the graph of this batch was changed in place: it has {'; '.join(changed)}, but a padded batch keeps "
                f"its shape; change a copy, batch.{'graphs[name]' if self.graph_names else 'graph'}.clone()."
            )
        for t, of_graph, own in self._features_by_type():
            _equalise(of_graph, own, self._agreed[t])
            self._agreed[t] = dict(own)

    def row_masks(self) -> dict[str, RowMask]:
        """Return the mask and the number of real rows of each component, by name, for ``tp.nn.masked(batch)``."""
        masks = [
            RowMask(self.node_masks_by_type[t], self.num_real_nodes_by_type[t], t in self.ties) for t in self.node_types
        ]
        masks += [RowMask(self.edge_masks_by_type[t], self.num_real_edges_by_type[t]) for t in self.edge_types]
        masks.append(RowMask(self.graph_mask, self.num_real_graphs))
        names = components_of(self.node_types, self.edge_types, bool(self.graph_names))
        return dict(zip((*names, "graphs"), masks, strict=True))

    def indexed_by(self, column: Column, values: Tensor) -> GraphType | None:
        """Return the node type or edge type that a feature or label indexes; None if its values are not indices.

        The result is also None if the user has replaced the indices by values that are not int32 or int64.
        """
        return self.indices.get(column) if values.dtype in INDEX_TYPES else None

    def labels_by_name(self) -> dict[str, Tensor]:
        """Return the labels by name; a single label has the empty name."""
        return {} if self.labels is None else dict(self.labels) if isinstance(self.labels, dict) else {"": self.labels}


def _equalise(graph: MutableMapping[str, Tensor], own: dict[str, Tensor], agreed: Mapping[str, Tensor]) -> None:
    """Make the features of a graph and a batch equal: copy each change from one dict to the other.

    `own` has the features of the batch, and `agreed` the features at the last time when both were equal. If a feature
    has changed in both, keep its value in the graph.
    """
    in_graph = dict(graph)
    for name in dict.fromkeys([*own, *in_graph]):
        # The value for both dicts; None if the feature was deleted.
        value = in_graph.get(name)
        if value is agreed.get(name):
            value = own.get(name)
        if value is None:
            own.pop(name, None)
            graph.pop(name, None)
        elif own.get(name) is not value:
            own[name] = value
        elif in_graph.get(name) is not value:
            graph[name] = value


def slots_and_pointers(t: GraphType, counts: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Return the graph slot of each node or edge, ``[number]``, and the first node or edge of each graph slot.

    The second tensor is ``[G + 1]``. `counts` ``[G]`` has the number of nodes or edges of type `t` in each graph slot.
    Raise SchemaError if the counts do not add up to `number`; on a GPU and in compiled code, this is not checked.
    """
    if not counts.is_cpu or is_traced():
        all_slots = torch.arange(counts.shape[0], device=counts.device)
        slots = torch.repeat_interleave(all_slots, counts, output_size=number)
        return slots, torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    # The kernel takes a fraction of the time of torch's functions.
    of_rows, pointers = np.empty(number, np.int64), np.empty(len(counts) + 1, np.int64)
    if (filled := fill_graph_slots(counts.numpy(), of_rows, pointers)) != number:
        raise SchemaError(
            f"the counts of {t!r} in each graph slot were changed: they add up to {filled}, but the batch has {number} "
            f"slots; change a copy, {'nodes' if isinstance(t, str) else 'edges'}_per_graph.clone()."
        )
    return torch.from_numpy(of_rows), torch.from_numpy(pointers)
