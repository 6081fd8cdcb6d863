"""A graph isomorphism network on layers of DGL, or of PyG, that padding does not disturb."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dgl_tuplepack._optional import load
from dgl_tuplepack.nn import MaskedBatchNorm1d
from dgl_tuplepack.padding import BatchTensors, PaddedBatch


class MaskedGIN(nn.Module):
    """GIN with edge features (GINE), masked batch norm, and a mean readout.

    Source: Hu et al. 2020, "Strategies for pre-training graph neural networks" (GINE); Xu et al. 2019 (GIN).

    `encode_nodes` maps node features ``[V, ...]`` to ``[V, width]``. `encode_edges` is called once for each layer, and
    returns a module from edge features ``[E, ...]`` to ``[E, width]``. `feature` names the node and edge feature.
    `framework`, "dgl" or "pyg", is where the layers and the readout come from.
    """

    def __init__(
        self,
        encode_nodes: nn.Module,
        encode_edges: Callable[[], nn.Module],
        feature: str,
        num_outputs: int = 1,
        width: int = 64,
        num_layers: int = 3,
        framework: str = "dgl",
    ) -> None:
        super().__init__()
        layers = load("dgl.nn.pytorch" if framework == "dgl" else "torch_geometric.nn")
        self._mean = load("dgl").mean_nodes if framework == "dgl" else layers.global_mean_pool
        self.framework, self.feature = framework, feature
        self.encode_nodes = encode_nodes
        self.encode_edges = nn.ModuleList(encode_edges() for _ in range(num_layers))
        perceptrons = (
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(num_layers)
        )
        self.layers = nn.ModuleList(map(layers.GINEConv, perceptrons))
        self.norms = nn.ModuleList(MaskedBatchNorm1d(width) for _ in range(num_layers))
        self.head = nn.Linear(width, num_outputs)

    def forward(self, batch: PaddedBatch | BatchTensors) -> Tensor:
        """Return the outputs of each graph slot, ``[G, num_outputs]``; those of padding are arbitrary, but finite.

        Compiled code takes ``batch.tensors``.
        """
        x = self.encode_nodes(batch.node_features[self.feature])
        graph: Any = batch.graph if self.framework == "dgl" else torch.stack([batch.src, batch.dst])
        for encode_edges, layer, norm in zip(self.encode_edges, self.layers, self.norms, strict=True):
            messages = encode_edges(batch.edge_features[self.feature])
            out = layer(graph, x, messages) if self.framework == "dgl" else layer(x, graph, messages)
            x = x + torch.relu(norm(out, batch.node_mask))
        result: Tensor = self.head(self._readout(batch, graph, x))
        return result

    def _readout(self, batch: PaddedBatch | BatchTensors, graph: Any, x: Tensor) -> Tensor:
        """Mean over the nodes of each graph, ``[G, width]``."""
        mean: Tensor
        if self.framework == "dgl":
            with graph.local_scope():
                graph.ndata["x"] = x
                mean = self._mean(graph, "x")
        else:
            mean = self._mean(x, batch.node_graph_slots, batch.graph_mask.shape[0])
        return mean
