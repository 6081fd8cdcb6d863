"""Message passing: edge networks, a recurrent update and Set2Set (Gilmer et al., arXiv 1704.01212)."""

from __future__ import annotations

from typing import Any

from dgl.nn import NNConv, Set2Set
from torch import Tensor, nn
from torch_geometric import nn as gnn

from tests.zoo.parts import Categories, Encoder


class DglMpnn(nn.Module):
    """One convolution and one GRU, used in every step."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.steps = layers
        self.encode, self.encode_edges = Encoder(categories.nodes, width), Encoder(categories.edges, width)
        edge_network = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width * width))
        self.conv = NNConv(width, width, edge_network, "sum")
        self.gru = nn.GRU(width, width)
        self.pool = Set2Set(width, 3, 1)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, graph: Any) -> Tensor:
        h, e = self.encode(graph.ndata["feat"]).relu(), self.encode_edges(graph.edata["feat"])
        state = h.unsqueeze(0)
        for _ in range(self.steps):
            messages = self.conv(graph, h, e).relu()
            out, state = self.gru(messages.unsqueeze(0), state)
            h = out.squeeze(0)
        score: Tensor = self.head(self.pool(graph, h))
        return score


class PygMpnn(nn.Module):
    """The same with the layers of PyG."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.steps = layers
        self.encode, self.encode_edges = Encoder(categories.nodes, width), Encoder(categories.edges, width)
        edge_network = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width * width))
        self.conv = gnn.NNConv(width, width, edge_network, aggr="add")
        self.gru = nn.GRU(width, width)
        self.pool = gnn.Set2Set(width, 3)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, data: Any) -> Tensor:
        h, e = self.encode(data.x).relu(), self.encode_edges(data.edge_attr)
        state = h.unsqueeze(0)
        for _ in range(self.steps):
            messages = self.conv(h, data.edge_index, e).relu()
            out, state = self.gru(messages.unsqueeze(0), state)
            h = out.squeeze(0)
        score: Tensor = self.head(self.pool(h, data.batch, dim_size=data.num_graphs))
        return score
