"""GIN with edge features and a virtual node, as the baselines of OGB have it (Hu et al., arXiv 2005.00687)."""

from __future__ import annotations

from typing import Any

import dgl
from dgl.nn import AvgPooling, GINEConv, SumPooling
from torch import Tensor, nn
from torch_geometric import nn as gnn

from tests.zoo.parts import Categories, Encoder, perceptron


def updates_of(width: int, layers: int) -> nn.ModuleList:
    """Perceptrons over the virtual nodes, whose norms see a row for each graph."""
    return nn.ModuleList(nn.Sequential(perceptron(width), nn.BatchNorm1d(width), nn.ReLU()) for _ in range(layers - 1))


class DglGinVN(nn.Module):
    """The virtual node is added to every node before a layer, and updated by their sum."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode = Encoder(categories.nodes, width)
        self.encode_edges = nn.ModuleList(Encoder(categories.edges, width) for _ in range(layers))
        self.convs = nn.ModuleList(GINEConv(perceptron(width), learn_eps=True) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.virtual = nn.Embedding(1, width)
        self.updates = updates_of(width, layers)
        self.sum, self.mean, self.head = SumPooling(), AvgPooling(), nn.Linear(width, 1)

    def forward(self, graph: Any) -> Tensor:
        h, bonds = self.encode(graph.ndata["feat"]), graph.edata["feat"]
        virtual = self.virtual.weight.expand(graph.batch_size, -1)
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            h = h + dgl.broadcast_nodes(graph, virtual)
            out = norm(conv(graph, h, self.encode_edges[i](bonds)))
            if i < len(self.updates):
                out = out.relu()
                virtual = self.updates[i](self.sum(graph, h) + virtual)
            h = out
        score: Tensor = self.head(self.mean(graph, h))
        return score


class PygGinVN(nn.Module):
    """The same with the layers of PyG."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode = Encoder(categories.nodes, width)
        self.encode_edges = nn.ModuleList(Encoder(categories.edges, width) for _ in range(layers))
        self.convs = nn.ModuleList(gnn.GINEConv(perceptron(width), train_eps=True) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.virtual = nn.Embedding(1, width)
        self.updates = updates_of(width, layers)
        self.head = nn.Linear(width, 1)

    def forward(self, data: Any) -> Tensor:
        h = self.encode(data.x)
        virtual = self.virtual(data.edge_index.new_zeros(data.num_graphs))
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            h = h + virtual[data.batch]
            out = norm(conv(h, data.edge_index, self.encode_edges[i](data.edge_attr)))
            if i < len(self.updates):
                out = out.relu()
                virtual = self.updates[i](gnn.global_add_pool(h, data.batch, data.num_graphs) + virtual)
            h = out
        score: Tensor = self.head(gnn.global_mean_pool(h, data.batch, data.num_graphs))
        return score
