"""R-GCN: a convolution for each relation of a heterograph (Schlichtkrull et al., arXiv 1703.06103)."""

from __future__ import annotations

from typing import Any

import dgl
from dgl.nn import GraphConv, HeteroGraphConv
from torch import Tensor, nn
from torch_geometric import nn as gnn

from tests.zoo.items import RELATIONS, TYPES
from tests.zoo.parts import Categories, Encoder


class DglRGCN(nn.Module):
    """Messages of all relations are added to a map of the node itself; each type is read out."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode = nn.ModuleDict({t: Encoder(categories.nodes, width) for t in TYPES})
        self.convs = nn.ModuleList(
            HeteroGraphConv(
                {name: GraphConv(width, width, norm="right", allow_zero_in_degree=True) for _, name, _ in RELATIONS}
            )
            for _ in range(layers)
        )
        self.own = nn.ModuleList(nn.ModuleDict({t: nn.Linear(width, width) for t in TYPES}) for _ in range(layers))
        self.heads = nn.ModuleDict({t: nn.Linear(width, 1) for t in TYPES})

    def forward(self, graph: Any) -> Tensor:
        h = {t: encode(graph.nodes[t].data["feat"]) for t, encode in self.encode.items()}
        for conv, own in zip(self.convs, self.own, strict=True):
            messages = conv(graph, h)
            h = {t: (messages[t] + own[t](h[t])).relu() for t in TYPES}
        with graph.local_scope():
            graph.ndata["h"] = h
            means = {t: dgl.mean_nodes(graph, "h", ntype=t) for t in TYPES}
        scores: list[Tensor] = [head(means[t]) for t, head in self.heads.items()]
        return scores[0] + scores[1]


class PygRGCN(nn.Module):
    """The same with layers of PyG."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode = nn.ModuleDict({t: Encoder(categories.nodes, width) for t in TYPES})
        self.convs = nn.ModuleList(
            gnn.HeteroConv({relation: gnn.SAGEConv(width, width) for relation in RELATIONS}) for _ in range(layers)
        )
        self.heads = nn.ModuleDict({t: nn.Linear(width, 1) for t in TYPES})

    def forward(self, data: Any) -> Tensor:
        h = {t: encode(data[t].x) for t, encode in self.encode.items()}
        for conv in self.convs:
            h = {t: out.relu() for t, out in conv(h, data.edge_index_dict).items()}
        scores: list[Tensor] = [
            head(gnn.global_mean_pool(h[t], data[t].batch, data.num_graphs)) for t, head in self.heads.items()
        ]
        return scores[0] + scores[1]
