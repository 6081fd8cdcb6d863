"""GraphSAGE with a maximum over nodes (Hamilton et al., arXiv 1706.02216)."""

from __future__ import annotations

from typing import Any

from dgl.nn import MaxPooling, SAGEConv
from torch import Tensor, nn
from torch.nn.functional import normalize, relu
from torch_geometric import nn as gnn

from tests.zoo.parts import Categories, Encoder


class DglSage(nn.Module):
    """Neighbours are pooled by a maximum, and rows have length 1."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode = Encoder(categories.nodes, width)
        self.convs = nn.ModuleList(
            SAGEConv(width, width, "pool", norm=normalize, activation=relu) for _ in range(layers)
        )
        self.pool, self.head = MaxPooling(), nn.Linear(width, 1)

    def forward(self, graph: Any) -> Tensor:
        h = self.encode(graph.ndata["feat"])
        for conv in self.convs:
            h = conv(graph, h)
        score: Tensor = self.head(self.pool(graph, h))
        return score


class PygSage(nn.Module):
    """PyG's own model: means of neighbours, graph norms, and the outputs of all layers side by side."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode = Encoder(categories.nodes, width)
        self.layers = gnn.GraphSAGE(width, width, layers, width, norm="graph_norm", jk="cat")
        self.head = nn.Linear(width, 1)

    def forward(self, data: Any) -> Tensor:
        h = self.layers(self.encode(data.x), data.edge_index, batch=data.batch, batch_size=data.num_graphs)
        score: Tensor = self.head(gnn.global_max_pool(h, data.batch, data.num_graphs))
        return score
