"""The labels in an item of a `PackedDataset`, and the masks and labels of batched packs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.batches.tensors import named_row_masks
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import public_type
from dgl_tuplepack.graphs.named import by_name, graph_names, is_graph, located_types
from dgl_tuplepack.nn.masks import RowMask

if TYPE_CHECKING:
    from dgl import DGLGraph


class PackLabels(NamedTuple):
    """Labels of the G graph slots of a pack, with a mask of the real slots. DGL's collate stacks the labels of p packs.

    Attributes
    ----------
    values
        Labels ``[G, ...]``, or a dict of such tensors by name; an empty dict if graphs have no label. After collate,
        ``[p, G, ...]``.
    graph_mask
        Bool ``[G]``, True = real; after collate ``[p, G]``.
    graph_ids
        int64 ``[G]``, positions in the source, -1 in padding; after collate ``[p, G]``.
    """

    values: Tensor | dict[str, Tensor]
    graph_mask: Tensor
    graph_ids: Tensor


class FlatPacks(NamedTuple):
    """Masks and labels of a batch of p packs, with one row for each slot of the batch; made by `flatten_packs`.

    Fields are as in `PaddedBatch`, but `labels` is an empty dict if graphs have no label.
    """

    labels: Tensor | dict[str, Tensor]
    node_mask: Any
    edge_mask: Any
    graph_mask: Tensor
    graph_ids: Tensor
    graph_names: tuple[str, ...] = ()

    def row_masks(self) -> dict[str, RowMask]:
        """Return row masks by component name, for ``tp.nn.masked(flat)``."""
        return named_row_masks(self)


def flatten_packs(graph: DGLGraph | Mapping[str, DGLGraph], labels: PackLabels) -> FlatPacks:
    """Return the masks and labels of a batch of a `PackedDataset`, with one row for each slot of the batch.

    Call this function before the graph is changed: DGL drops the assignment of nodes to graphs when edges are added,
    for example by `dgl.add_self_loop`.

    Parameters
    ----------
    graph, labels
        The two values of a batch from a loader of a `PackedDataset`, or of an item of the dataset. Named graphs are a
        dict of DGLGraphs.

    Returns
    -------
    FlatPacks
        A named tuple of labels, node_mask, edge_mask, graph_mask and graph_ids, on the device of the graph.

    Raises
    ------
    SchemaError
        The arguments are not a graph and `PackLabels`, or belong to different batches.

    Examples
    --------
    >>> import dgl
    >>> from dgl_tuplepack import Limits, PackedDataset
    >>> packed = PackedDataset([(dgl.graph(([0, 1], [1, 0])), 3), (dgl.graph(([], []), num_nodes=1), 4)], Limits(3, 2))
    >>> flat = flatten_packs(*packed[0])
    >>> flat.labels, flat.node_mask, flat.edge_mask
    (tensor([3, 4, 0]), tensor([ True,  True,  True, False]), tensor([True, True]))
    """
    graphs = by_name(graph)
    if not all(map(is_graph, graphs.values())) or not isinstance(labels, PackLabels):
        raise SchemaError(
            f"flatten_packs needs a DGLGraph and PackLabels, but got {type(graph).__name__} and {shown(labels)}; give "
            "both values of an item of a PackedDataset, or of a batch that DGL's collate makes of such items."
        )
    slots = labels.graph_mask.numel()
    wrong = [each.batch_size for each in graphs.values() if each.batch_size != slots]
    if wrong:
        raise SchemaError(
            f"the graph holds {wrong[0]} graphs, but the labels are for {slots}; give both values of one batch, "
            "before the graph is changed: DGL treats the batch as one graph once nodes or edges are added or removed."
        )

    def flat(values: Any) -> Any:
        # Labels [G, ...] of an item stay, and labels [p, G, ...] of a batch become [p * G, ...].
        if isinstance(values, Mapping):
            return {name: flat(inner) for name, inner in values.items()}
        return values.reshape(slots, *values.shape[labels.graph_mask.ndim :]).to(device)

    device = next(iter(graphs.values())).device
    mask = flat(labels.graph_mask)
    nodes, edges = {}, {}
    for t, owner, type_in_graph in located_types(graph):
        if isinstance(t, str):
            nodes[t] = _spread(mask, owner.batch_num_nodes(type_in_graph), owner.num_nodes(type_in_graph))
        else:
            # The edges of a homogeneous named graph have the name of the graph as their key.
            key = t if graph_names(graph) == () else public_type(t)
            edges[key] = _spread(mask, owner.batch_num_edges(type_in_graph), owner.num_edges(type_in_graph))
    # In `graphs`, a graph without a name has the name "".
    is_homogeneous = len(nodes) == len(edges) == 1 and "" in graphs
    return FlatPacks(
        labels=flat(labels.values),
        node_mask=next(iter(nodes.values())) if is_homogeneous else nodes,
        edge_mask=next(iter(edges.values())) if is_homogeneous else edges,
        graph_mask=mask,
        graph_ids=flat(labels.graph_ids),
        graph_names=graph_names(graph),
    )


def _spread(mask: Tensor, counts: Tensor, total: int) -> Tensor:
    """Return the mask of all `total` nodes (edges): each node (edge) gets the value of its graph slot."""
    return torch.repeat_interleave(mask, counts, output_size=total)
