"""Make single DGLGraphs of graphs that lie one after the other in tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack.graphs.blocks import EdgeType
from dgl_tuplepack.graphs.joining import build_item


def split_graphs(
    names: Sequence[str],
    num_nodes: Mapping[str, Sequence[int]],
    num_edges: Mapping[EdgeType, Sequence[int]],
    endpoints: Mapping[EdgeType, tuple[Tensor, Tensor]],
    node_features: Mapping[str, Mapping[str, Tensor]],
    edge_features: Mapping[EdgeType, Mapping[str, Tensor]],
) -> Iterator[Any]:
    """Yield a DGLGraph for each graph, or a dict of those `names`, whose tensors are parts of the given ones.

    `num_nodes` and `num_edges` have the numbers of each graph, by type. Endpoints count from 0 in each graph; the
    caller has checked them.
    """
    ends = {e: tuple(torch.split(end, list(num_edges[e])) for end in both) for e, both in endpoints.items()}
    nodes = {
        t: {n: torch.split(v, list(num_nodes[t])) for n, v in of_type.items()} for t, of_type in node_features.items()
    }
    edges = {
        e: {n: torch.split(v, list(num_edges[e])) for n, v in of_type.items()} for e, of_type in edge_features.items()
    }
    for i in range(len(next(iter(num_nodes.values())))):
        yield build_item(
            names,
            {e: (src[i], dst[i]) for e, (src, dst) in ends.items()},
            {t: numbers[i] for t, numbers in num_nodes.items()},
            {t: {name: parts[i] for name, parts in of_type.items()} for t, of_type in nodes.items()},
            {e: {name: parts[i] for name, parts in of_type.items()} for e, of_type in edges.items()},
        )
