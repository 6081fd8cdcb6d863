"""EGNN: messages from squared distances, and positions that move along bonds (Satorras et al., arXiv 2102.09844)."""

from __future__ import annotations

from typing import Any

import dgl
import torch
from dgl.nn import EGNNConv
from torch import Tensor, nn
from torch_geometric import nn as gnn

from tests.zoo.parts import Categories, Encoder


class DglEGNN(nn.Module):
    """DGL's layer divides by the lengths of edges, so padding edges need a length."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode, self.encode_edges = Encoder(categories.nodes, width), Encoder(categories.edges, width)
        self.layers = nn.ModuleList(EGNNConv(width, width, width, width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, graph: Any) -> Tensor:
        h, e, x = self.encode(graph.ndata["feat"]), self.encode_edges(graph.edata["feat"]), graph.ndata["pos"]
        for layer in self.layers:
            h, x = layer(graph, h, x, e)
        with graph.local_scope():
            graph.ndata["h"] = self.head(h)
            score: Tensor = dgl.sum_nodes(graph, "h")
        return score


class PygLayer(gnn.MessagePassing):
    """A layer as a class of message passing; gates weight its messages."""

    def __init__(self, width: int) -> None:
        super().__init__(aggr="add")
        self.edge_mlp = nn.Sequential(nn.Linear(3 * width + 1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.gate = nn.Sequential(nn.Linear(width, 1), nn.Sigmoid())
        self.move = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1, bias=False))
        self.node_mlp = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, h: Tensor, x: Tensor, edge_index: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        out, moved = self.propagate(edge_index, h=h, x=x, e=e)
        return h + self.node_mlp(torch.cat([h, out], dim=1)), x + moved

    def message(self, h_i: Tensor, h_j: Tensor, x_i: Tensor, x_j: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        difference = x_i - x_j
        messages = self.edge_mlp(torch.cat([h_i, h_j, difference.square().sum(1, keepdim=True), e], dim=1))
        direction = difference / (difference.norm(dim=1, keepdim=True) + 1)
        return messages * self.gate(messages), direction * self.move(messages)

    def aggregate(
        self, inputs: tuple[Tensor, Tensor], index: Tensor, ptr: Tensor | None = None, dim_size: int | None = None
    ) -> tuple[Tensor, Tensor]:
        messages, moves = (super(PygLayer, self).aggregate(each, index, ptr, dim_size) for each in inputs)
        return messages, moves


class PygEGNN(nn.Module):
    """The same with message passing of PyG."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode, self.encode_edges = Encoder(categories.nodes, width), Encoder(categories.edges, width)
        self.layers = nn.ModuleList(PygLayer(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, data: Any) -> Tensor:
        h, e, x = self.encode(data.x), self.encode_edges(data.edge_attr), data.pos
        for layer in self.layers:
            h, x = layer(h, x, data.edge_index, e)
        return gnn.global_add_pool(self.head(h), data.batch, data.num_graphs)
