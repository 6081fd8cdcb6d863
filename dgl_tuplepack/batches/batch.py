"""A padded batch, and its views for frameworks: a DGLGraph, a PyG batch, jraph's tuple, tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.batches.content import BatchContent
from dgl_tuplepack.batches.tensors import BatchTensors
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.build import build_batches

if TYPE_CHECKING:
    from dgl import DGLGraph


@dataclass(eq=False, repr=False)
class PaddedBatch(BatchContent):
    """p packs of graphs, padded to p times the limits of a pack, plus one node slot and one graph slot.

    Options of `PaddedCollate` may add more slots. Real nodes, edges and graphs come before padding. The last graph slot
    is the padding graph, which owns all padding nodes and edges. Graph slots between the real graphs and the padding
    graph are empty. Masks are True for real slots.

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
    graph_names
        Names of the graphs in each item, which are the keys of `graphs`. Empty if graphs have no names; use `graph`.
    """

    @property
    def tensors(self) -> BatchTensors:
        """The tensors of the batch for a compiled function; their shapes are equal in all batches of one static shape.

        They include features that were written into the batch or its `graph` before this access, but no later features.
        """
        # Reading `node_features` also takes over changes of the features of the graph. Dicts are copied, so that later
        # changes to the dicts of the batch do not change the result.
        values = {name: getattr(self, name) for name in BatchTensors._fields}
        for name, by_type in (
            ("node_features", self.node_features_by_type),
            ("edge_features", self.edge_features_by_type),
        ):
            values[name] = self._one_or_all({t: dict(own) for t, own in by_type.items()})
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
        from dgl_tuplepack.batches.jraph_graphs import graphs_tuple

        return graphs_tuple(self)

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
            self._agreed = {t: dict(own) for t, _, own in self._features_by_type()}
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
        return build_batches(
            self.graph_names,
            {t: (self.src_by_type[t], self.dst_by_type[t]) for t in self.edge_types},
            self.node_features_by_type,
            self.edge_features_by_type,
            self.nodes_per_graph_by_type,
            self.edges_per_graph_by_type,
            {t: len(mask) for t, mask in self.node_masks_by_type.items()},
            *([] if self.row_pointers_by_type is None else [self.row_pointers_by_type]),
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
        features = {
            name: {t: dict(own) for t, own in getattr(self, name).items()}
            for name in ("node_features_by_type", "edge_features_by_type")
        }
        return {**self.__dict__, **features, "_graph": None, "_agreed": {}}

    def __repr__(self) -> str:
        nodes, edges = (
            sum(len(m) for m in masks) for masks in (self.node_masks_by_type.values(), self.edge_masks_by_type.values())
        )
        real = f"{sum(self.num_real_nodes_by_type.values())} nodes, {sum(self.num_real_edges_by_type.values())} edges"
        return (
            f"PaddedBatch({nodes} nodes, {edges} edges, {len(self.graph_mask)} graphs; "
            f"real: {real}, {self.num_real_graphs} graphs; device {self.device})"
        )


@functools.cache
def _to_pyg() -> Callable[[PaddedBatch], Any]:
    load("torch_geometric")
    from dgl_tuplepack.batches.pyg_batch import pyg_batch

    return pyg_batch
