"""A padded batch: plain tensors of static shape, and the DGLGraph built from them when asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType, components_of, key_of
from dgl_tuplepack.graphs.build import build_batches
from dgl_tuplepack.graphs.named import count, features_of, located_types
from dgl_tuplepack.graphs.pyg_layout import PygLayout
from dgl_tuplepack.graphs.relations import INDEX_TYPES, Column
from dgl_tuplepack._core.kernels.graph_slots import fill_graph_slots
from dgl_tuplepack.nn.masks import RowMask
from dgl_tuplepack.batches.tensors import BatchTensors

if TYPE_CHECKING:
    from dgl import DGLGraph


Labels = Tensor | dict[str, Tensor] | None


def _by_type(field_name: str, description: str) -> property:
    """A property of nodes or edges: the value of a field, which is a dict by type."""
    return property(lambda batch: batch._one_or_all(getattr(batch, field_name)), doc=description)


@dataclass(eq=False)
class PaddedBatch:
    """p packs of graphs, padded to p x nodes + 1, p x edges and p x graphs + 1 slots.

    Real nodes, edges and graphs come first, then empty graph slots. The last slot is the padding graph, which
    owns all padding nodes and edges. Masks are True where a slot is real.

    What follows from other tensors is a property, so that all makers of batches have it. Properties of nodes and edges
    are one value for homogeneous graphs, and a dict keyed by node type or by canonical edge type for heterographs. For
    items of named graphs they are dicts keyed by the names of homogeneous graphs, ``batch.node_mask["atoms"]``, and by
    types such as ``"mol/C"`` and ``("mol/C", "bond", "mol/C")`` for a heterograph called "mol". Letters: V node slots,
    E edge slots, G graph slots.

    The batch and its `graph` share their features: writing, replacing or deleting a feature in one of them changes
    the other too. Features move with the batch, and `unpad` returns them.

    Attributes
    ----------
    labels
        ``[G, ...]``, a dict of these by name, or None.
    graph_mask
        Bool ``[G]``.
    graph_ids
        int64 ``[G]``, -1 in padding; None where the dataset has no ids (see `with_ids`).
    num_real_graphs
        Number of real graphs.
    graph_names
        Names of the graphs of an item, which `graphs` has; none for one graph without a name, which is `graph`.
    """

    node_types: tuple[str, ...]
    edge_types: tuple[EdgeType, ...]
    labels: Labels
    graph_mask: Tensor
    graph_ids: Tensor | None
    num_real_graphs: int
    _num_real_nodes: dict[str, int]
    _num_real_edges: dict[EdgeType, int]
    _src: dict[EdgeType, Tensor]
    _dst: dict[EdgeType, Tensor]
    _node_features: dict[str, dict[str, Tensor]]
    _edge_features: dict[EdgeType, dict[str, Tensor]]
    _nodes_per_graph: dict[str, Tensor]
    _edges_per_graph: dict[EdgeType, Tensor]
    _node_masks: dict[str, Tensor]
    _edge_masks: dict[EdgeType, Tensor]
    # With sorted edges: where the edges of each destination begin, and where each edge stood before.
    _row_pointers: dict[EdgeType, Tensor] | None = None
    _edge_orders: dict[EdgeType, Tensor] | None = None
    graph_names: tuple[str, ...] = ()
    # Node types that are the edges of another type, and features and labels with the type that they index.
    _ties: dict[str, EdgeType] = field(default_factory=dict)
    _indices: dict[Column, GraphType] = field(default_factory=dict)
    # Set for graphs of PyG.
    _pyg: PygLayout | None = None
    # Index type of the graphs before they were padded.
    _idtype: torch.dtype = torch.int64
    # Named graphs are a dict.
    _graph: DGLGraph | dict[str, DGLGraph] | None = field(default=None, repr=False)
    # Features of each type when the batch and its graph last agreed.
    _agreed: dict[GraphType, dict[str, Tensor]] = field(default_factory=dict, repr=False)

    # Any, as in all properties of nodes and edges: a union would make type checkers ask every user which one it is.
    def _one_or_all(self, by_type: Mapping[Any, object]) -> Any:
        if self.graph_names:
            return {key_of(t): value for t, value in by_type.items()}
        if len(self.node_types) == 1 and len(self.edge_types) == 1:
            return next(iter(by_type.values()))
        return dict(by_type)

    src = _by_type("_src", "Source node of each edge, integers ``[E]``.")
    dst = _by_type("_dst", "Destination node of each edge, integers ``[E]``.")
    node_mask = _by_type("_node_masks", "Bool ``[V]``.")
    edge_mask = _by_type("_edge_masks", "Bool ``[E]``.")
    nodes_per_graph = _by_type("_nodes_per_graph", "Nodes in each graph slot, int64 ``[G]``.")
    edges_per_graph = _by_type("_edges_per_graph", "Edges in each graph slot, int64 ``[G]``.")
    num_real_nodes = _by_type("_num_real_nodes", "Number of real nodes.")
    num_real_edges = _by_type("_num_real_edges", "Number of real edges.")

    @property
    def node_features(self) -> Any:
        """Feature name -> tensor ``[V, ...]``."""
        self._exchange_features()
        return self._one_or_all(self._node_features)

    @property
    def edge_features(self) -> Any:
        """Feature name -> tensor ``[E, ...]``."""
        self._exchange_features()
        return self._one_or_all(self._edge_features)

    @property
    def node_graph_slots(self) -> Any:
        """Graph slot of each node, int64 ``[V]``: the segment ids of a readout."""
        masks = self._node_masks
        return self._one_or_all({t: slots_and_pointers(n, len(masks[t]))[0] for t, n in self._nodes_per_graph.items()})

    @property
    def edge_graph_slots(self) -> Any:
        """Graph slot of each edge, int64 ``[E]``."""
        masks = self._edge_masks
        return self._one_or_all({e: slots_and_pointers(n, len(masks[e]))[0] for e, n in self._edges_per_graph.items()})

    @property
    def row_pointers(self) -> Any:
        """Where the incoming edges of each node begin, int64 ``[V + 1]``; None unless edges are sorted (`sort_edges`).

        Those of node v are the edges ``row_pointers[v]`` to ``row_pointers[v + 1] - 1``.
        """
        return None if self._row_pointers is None else self._one_or_all(self._row_pointers)

    @property
    def type_names(self) -> tuple[str, EdgeType] | None:
        """Node type and edge type of homogeneous graphs whose types have names of their own; else None."""
        names = self.node_types, self.edge_types
        if self.graph_names or tuple(map(len, names)) != (1, 1) or names == ((NODE_TYPE,), (EDGE_TYPE,)):
            return None
        return self.node_types[0], self.edge_types[0]

    @property
    def tensors(self) -> BatchTensors:
        """The tensors of the batch for a compiled function, whose shapes are those of every batch of a sampler.

        Features that were written into the batch or its `graph` are included; later ones are not.
        """
        values = {name: getattr(self, name) for name in BatchTensors._fields}
        for name, by_type in (("node_features", self._node_features), ("edge_features", self._edge_features)):
            values[name] = self._one_or_all({t: dict(own) for t, own in by_type.items()})
        if isinstance(self.labels, dict):
            values["labels"] = dict(self.labels)
        return BatchTensors(**values)

    @property
    def jraph(self) -> Any:
        """The batch as arrays of numpy in a ``jraph.GraphsTuple``, or a named tuple of its fields without jraph.

        `nodes` and `edges` are dicts of features; `globals` is a dict with ``"labels"`` and ``"graph_ids"``. For
        heterographs and named graphs, fields are dicts by type. The padding graph stands directly behind the real
        graphs, as jraph pads, and empty graphs come last; `n_node` and `n_edge` are int32. Nodes, edges and masks are
        in the order of the batch. Arrays share its memory; those of a batch on a device are copied.

        JAX takes the tuple as an argument of compiled functions. It narrows numbers of 64 bits without a word, unless
        ``jax_enable_x64`` is set.
        """
        from dgl_tuplepack.batches.jraph_graphs import graphs_tuple

        return graphs_tuple(self)

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.graph_mask.device

    @property
    def graph(self) -> DGLGraph:
        """The batch as one DGLGraph of ``p x graphs + 1`` graphs, built at first use on the device of the batch.

        Its features are the tensors of this batch. Items of named graphs have `graphs` instead (else a SchemaError).
        """
        if self.graph_names:
            raise SchemaError(
                f"this batch is of the named graphs {list(self.graph_names)}, so it has no single graph; use "
                f"batch.graphs[{self.graph_names[0]!r}]."
            )
        return self._up_to_date()

    @property
    def graphs(self) -> dict[str, DGLGraph]:
        """The batched DGLGraph of each name, with its own types, built at first use; SchemaError without names."""
        if not self.graph_names:
            raise SchemaError("the graphs of this batch have no names, so there is one graph; use batch.graph.")
        graphs: dict[str, DGLGraph] = dict(self._up_to_date())
        return graphs

    def _up_to_date(self) -> Any:
        """Return the graph, or the named graphs, with the features of the batch."""
        if self._graph is None:
            self._graph = self._build_graph()
            self._agreed = {t: dict(own) for t, _, own in self._features_by_type()}
        elif not self._changed_shape():
            self._exchange_features()
        return self._graph

    @property
    def pyg(self) -> Any:
        """The batch as a `torch_geometric.data.Batch` of static shape, of `Data` or `HeteroData`; it shares tensors.

        It has the attributes of the graphs, `edge_index`, `batch` and `ptr`, and `node_mask`, `edge_mask`,
        `graph_mask` and `graph_ids`. `num_graphs` is the number of graph slots; `to_data_list`, `get_example` and
        indices cover the real graphs alone. Of several graphs in one `Data` it has what `follow_batch` gives, such as
        `x_s_batch` and `x_s_ptr`, and `x_s_mask` and `edge_index_s_mask`. Of graphs of DGL, the node feature "feat" is
        `x`, the edge feature "feat" is `edge_attr`, and a single label is `y`; other names stay. Named graphs are one
        `HeteroData`, whose node types carry their names.

        Every access makes a new one: keep it.
        """
        return _to_pyg()(self)

    def _build_graph(self) -> Any:
        """Return a new graph, or new named graphs."""
        return build_batches(
            self.graph_names,
            {t: (self._src[t], self._dst[t]) for t in self.edge_types},
            self._node_features,
            self._edge_features,
            self._nodes_per_graph,
            self._edges_per_graph,
            {t: len(mask) for t, mask in self._node_masks.items()},
            *([] if self._row_pointers is None else [self._row_pointers]),
        )

    def _features_by_type(self) -> Iterator[tuple[GraphType, MutableMapping[str, Tensor], dict[str, Tensor]]]:
        """Each type, its features in the graph, and its features here."""
        own_features: dict[Any, dict[str, Tensor]] = {**self._node_features, **self._edge_features}
        for t, graph, own in located_types(self._graph):
            yield t, features_of(graph, own), own_features[t]

    def _changed_shape(self) -> list[str]:
        """Differences in shape between the graph, which may have been changed in place, and the batch."""
        masks: dict[Any, Tensor] = {**self._node_masks, **self._edge_masks}
        counts = [(t, count(graph, own), len(masks[t])) for t, graph, own in located_types(self._graph)]
        return [
            f"{number} {'nodes' if isinstance(t, str) else 'edges'} of type {t!r} instead of {slots}"
            for t, number, slots in counts
            if number != slots
        ]

    def _exchange_features(self) -> None:
        """Bring the features of the batch and of its graph into agreement; SchemaError if the graph changed shape."""
        if self._graph is None:
            return
        if changed := self._changed_shape():
            raise SchemaError(
                f"the graph of this batch was changed in place: it has {'; '.join(changed)}, but a padded batch keeps "
                f"its shape; change a copy, batch.{'graphs[name]' if self.graph_names else 'graph'}.clone()."
            )
        for t, of_graph, own in self._features_by_type():
            _exchange(of_graph, own, self._agreed[t])
            self._agreed[t] = dict(own)

    def row_masks(self) -> dict[str, RowMask]:
        """Masks and numbers of real rows by the names of components: what ``tp.nn.masked(batch)`` reads."""
        masks = [RowMask(self._node_masks[t], self._num_real_nodes[t]) for t in self.node_types]
        masks += [RowMask(self._edge_masks[t], self._num_real_edges[t]) for t in self.edge_types]
        masks.append(RowMask(self.graph_mask, self.num_real_graphs))
        names = components_of(self.node_types, self.edge_types, bool(self.graph_names))
        return dict(zip((*names, "graphs"), masks, strict=True))

    def _indexed_by(self, column: Column, values: Tensor) -> GraphType | None:
        """Return the type that the values of a feature or label number; None if they are no indices.

        A user may have put something else in their place.
        """
        return self._indices.get(column) if values.dtype in INDEX_TYPES else None

    def _labels_by_name(self) -> dict[str, Tensor]:
        """Return the labels by name; a single one has the empty name."""
        return {} if self.labels is None else dict(self.labels) if isinstance(self.labels, dict) else {"": self.labels}

    def _as_label(self, labels: dict[str, Tensor]) -> Labels:
        """Return labels by name as this batch has them."""
        return labels if isinstance(self.labels, dict) else labels.get("")

    def __iter__(self) -> Iterator[Any]:
        """Unpack as ``graph, labels = batch``, or as ``graphs, labels = batch`` of named graphs."""
        yield self.graphs if self.graph_names else self.graph
        yield self.labels

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PaddedBatch:
        """The same batch with all tensors on `device`."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> PaddedBatch:
        """The same batch with all tensors in pinned memory (called by loaders with ``pin_memory=True``)."""
        return self._map(lambda tensor: tensor.pin_memory())

    def _map(self, function: Callable[[Tensor], Tensor]) -> PaddedBatch:
        def mapped(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: mapped(inner) for key, inner in value.items()}
            return function(value) if isinstance(value, Tensor) else value

        self._exchange_features()
        changed = {f.name: mapped(getattr(self, f.name)) for f in fields(self) if f.name not in ("_graph", "_agreed")}
        return replace(self, **changed, _graph=None, _agreed={})

    def __getstate__(self) -> dict[str, Any]:
        # Between processes only tensors travel; the other process builds the graph when it needs it.
        self._exchange_features()
        features = {
            name: {t: dict(own) for t, own in getattr(self, name).items()}
            for name in ("_node_features", "_edge_features")
        }
        return {**self.__dict__, **features, "_graph": None, "_agreed": {}}

    def __repr__(self) -> str:
        nodes, edges = (sum(len(m) for m in masks) for masks in (self._node_masks.values(), self._edge_masks.values()))
        real = f"{sum(self._num_real_nodes.values())} nodes, {sum(self._num_real_edges.values())} edges"
        return (
            f"PaddedBatch({nodes} nodes, {edges} edges, {len(self.graph_mask)} graphs; "
            f"real: {real}, {self.num_real_graphs} graphs; device {self.device})"
        )


