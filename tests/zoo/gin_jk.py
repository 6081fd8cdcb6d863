"""GIN with jumping knowledge: every layer is read out by a sum (Xu et al., arXiv 1810.00826 and 1806.03536)."""

from __future__ import annotations

from typing import Any

import torch
from dgl.nn import GINConv, SumPooling
from torch import Tensor, nn
from torch_geometric import nn as gnn

from tests.zoo.parts import Categories, Encoder, perceptron


class DglGinJK(nn.Module):
    """The sums of each layer get a linear map of their own, and the results are added up."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode = Encoder(categories.nodes, width)
        self.convs = nn.ModuleList(GINConv(perceptron(width), "sum", learn_eps=True) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.heads = nn.ModuleList(nn.Linear(width, 1) for _ in range(layers + 1))
        self.pool = SumPooling()

    def forward(self, graph: Any) -> Tensor:
        h = self.encode(graph.ndata["feat"])
        score: Tensor = self.heads[0](self.pool(graph, h))
        for conv, norm, head in zip(self.convs, self.norms, self.heads[1:], strict=True):
            h = norm(conv(graph, h)).relu()
            score = score + head(self.pool(graph, h))
        return score


class PygGinJK(nn.Module):
    """The sums of all layers stand side by side."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode = Encoder(categories.nodes, width)
        self.convs = nn.ModuleList(gnn.GINConv(perceptron(width), train_eps=True) for _ in range(layers))
        self.norms = nn.ModuleList(gnn.BatchNorm(width) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear((layers + 1) * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, data: Any) -> Tensor:
        h = self.encode(data.x)
        sums = [gnn.global_add_pool(h, data.batch, data.num_graphs)]
        for conv, norm in zip(self.convs, self.norms, strict=True):
            h = norm(conv(h, data.edge_index)).relu()
            sums.append(gnn.global_add_pool(h, data.batch, data.num_graphs))
        score: Tensor = self.head(torch.cat(sums, dim=1))
        return score
