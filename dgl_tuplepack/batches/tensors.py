"""The tensors of a padded batch as an argument of compiled functions; row masks, and graph slots of nodes and edges."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.kernels.graph_slots import fill_graph_slots
from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.compiling.torch_private import may_be_exported
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType, components_of
from dgl_tuplepack.graphs.named import of_graph
from dgl_tuplepack.nn.masks import RowMask

if TYPE_CHECKING:
    from dgl_tuplepack.compiling.tensor_graph import TensorGraph


class BatchTensors(NamedTuple):
    """The tensors of a `PaddedBatch`, from its `tensors` property, as an argument of compiled functions.

    Values that differ between batches, such as `num_real_graphs`, are left out, so a function is compiled once for each
    static shape.

    Each field has the value of the `PaddedBatch` attribute of the same name. `graph` is a `TensorGraph`, which can be
    passed to layers. For named graphs (items are dicts of graphs), `graphs` has a `TensorGraph` for each name instead.

    Examples
    --------
    >>> import dgl
    >>> from dgl_tuplepack import Limits, PaddedCollate
    >>> pair = dgl.graph(([0, 1], [1, 0]))
    >>> t = PaddedCollate(Limits(nodes=3, edges=2, graphs=1), example=pair)([pair]).tensors
    >>> t.node_graph_slots, t.row_pointers
    (tensor([0, 0, 1, 1]), None)
    """

    src: Any
    dst: Any
    node_features: Any
    edge_features: Any
    labels: Tensor | dict[str, Tensor] | None
    node_mask: Any
    edge_mask: Any
    graph_mask: Tensor
    graph_ids: Tensor | None
    nodes_per_graph: Any
    edges_per_graph: Any
    node_graph_slots: Any
    edge_graph_slots: Any
    row_pointers: Any
    source_ids: Tensor | None = None
    type_names: tuple[str, EdgeType] | None = None
    graph_names: tuple[str, ...] = ()
    tied_node_types: tuple[str, ...] = ()

    @property
    def graph(self) -> TensorGraph:
        """A new `TensorGraph` on these tensors, with the features in its ``ndata`` and ``edata``."""
        if self.graph_names:
            raise SchemaError(
                f"these tensors hold the named graphs {list(self.graph_names)}, so there is no single graph; use "
                f"tensors.graphs[{self.graph_names[0]!r}]."
            )
        has_types = isinstance(self.node_mask, dict)
        return self._built(lambda value, key: value if has_types else {key: value}, self.type_names)

    @property
    def graphs(self) -> dict[str, TensorGraph]:
        """Name -> a new `TensorGraph` on the tensors of that named graph; its types do not contain the name."""
        if not self.graph_names:
            raise SchemaError("these tensors are of graphs without names, so there is one graph; use tensors.graph.")
        return {name: self._built(functools.partial(_of_name, name)) for name in self.graph_names}

    @property
    def node_offsets(self) -> Any:
        """First node of each graph slot, int32 ``[G + 1]``, for kernels with variable lengths; by type if several."""
        counts = self.nodes_per_graph
        if isinstance(counts, dict):
            return {t: _offsets(each) for t, each in counts.items()}
        return _offsets(counts)

    def _built(
        self, by_type: Callable[[Any, GraphType], Any], type_names: tuple[str, EdgeType] | None = None
    ) -> TensorGraph:
        """Return a `TensorGraph` on the fields of these tensors.

        ``by_type(field, t)`` must return a field as a dict by type; if the field has only one value, t is its type.
        """
        # This import loads torch's compiler, which takes two seconds.
        from dgl_tuplepack.compiling.tensor_graph import TensorGraph

        node_type, edge_type = type_names or (NODE_TYPE, EDGE_TYPE)
        return TensorGraph(
            by_type(self.src, edge_type),
            by_type(self.dst, edge_type),
            {t: mask.shape[0] for t, mask in by_type(self.node_mask, node_type).items()},
            batch_num_nodes=by_type(self.nodes_per_graph, node_type),
            batch_num_edges=by_type(self.edges_per_graph, edge_type),
            node_graph_slots=by_type(self.node_graph_slots, node_type),
            edge_graph_slots=by_type(self.edge_graph_slots, edge_type),
            node_features=by_type(self.node_features, node_type),
            edge_features=by_type(self.edge_features, edge_type),
        )

    def row_masks(self) -> dict[str, RowMask]:
        """Return row masks by component name, for ``tp.nn.masked(tensors)``."""
        return row_masks_of(self, self.tied_node_types)


may_be_exported(BatchTensors, "dgl_tuplepack.BatchTensors")


def _offsets(counts: Tensor) -> Tensor:
    return torch.nn.functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))


def _of_name(name: str, value: Any, key: GraphType) -> dict[Any, Any]:
    """Return the values of one named graph, as a dict by its own types; `key` is the type of a homogeneous graph."""
    return {key: value[name]} if name in value else of_graph(name, value)


def row_masks_of(batch: Any, tied: Collection[str] = (), num_real: Sequence[int] | None = None) -> dict[str, RowMask]:
    """Return the row masks of a batch by component name; `tied` has the node types that are tied to edge types.

    `num_real` has the number of real rows of each component, and of real graphs.
    """
    node_masks, edge_masks = batch.node_mask, batch.edge_mask
    if not isinstance(node_masks, dict):
        node_masks, edge_masks, tied = {NODE_TYPE: node_masks}, {EDGE_TYPE: edge_masks}, [NODE_TYPE] if tied else []
    names = (*components_of(tuple(node_masks), tuple(edge_masks), bool(batch.graph_names)), "graphs")
    masks = (*node_masks.values(), *edge_masks.values(), batch.graph_mask)
    are_tied = [t in tied for t in node_masks] + [False] * (len(edge_masks) + 1)
    numbers = [None] * len(masks) if num_real is None else num_real
    return dict(zip(names, map(RowMask, masks, numbers, are_tied), strict=True))


def slots_and_pointers(t: GraphType, counts: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Return the graph slot of each of `number` nodes or edges, and the first one of each graph slot, ``[G + 1]``.

    `counts` ``[G]`` has the nodes or edges of type `t` in each graph slot; on the CPU, its sum is checked.
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
