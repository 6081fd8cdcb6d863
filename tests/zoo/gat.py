"""Graph attention with several heads and a mean over nodes (Velickovic et al., arXiv 1710.10903)."""

from __future__ import annotations

from typing import Any

import dgl
from dgl.nn import GATConv
from torch import Tensor, nn
from torch.nn.functional import elu
from torch_geometric import nn as gnn

from tests.zoo.parts import Categories, Encoder

HEADS = 4


class DglGat(nn.Module):
    """Heads stand side by side. Padding nodes may have no incoming edge, and the layer has to allow it."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode = Encoder(categories.nodes, width)
        self.convs = nn.ModuleList(
            GATConv(width, width // HEADS, HEADS, residual=True, activation=elu, allow_zero_in_degree=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, graph: Any) -> Tensor:
        h = self.encode(graph.ndata["feat"])
        for conv in self.convs:
            h = conv(graph, h).flatten(1)
        with graph.local_scope():
            graph.ndata["h"] = h
            score: Tensor = self.head(dgl.mean_nodes(graph, "h"))
        return score


class PygGat(nn.Module):
    """Loops are left out: where the layer adds them, shapes depend on data, and the compiler fails on two layers."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode = Encoder(categories.nodes, width)
        self.convs = nn.ModuleList(
            gnn.GATConv(width, width // HEADS, HEADS, add_self_loops=False) for _ in range(layers)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, data: Any) -> Tensor:
        h = self.encode(data.x)
        for conv in self.convs:
            h = elu(conv(h, data.edge_index))
        score: Tensor = self.head(gnn.global_mean_pool(h, data.batch, data.num_graphs))
        return score
