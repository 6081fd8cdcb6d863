"""GraphGPS: a convolution and attention among all nodes in each layer (Rampasek et al., arXiv 2205.12454)."""

from __future__ import annotations

from typing import Any

from dgl.nn import AvgPooling, GINEConv
from torch import Tensor, nn
from torch_geometric import nn as gnn

from tests.zoo.dense import Dense
from tests.zoo.items import MOST_NODES
from tests.zoo.parts import Categories, Encoder, perceptron

HEADS = 2


class DglGpsLayer(nn.Module):
    """Attention has a fixed number of slots for each graph, so its shapes do not depend on data."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.mlp = GINEConv(perceptron(width)), perceptron(width)
        self.attention = nn.MultiheadAttention(width, HEADS, batch_first=True)
        self.norm_local, self.norm_global, self.norm = (nn.BatchNorm1d(width) for _ in range(3))

    def forward(self, graph: Any, dense: Dense, h: Tensor, e: Tensor) -> Tensor:
        local = self.norm_local(h + self.conv(graph, h, e))
        slots = dense.spread(h)
        seen, _ = self.attention(slots, slots, slots, key_padding_mask=~dense.real, need_weights=False)
        both = local + self.norm_global(h + dense.gather(seen))
        out: Tensor = self.norm(both + self.mlp(both))
        return out


class DglGraphGPS(nn.Module):
    """Layers and a mean."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode, self.encode_edges = Encoder(categories.nodes, width), Encoder(categories.edges, width)
        self.layers = nn.ModuleList(DglGpsLayer(width) for _ in range(layers))
        self.mean, self.head = AvgPooling(), nn.Linear(width, 1)

    def forward(self, graph: Any) -> Tensor:
        h, e, dense = self.encode(graph.ndata["feat"]), self.encode_edges(graph.edata["feat"]), Dense(graph, MOST_NODES)
        for layer in self.layers:
            h = layer(graph, dense, h, e)
        score: Tensor = self.head(self.mean(graph, h))
        return score


class PygGraphGPS(nn.Module):
    """PyG's layer, whose attention has as many slots as the largest graph of the batch has nodes."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode, self.encode_edges = Encoder(categories.nodes, width), Encoder(categories.edges, width)
        self.layers = nn.ModuleList(
            gnn.GPSConv(width, gnn.GINEConv(perceptron(width)), heads=HEADS) for _ in range(layers)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, data: Any) -> Tensor:
        h, e = self.encode(data.x), self.encode_edges(data.edge_attr)
        for layer in self.layers:
            h = layer(h, data.edge_index, data.batch, edge_attr=e)
        score: Tensor = self.head(gnn.global_mean_pool(h, data.batch, data.num_graphs))
        return score
