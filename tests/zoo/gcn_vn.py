"""GCN with a virtual node, as the baselines of OGB have it (Kipf and Welling, arXiv 1609.02907)."""

from __future__ import annotations

from typing import Any

import dgl
from dgl.nn import AvgPooling, GraphConv, SumPooling
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.utils import degree

from tests.zoo.gin_vn import updates_of
from tests.zoo.parts import Categories, Encoder


class DglGcnVN(nn.Module):
    """Padding nodes may have no incoming edge, and the layer has to allow it."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode = Encoder(categories.nodes, width)
        self.convs = nn.ModuleList(GraphConv(width, width, allow_zero_in_degree=True) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.virtual, self.updates = nn.Embedding(1, width), updates_of(width, layers)
        self.sum, self.mean, self.head = SumPooling(), AvgPooling(), nn.Linear(width, 1)

    def forward(self, graph: Any) -> Tensor:
        h = self.encode(graph.ndata["feat"])
        virtual = self.virtual.weight.expand(graph.batch_size, -1)
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            h = h + dgl.broadcast_nodes(graph, virtual)
            out = norm(conv(graph, h)).relu()
            if i < len(self.updates):
                virtual = virtual + self.updates[i](self.sum(graph, h) + virtual)
            h = h + out
        score: Tensor = self.head(self.mean(graph, h))
        return score


class PygGcnConv(gnn.MessagePassing):
    """A convolution with edge features; a weight of its own stands for the loop of each node."""

    def __init__(self, width: int, categories: Categories) -> None:
        super().__init__(aggr="add")
        self.linear, self.root = nn.Linear(width, width), nn.Embedding(1, width)
        self.encode_edges = Encoder(categories.edges, width)

    def forward(self, h: Tensor, edge_index: Tensor, bonds: Tensor) -> Tensor:
        h, (source, target) = self.linear(h), edge_index
        degrees = degree(source, h.shape[0], h.dtype) + 1
        scale = degrees.rsqrt()
        messages = self.propagate(edge_index, h=h, e=self.encode_edges(bonds), scale=scale[source] * scale[target])
        out: Tensor = messages + (h + self.root.weight).relu() / degrees[:, None]
        return out

    def message(self, h_j: Tensor, e: Tensor, scale: Tensor) -> Tensor:
        return scale[:, None] * (h_j + e).relu()


class PygGcnVN(nn.Module):
    """The same with a convolution written for PyG."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode = Encoder(categories.nodes, width)
        self.convs = nn.ModuleList(PygGcnConv(width, categories) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.virtual, self.updates = nn.Embedding(1, width), updates_of(width, layers)
        self.head = nn.Linear(width, 1)

    def forward(self, data: Any) -> Tensor:
        h = self.encode(data.x)
        virtual = self.virtual(data.edge_index.new_zeros(data.num_graphs))
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            h = h + virtual[data.batch]
            out = norm(conv(h, data.edge_index, data.edge_attr)).relu()
            if i < len(self.updates):
                virtual = virtual + self.updates[i](gnn.global_add_pool(h, data.batch, data.num_graphs) + virtual)
            h = h + out
        score: Tensor = self.head(gnn.global_mean_pool(h, data.batch, data.num_graphs))
        return score
