"""A graph isomorphism network on DGL's own layers that padding does not disturb."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dgl_tuplepack._optional import load
from dgl_tuplepack.nn import MaskedBatchNorm1d
from dgl_tuplepack.padding import PaddedBatch


class MaskedGIN(nn.Module):
    """GIN with edge features (GINE), masked batch norm, and a mean readout.

    Source: Hu et al. 2020, "Strategies for pre-training graph neural networks" (GINE); Xu et al. 2019 (GIN).

    `encode_nodes` maps node features ``[V, ...]`` to ``[V, width]``. `encode_edges` is called once for each layer, and
    returns a module from edge features ``[E, ...]`` to ``[E, width]``. `feature` names the node and edge feature.
    """

    def __init__(
        self,
        encode_nodes: nn.Module,
        encode_edges: Callable[[], nn.Module],
        feature: str,
        num_outputs: int = 1,
        width: int = 64,
        num_layers: int = 3,
    ) -> None:
        super().__init__()
        convolution = load("dgl.nn.pytorch").GINEConv
        self.feature = feature
        self.encode_nodes = encode_nodes
        self.encode_edges = nn.ModuleList(encode_edges() for _ in range(num_layers))
        perceptrons = (
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(num_layers)
        )
        self.layers = nn.ModuleList(map(convolution, perceptrons))
        self.norms = nn.ModuleList(MaskedBatchNorm1d(width) for _ in range(num_layers))
        self.head = nn.Linear(width, num_outputs)

    def forward(self, batch: PaddedBatch) -> Tensor:
        """Return the outputs of each graph slot, ``[G, num_outputs]``; those of padding are arbitrary, but finite."""
        graph: Any = batch.graph
        x = self.encode_nodes(batch.node_features[self.feature])
        for encode_edges, layer, norm in zip(self.encode_edges, self.layers, self.norms, strict=True):
            messages = encode_edges(batch.edge_features[self.feature])
            x = x + torch.relu(norm(layer(graph, x, messages), batch.node_mask))
        with graph.local_scope():
            graph.ndata["x"] = x
            result: Tensor = self.head(load("dgl").mean_nodes(graph, "x"))
        return result
