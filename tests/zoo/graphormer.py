"""Graphormer: attention among all nodes of a graph, with a bias for each distance (Ying et al., arXiv 2106.05234)."""

from __future__ import annotations

from typing import Any

from dgl.nn import GraphormerLayer
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.utils import degree, scatter, softmax

from tests.zoo.dense import Dense
from tests.zoo.items import FAR, MOST_NODES
from tests.zoo.parts import Categories, Encoder

HEADS, MOST_EDGES = 2, 7


class DglGraphormer(nn.Module):
    """Dense attention: a feature of the nodes has their distances to all nodes of their graph."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode, self.degrees = Encoder(categories.nodes, width), nn.Embedding(MOST_EDGES + 1, width)
        self.biases = nn.Embedding(FAR + 1, HEADS)
        self.layers = nn.ModuleList(
            GraphormerLayer(width, 2 * width, HEADS, norm_first=True, dropout=0.0, attn_dropout=0.0)
            for _ in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1)

    def forward(self, graph: Any) -> Tensor:
        dense = Dense(graph, MOST_NODES)
        degrees = graph.in_degrees().clamp(max=MOST_EDGES)
        h = dense.spread(self.encode(graph.ndata["feat"]) + self.degrees(degrees))
        bias = self.biases(dense.spread(graph.ndata["distance"]))
        # A graph without nodes attends to an empty slot.
        hidden = ~dense.real
        hidden[:, 0] = False
        mask = hidden.unsqueeze(1).expand(-1, MOST_NODES, -1)
        for layer in self.layers:
            h = layer(h, bias, mask)
        total = (self.norm(h) * dense.real.unsqueeze(2)).sum(1)
        score: Tensor = self.head(total / dense.real.sum(1, keepdim=True).clamp(min=1))
        return score


class PygLayer(nn.Module):
    """Attention over a list of pairs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.queries, self.keys, self.values, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, h: Tensor, pairs: Tensor, bias: Tensor) -> Tensor:
        (source, target), x = pairs, self.norm(h)
        queries, keys, values = (map_(x).view(len(x), HEADS, -1) for map_ in (self.queries, self.keys, self.values))
        scores = (queries[target] * keys[source]).sum(2) / keys.shape[2] ** 0.5 + bias
        weights = softmax(scores, target, num_nodes=len(x))
        seen = scatter(values[source] * weights.unsqueeze(2), target, 0, len(x))
        h = h + self.out(seen.flatten(1))
        out: Tensor = h + self.mlp(self.norm_mlp(h))
        return out


class PygGraphormer(nn.Module):
    """All pairs of nodes are a second list of edges, which limits count; no graph is too large."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode, self.degrees = Encoder(categories.nodes, width), nn.Embedding(MOST_EDGES + 1, width)
        self.biases = nn.Embedding(FAR + 1, HEADS)
        self.layers = nn.ModuleList(PygLayer(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1)

    def forward(self, data: Any) -> Tensor:
        degrees = degree(data.edge_index[1], len(data.x)).long().clamp(max=MOST_EDGES)
        h, bias = self.encode(data.x) + self.degrees(degrees), self.biases(data.pair_distance)
        for layer in self.layers:
            h = layer(h, data.pair_index, bias)
        score: Tensor = self.head(gnn.global_mean_pool(self.norm(h), data.batch, data.num_graphs))
        return score
