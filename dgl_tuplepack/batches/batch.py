"""A padded batch: plain tensors of static shape, and views for frameworks: a DGLGraph, a PyG batch, jraph's tuple."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.batches.tensors import BatchTensors, row_masks_of, slots_and_pointers
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, Array, EdgeType, GraphType, public_type
from dgl_tuplepack.graphs.build import build_batch, build_item
from dgl_tuplepack.graphs.named import count, features_of, located_types
from dgl_tuplepack.graphs.pyg_layout import PygLayout
from dgl_tuplepack.graphs.relations import INDEX_TYPES, Column
from dgl_tuplepack.graphs.schema import feature_column
from dgl_tuplepack.nn.masks import RowMask

if TYPE_CHECKING:
    from dgl import DGLGraph


Labels = Tensor | dict[str, Tensor] | None


def _of_nodes(field_name: str, description: str, of: type = str) -> property:
    """Return a property with the values of all node types in a dict by type, passed through `_one_or_all`."""

    def value(batch: PaddedBatch) -> Any:
        if field_name == "features_by_type":
            batch.sync_with_graph()
        return batch._one_or_all({t: each for t, each in getattr(batch, field_name).items() if isinstance(t, of)})

    return property(value, doc=description)


# An edge type is a tuple, a node type a string.
_of_edges = functools.partial(_of_nodes, of=tuple)


@dataclass(eq=False, repr=False)
class PaddedBatch:
    """p packs of graphs, padded to p times the limits of a pack, plus one node slot and one graph slot.

    Options of `PaddedCollate` may add more slots. Real nodes, edges and graphs come before padding. The last graph slot
    is the padding graph, which owns all padding nodes and edges; graph slots before it may be empty. Masks are True for
    real slots.

    A property of nodes or edges is one value for homogeneous graphs. For heterographs it is a dict keyed by node type
    or by canonical edge type. If each item is a dict of named graphs, the property is a dict too: the key of a
    homogeneous graph is its name, as in ``batch.node_mask["atoms"]``; the keys of a heterograph called "mol" are types
    such as ``"mol/C"`` and ``("mol/C", "bond", "mol/C")``. In shapes, V is the number of node slots, E of edge slots,
    and G of graph slots.

    The batch and its `graph` share their features: writing, replacing or deleting a feature in the batch also changes
    the graph, and the reverse. `to` and `pin_memory` keep all features, and `unpad` returns them.

    Attributes
    ----------
    labels
        A tensor ``[G, ...]``, a dict from names of labels to such tensors, or None if there are no labels.
    graph_mask
        Bool ``[G]``.
    graph_ids
        Id of each graph, int64 ``[G]``, -1 in padding; None if the dataset has no ids (see `with_ids`).
    num_real_graphs
        Number of real graphs.
    source_ids
        For a mixture of sources, the position of each graph's source in the mapping, int64 ``[G]``, 0 in padding; None
        for other batches.
    graph_names
        Names of the graphs in each item, which are the keys of `graphs`. Empty if graphs have no names; use `graph`.
    """

    node_types: tuple[str, ...]
    edge_types: tuple[EdgeType, ...]
    labels: Labels
    graph_mask: Tensor
    graph_ids: Tensor | None
    num_real_graphs: int
    # Dicts by type have all node types, then all edge types; `src_by_type` and `dst_by_type` have only edge types.
    num_real_by_type: dict[Any, int]
    src_by_type: dict[EdgeType, Tensor]
    dst_by_type: dict[EdgeType, Tensor]
    features_by_type: dict[Any, dict[str, Tensor]]
    per_graph_by_type: dict[Any, Tensor]
    masks_by_type: dict[Any, Tensor]
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
    source_ids: Tensor | None = None
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

    src = _of_edges("src_by_type", "Source node of each edge, integers ``[E]``.")
    dst = _of_edges("dst_by_type", "Destination node of each edge, integers ``[E]``.")
    node_mask = _of_nodes("masks_by_type", "Bool ``[V]``.")
    edge_mask = _of_edges("masks_by_type", "Bool ``[E]``.")
    node_features = _of_nodes("features_by_type", "Feature name -> tensor ``[V, ...]``.")
    edge_features = _of_edges("features_by_type", "Feature name -> tensor ``[E, ...]``.")
    nodes_per_graph = _of_nodes("per_graph_by_type", "Nodes in each graph slot, int64 ``[G]``.")
    edges_per_graph = _of_edges("per_graph_by_type", "Edges in each graph slot, int64 ``[G]``.")
    num_real_nodes = _of_nodes("num_real_by_type", "Number of real nodes.")
    num_real_edges = _of_edges("num_real_by_type", "Number of real edges.")
    tied_node_types = property(lambda batch: tuple(batch.ties), doc="Node types that are tied to edge types.")

    @property
    def node_graph_slots(self) -> Any:
        """Graph slot of each node, int64 ``[V]``: the segment ids of a readout."""
        return self._graph_slots(self.node_types)

    @property
    def edge_graph_slots(self) -> Any:
        """Graph slot of each edge, int64 ``[E]``."""
        return self._graph_slots(self.edge_types)

    def _graph_slots(self, types: Sequence[GraphType]) -> Any:
        counts, masks = self.per_graph_by_type, self.masks_by_type
        return self._one_or_all({t: slots_and_pointers(t, counts[t], len(masks[t]))[0] for t in types})

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

    def _both_features(self) -> Iterator[tuple[GraphType, MutableMapping[str, Tensor], dict[str, Tensor]]]:
        """Yield each type, its features in the graph, and its features in the batch."""
        for t, graph, type_in_graph in located_types(self._graph):
            yield t, features_of(graph, type_in_graph), self.features_by_type[t]

    def _changed_shape(self) -> list[str]:
        """Return a text for each type whose number of nodes (edges) in the graph is not its number of slots."""
        located, masks = located_types(self._graph), self.masks_by_type
        counts = [(t, count(graph, type_in_graph), len(masks[t])) for t, graph, type_in_graph in located]
        return [
            f"{number} {'nodes' if isinstance(t, str) else 'edges'} of type {t!r} instead of {slots}"
            for t, number, slots in counts
            if number != slots
        ]

    def sync_with_graph(self) -> None:
        """If the graph of the batch is built, make the features of both equal; SchemaError if it changed its shape."""
        if self._graph is None:
            return
        if changed := self._changed_shape():
            raise SchemaError(
                f"the graph of this batch was changed in place: it has {'; '.join(changed)}, but a padded batch keeps "
                f"its shape; change a copy, batch.{'graphs[name]' if self.graph_names else 'graph'}.clone()."
            )
        for t, of_graph, own in self._both_features():
            _equalise(of_graph, own, self._agreed[t])
            self._agreed[t] = dict(own)

    def row_masks(self) -> dict[str, RowMask]:
        """Return the mask and the number of real rows of each component, by name, for ``tp.nn.masked(batch)``."""
        return row_masks_of(self, self.ties, [*self.num_real_by_type.values(), self.num_real_graphs])

    def indexed_by(self, column: Column, values: Tensor) -> GraphType | None:
        """Return the type that a feature or label indexes; None if it has no indices, or the user replaced them."""
        return self.indices.get(column) if values.dtype in INDEX_TYPES else None

    def labels_by_name(self) -> dict[str, Tensor]:
        """Return the labels by name; a single label has the empty name."""
        return {} if self.labels is None else dict(self.labels) if isinstance(self.labels, dict) else {"": self.labels}

    def columns(self) -> dict[Column, Tensor]:
        """Return all features and labels."""
        columns: dict[Column, Tensor] = {}
        for t, own in self.features_by_type.items():
            columns |= {feature_column(t, name): value for name, value in own.items()}
        return columns | {("label", None, name): value for name, value in self.labels_by_name().items()}

    @property
    def tensors(self) -> BatchTensors:
        """The tensors of the batch for a compiled function; their shapes are equal in all batches of one static shape.

        They include features that were written into the batch or its `graph` before this access, but no later features.
        """
        # Reading `node_features` also takes over changes of the graph. Later changes of the dicts must not show.
        values = {name: getattr(self, name) for name in BatchTensors._fields}
        for name, types in (("node_features", self.node_types), ("edge_features", self.edge_types)):
            values[name] = self._one_or_all({t: dict(self.features_by_type[t]) for t in types})
        if isinstance(self.labels, dict):
            values["labels"] = dict(self.labels)
        return BatchTensors(**values)

    @property
    def jraph(self) -> Any:
        """The batch as NumPy arrays in a ``jraph.GraphsTuple``; without jraph, in a named tuple with the same fields.

        `nodes` and `edges` are dicts of features; `globals` is a dict with ``"labels"`` and ``"graph_ids"``. For
        heterographs and named graphs, all fields except `globals` are dicts by type. The padding graph directly follows
        the real graphs, as in jraph, and empty graphs come last. Nodes and edges keep the order of the batch, so the
        masks of the batch apply to them. `n_node` and `n_edge` are int32. All other arrays share the memory of the
        batch; if the batch is not on the CPU, they are copies.

        JAX accepts the tuple as an argument of compiled functions. JAX silently converts 64-bit numbers to 32 bits,
        unless ``jax_enable_x64`` is set.
        """
        return _graphs_tuple(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Python calls this for missing attributes only, such as `x` and `ndata`, which batches of PyG and DGL have.
            hint = "; models get batch.graph (DGL), batch.pyg (PyG) or batch.tensors"
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    @property
    def graph(self) -> DGLGraph:
        """The batch as one batched DGLGraph of G graphs, built at first use on the device of the batch.

        A batch of named graphs raises SchemaError; use `graphs`.
        """
        if self.graph_names:
            raise SchemaError(
                f"this batch holds the named graphs {list(self.graph_names)}, so it has no single graph; use "
                f"batch.graphs[{self.graph_names[0]!r}]."
            )
        return self._up_to_date()

    @property
    def graphs(self) -> dict[str, DGLGraph]:
        """Name -> the batched DGLGraph of the graphs with this name; built at first use.

        The types of a DGLGraph do not contain its name. A batch of graphs without names raises SchemaError; use
        `graph`.
        """
        if not self.graph_names:
            raise SchemaError("the graphs of this batch have no names, so there is one graph; use batch.graph.")
        graphs: dict[str, DGLGraph] = dict(self._up_to_date())
        return graphs

    def _up_to_date(self) -> Any:
        """Return the graph, or the named graphs, with the features of the batch."""
        if self._graph is None:
            self._graph = self.build_graph()
            self._agreed = {t: dict(own) for t, _, own in self._both_features()}
        # If the user has changed the number of nodes or edges in the graph, return the graph unchanged:
        # `sync_with_graph` would raise.
        elif not self._changed_shape():
            self.sync_with_graph()
        return self._graph

    @property
    def pyg(self) -> Any:
        """The batch as a `torch_geometric.data.Batch` of `Data` or `HeteroData`, with the same shape and tensors.

        The PyG batch has the attributes of the graphs, `edge_index`, `batch` and `ptr`, and `node_mask`, `edge_mask`,
        `graph_mask` and `graph_ids`. `num_graphs` is the number of graph slots; `to_data_list`, `get_example` and
        indexing cover only the real graphs. If each `Data` holds several graphs, the PyG batch also has the
        attributes that PyG's `follow_batch` adds, such as `x_s_batch` and `x_s_ptr`, and masks such as `x_s_mask` and
        `edge_index_s_mask`. For DGL graphs, the node feature "feat" becomes `x`, the edge feature "feat" becomes
        `edge_attr`, and a single label becomes `y`; other names are unchanged. Named graphs become one `HeteroData`,
        whose node types contain the names of the graphs.

        Every access makes a new PyG batch, so keep the result.
        """
        return _to_pyg()(self)

    def build_graph(self) -> Any:
        """Return a new graph, or new named graphs, which the batch does not keep."""
        return build_item(
            self.graph_names,
            {t: (self.src_by_type[t], self.dst_by_type[t]) for t in self.edge_types},
            {t: len(self.masks_by_type[t]) for t in self.node_types},
            self.features_by_type,
            self.per_graph_by_type,
            *([] if self.row_pointers_by_type is None else [self.row_pointers_by_type]),
            build=build_batch,
        )

    def __iter__(self) -> Iterator[Any]:
        """Unpack as ``graph, labels = batch``, or as ``graphs, labels = batch`` with named graphs."""
        yield self.graphs if self.graph_names else self.graph
        yield self.labels

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PaddedBatch:
        """Return the same batch with all tensors on `device`."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> PaddedBatch:
        """Return the same batch with all tensors in pinned memory; called by loaders with ``pin_memory=True``."""
        return self._map(lambda tensor: tensor.pin_memory())

    def _map(self, function: Callable[[Tensor], Tensor]) -> PaddedBatch:
        """Return a copy with `function` applied to every tensor. The copy builds its own graph at first use."""

        def mapped(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: mapped(inner) for key, inner in value.items()}
            return function(value) if isinstance(value, Tensor) else value

        self.sync_with_graph()
        changed = {f.name: mapped(getattr(self, f.name)) for f in fields(self) if f.name not in ("_graph", "_agreed")}
        return replace(self, **changed, _graph=None, _agreed={})

    def __getstate__(self) -> dict[str, Any]:
        # Do not send the graph to another process: it can be built from the tensors there.
        self.sync_with_graph()
        features = {t: dict(own) for t, own in self.features_by_type.items()}
        return {**self.__dict__, "features_by_type": features, "_graph": None, "_agreed": {}}

    def __repr__(self) -> str:
        both = self.node_types, self.edge_types
        nodes, edges = (sum(len(self.masks_by_type[t]) for t in types) for types in both)
        real_nodes, real_edges = (sum(self.num_real_by_type[t] for t in types) for types in both)
        return (
            f"PaddedBatch({nodes} nodes, {edges} edges, {len(self.graph_mask)} graphs; "
            f"real: {real_nodes} nodes, {real_edges} edges, {self.num_real_graphs} graphs; device {self.device})"
        )