@functools.cache
def _to_pyg() -> Callable[[PaddedBatch], Any]:
    """Return the function that makes batches of PyG; imports take longer than it does."""
    load("torch_geometric")
    from dgl_tuplepack.batches.pyg_batch import pyg_batch

    return pyg_batch


def slots_and_pointers(counts: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Return the graph of each of `number` nodes (edges), and where those of each graph begin and the last ones end."""
    if not counts.is_cpu or is_traced():
        each = torch.arange(counts.shape[0], device=counts.device)
        slots = torch.repeat_interleave(each, counts, output_size=number)
        return slots, torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    # A fraction of the time of torch's functions.
    of_rows, pointers = np.empty(number, np.int64), np.empty(len(counts) + 1, np.int64)
    if (filled := fill_graph_slots(counts.numpy(), of_rows, pointers)) != number:
        raise SchemaError(
            f"the counts of nodes or edges in each graph slot were changed: they add up to {filled}, but the batch has "
            f"{number}; change a copy, nodes_per_graph.clone() or edges_per_graph.clone()."
        )
    return torch.from_numpy(of_rows), torch.from_numpy(pointers)


def _exchange(graph: MutableMapping[str, Tensor], own: dict[str, Tensor], agreed: Mapping[str, Tensor]) -> None:
    """Bring features that once `agreed` into agreement again; where both changed, those of the graph count."""
    in_graph = dict(graph)
    for name in dict.fromkeys([*own, *in_graph]):
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
