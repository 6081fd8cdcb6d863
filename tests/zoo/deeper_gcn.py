"""DeeperGCN: softmax aggregation with a temperature, and residuals around norms (Li et al., arXiv 2006.07739)."""

from __future__ import annotations

from typing import Any

import dgl
import dgl.function as fn
import torch
from dgl.nn.functional import edge_softmax
from torch import Tensor, nn
from torch_geometric import nn as gnn

from tests.zoo.parts import Categories, Encoder, perceptron

# Keeps messages positive.
SMALL = 1e-7


class DglGenConv(nn.Module):
    """Each channel of a message is weighted by a softmax over the messages to its node."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.temperature, self.mlp = nn.Parameter(torch.ones(())), perceptron(width)

    def forward(self, graph: Any, h: Tensor, e: Tensor) -> Tensor:
        with graph.local_scope():
            graph.ndata["h"], graph.edata["e"] = h, e
            graph.apply_edges(fn.u_add_e("h", "e", "m"))
            messages = graph.edata["m"].relu() + SMALL
            graph.edata["m"] = messages * edge_softmax(graph, messages * self.temperature)
            graph.update_all(fn.copy_e("m", "m"), fn.sum("m", "sum"))
            out: Tensor = self.mlp(h + graph.ndata["sum"])
        return out


class DglDeeperGCN(nn.Module):
    """A norm and an activation stand before each convolution, and a residual goes around all three."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode, self.encode_edges = Encoder(categories.nodes, width), Encoder(categories.edges, width)
        self.convs = nn.ModuleList(DglGenConv(width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, graph: Any) -> Tensor:
        h, e = self.encode(graph.ndata["feat"]), self.encode_edges(graph.edata["feat"])
        h = self.convs[0](graph, h, e)
        for conv, norm in zip(self.convs[1:], self.norms[1:], strict=True):
            h = h + conv(graph, norm(h).relu(), e)
        with graph.local_scope():
            graph.ndata["h"] = self.norms[0](h).relu()
            score: Tensor = self.head(dgl.mean_nodes(graph, "h"))
        return score


class PygDeeperGCN(nn.Module):
    """The same with PyG's layers, whose perceptrons have batch norms and whose norms are layer norms of all nodes."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode, self.encode_edges = Encoder(categories.nodes, width), Encoder(categories.edges, width)
        self.layers = nn.ModuleList(
            gnn.DeepGCNLayer(
                gnn.GENConv(width, width, aggr="softmax", t=1.0, learn_t=True),
                gnn.LayerNorm(width),
                nn.ReLU(),
                block="res+",
                dropout=0.0,
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, data: Any) -> Tensor:
        h, e = self.encode(data.x), self.encode_edges(data.edge_attr)
        h = self.layers[0].conv(h, data.edge_index, e)
        for layer in self.layers[1:]:
            h = layer(h, data.edge_index, e)
        h = self.layers[0].act(self.layers[0].norm(h))
        score: Tensor = self.head(gnn.global_mean_pool(h, data.batch, data.num_graphs))
        return score