def _equalise(graph: MutableMapping[str, Tensor], own: dict[str, Tensor], agreed: Mapping[str, Tensor]) -> None:
    """Copy each change since both dicts had the features `agreed` to the other; a change in the graph counts more."""
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


@functools.cache
def _to_pyg() -> Callable[[PaddedBatch], Any]:
    load("torch_geometric")
    from dgl_tuplepack.batches.pyg_batch import pyg_batch

    return pyg_batch


class GraphsTuple(NamedTuple):
    """The fields of ``jraph.GraphsTuple``, used if jraph is not installed."""

    nodes: Any
    edges: Any
    receivers: Any
    senders: Any
    globals: Any
    n_node: Any
    n_edge: Any


def _graphs_tuple(batch: PaddedBatch) -> Any:
    """Return a batch as a ``GraphsTuple``; see `PaddedBatch.jraph`."""
    tuple_class: Any = GraphsTuple
    # jraph is optional. It is not maintained, and with a newer JAX its import may raise any error.
    with suppress(Exception):
        tuple_class = importlib.import_module("jraph").GraphsTuple

    def array(tensor: Tensor) -> Array:
        if tensor.dtype == torch.bfloat16:
            # NumPy has no bfloat16, but the package ml_dtypes has, which JAX installs.
            bfloat16 = importlib.import_module("ml_dtypes").bfloat16
            return array(tensor.detach().contiguous().view(torch.int16)).view(bfloat16)
        made: Array = tensor.numpy(force=True)
        return made

    def counts(tensor: Tensor) -> Array:
        """Return numbers per graph slot as an array, with the padding graph moved directly after the real graphs."""
        given, real = tensor.numpy(force=True), batch.num_real_graphs
        moved = np.zeros(len(given), np.int32)
        moved[:real], moved[real] = given[:real], given[-1]
        return moved

    of_graphs = {"labels": batch.labels, "graph_ids": batch.graph_ids, "source_ids": batch.source_ids}
    return tuple_class(
        nodes=_each(batch.node_features, array),
        edges=_each(batch.edge_features, array),
        receivers=_each(batch.dst, array),
        senders=_each(batch.src, array),
        globals=_each({name: value for name, value in of_graphs.items() if value is not None}, array),
        n_node=_each(batch.nodes_per_graph, counts),
        n_edge=_each(batch.edges_per_graph, counts),
    )


def _each(value: Any, function: Callable[[Tensor], Array]) -> Any:
    """Apply a function to a tensor, or to all tensors of nested dicts."""
    return {k: _each(v, function) for k, v in value.items()} if isinstance(value, Mapping) else function(value)
