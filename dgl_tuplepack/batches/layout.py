"""The tensors of a padded batch: the dtype and shape of each tensor, and a function that makes a batch from tensors.

Two modules make batches: `pad_graph.py` with torch operations, and `storage/assembler.py` in one compiled pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.graphs.blocks import ENDS
from dgl_tuplepack.graphs.schema import Schema, as_label

# Key of a tensor: its content, the type of its rows (None: graphs) and, for a feature or label, its name. Examples:
# ("mask", type), ("node_feature", type, name).
Key = tuple[Any, ...]
Spec = tuple[torch.dtype, tuple[int, ...]]


def layout_of(schema: Schema, slots: Mapping[Any, int], idtype: torch.dtype, sort_edges: bool) -> dict[Key, Spec]:
    """Return the dtype and shape of each tensor of a batch.

    `slots` maps each node or edge type to its number of slots, and None to the number of graph slots.
    """
    graphs = slots[None]
    layout: dict[Key, Spec] = {("graph_ids", None): (torch.int64, (graphs,))}
    layout |= {("mask", t): (torch.bool, (number,)) for t, number in slots.items()}
    layout |= {("per_graph", t): (torch.int64, (graphs,)) for t in slots if t is not None}
    layout |= {(end, e): (idtype, (slots[e],)) for e in schema.edge_types for end in ENDS}
    if sort_edges:
        layout |= {("row_pointers", e): (torch.int64, (slots[e[2]] + 1,)) for e in schema.edge_types}
        layout |= {("edge_order", e): (torch.int64, (slots[e],)) for e in schema.edge_types}
    return layout | {key: (spec.dtype, (slots[key[1]], *spec.shape)) for key, spec in schema.columns()}


def batch_of(schema: Schema, tensors: Mapping[Key, Tensor], real: Sequence[int]) -> PaddedBatch:
    """Return the batch that consists of the given tensors, whose keys are the keys of `layout_of`.

    `real` has the number of real nodes of each type, of real edges of each type, and of real graphs. Ids, row pointers
    and edge order may be missing.
    """
    node_types, edge_types = schema.node_types, schema.edge_types
    totals = dict(zip((*node_types, *edge_types, None), real, strict=True))
    pointers = {e: tensors["row_pointers", e] for e in edge_types if ("row_pointers", e) in tensors} or None
    orders = {e: tensors["edge_order", e] for e in edge_types if ("edge_order", e) in tensors} or None
    return PaddedBatch(
        node_types=node_types,
        edge_types=edge_types,
        labels=as_label({name: tensors["label", None, name] for name in schema.labels}),
        graph_mask=tensors["mask", None],
        graph_ids=tensors.get(("graph_ids", None)),
        num_real_graphs=totals[None],
        _num_real_nodes={t: totals[t] for t in node_types},
        _num_real_edges={e: totals[e] for e in edge_types},
        _src={e: tensors["sources", e] for e in edge_types},
        _dst={e: tensors["destinations", e] for e in edge_types},
        _node_features={t: {n: tensors["node_feature", t, n] for n in schema.node_features[t]} for t in node_types},
        _edge_features={e: {n: tensors["edge_feature", e, n] for n in schema.edge_features[e]} for e in edge_types},
        _nodes_per_graph={t: tensors["per_graph", t] for t in node_types},
        _edges_per_graph={e: tensors["per_graph", e] for e in edge_types},
        _node_masks={t: tensors["mask", t] for t in node_types},
        _edge_masks={e: tensors["mask", e] for e in edge_types},
        _row_pointers=pointers,
        _edge_orders=orders,
        graph_names=schema.graph_names,
        _ties=schema.tied,
        _indices=schema.index_columns,
        _pyg=schema.pyg,
        _idtype=schema.idtype,
    )
