"""A graph isomorphism network with DGL, PyG or plain torch layers; padding does not affect its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.tensors import BatchTensors
from dgl_tuplepack.nn import MaskedBatchNorm1d


class PlainGINE(nn.Module):
    """GINE layer on plain tensors: apply a perceptron to the features of each node plus the sum of its messages."""

    def __init__(self, perceptron: nn.Module) -> None:
        super().__init__()
        self.perceptron = perceptron

    def forward(self, x: Tensor, edge_index: Tensor, messages: Tensor) -> Tensor:
        """Return new node features, ``[V, width]``.

        `x` has the node features ``[V, width]``, `edge_index` the source and destination nodes ``[2, E]``, and
        `messages` the encoded edge features ``[E, width]``.
        """
        src, dst = edge_index
        result: Tensor = self.perceptron(x.index_add(0, dst, (x.index_select(0, src) + messages).relu()))
        return result


def _mean_by_slot(x: Tensor, slots: Tensor, number: int) -> Tensor:
    """Return the mean of the rows of `x` in each of `number` graph slots, or 0 for a slot without rows."""
    counts = x.new_zeros(number).index_add(0, slots, x.new_ones(len(slots)))
    return x.new_zeros(number, x.shape[1]).index_add(0, slots, x) / counts.clamp(min=1).unsqueeze(1)


class MaskedGIN(nn.Module):
    """GIN with edge features (GINE), masked batch norm and a mean readout.

    Source: Hu et al. 2020, "Strategies for pre-training graph neural networks" (GINE); Xu et al. 2019 (GIN).

    `encode_nodes` maps node features ``[V, ...]`` to ``[V, width]``. `encode_edges` is called once per layer and
    returns a module that maps edge features ``[E, ...]`` to ``[E, width]``. `feature` is the name of the node
    feature and of the edge feature. `framework`, "dgl", "pyg" or "torch", provides the layers and the readout.
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
        match framework:
            case "dgl":
                gine, self._mean = load("dgl.nn.pytorch").GINEConv, load("dgl").mean_nodes
            case "pyg":
                layers = load("torch_geometric.nn")
                gine, self._mean = layers.GINEConv, layers.global_mean_pool
            case _:
                gine, self._mean = PlainGINE, _mean_by_slot
        self.framework, self.feature = framework, feature
        self.encode_nodes = encode_nodes
        self.encode_edges = nn.ModuleList(encode_edges() for _ in range(num_layers))
        perceptrons = (
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(num_layers)
        )
        self.layers = nn.ModuleList(map(gine, perceptrons))
        self.norms = nn.ModuleList(MaskedBatchNorm1d(width) for _ in range(num_layers))
        self.head = nn.Linear(width, num_outputs)

    def forward(self, batch: PaddedBatch | BatchTensors) -> Tensor:
        """Return the outputs of each graph slot, ``[G, num_outputs]``.

        The outputs of padding slots are arbitrary but finite. In compiled code, pass ``batch.tensors``.
        """
        x = self.encode_nodes(batch.node_features[self.feature])
        graph: Any = batch.graph if self.framework == "dgl" else torch.stack([batch.src, batch.dst])
        for encode_edges, layer, norm in zip(self.encode_edges, self.layers, self.norms, strict=True):
            edges = encode_edges(batch.edge_features[self.feature])
            out = layer(graph, x, edges) if self.framework == "dgl" else layer(x, graph, edges)
            x = x + torch.relu(norm(out, batch.node_mask))
        result: Tensor = self.head(self._readout(batch, graph, x))
        return result

    def _readout(self, batch: PaddedBatch | BatchTensors, graph: Any, x: Tensor) -> Tensor:
        """Return the mean of the node features `x` over the nodes of each graph slot, ``[G, width]``."""
        mean: Tensor
        if self.framework == "dgl":
            with graph.local_scope():
                graph.ndata["x"] = x
                mean = self._mean(graph, "x")
        else:
            mean = self._mean(x, batch.node_graph_slots, batch.graph_mask.shape[0])
        return mean
