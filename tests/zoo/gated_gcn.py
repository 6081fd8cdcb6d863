"""Gated graph convolution: features, norms and residuals of nodes and edges (Bresson and Laurent, 2017)."""

from __future__ import annotations

from typing import Any

import dgl
import dgl.function as fn
from torch import Tensor, nn
from torch_geometric import nn as gnn

from tests.zoo.parts import Categories, Encoder

# Keeps the quotient of sums defined for nodes without incoming edges.
SMALL = 1e-6


class _Maps(nn.Module):
    """The linear maps and norms of a layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own, self.sent, self.source, self.target, self.edge = (nn.Linear(width, width) for _ in range(5))
        self.norm_nodes, self.norm_edges = nn.BatchNorm1d(width), nn.BatchNorm1d(width)

    def finished(self, h: Tensor, e: Tensor, new_h: Tensor, new_e: Tensor) -> tuple[Tensor, Tensor]:
        return h + self.norm_nodes(new_h).relu(), e + self.norm_edges(new_e).relu()


class DglLayer(nn.Module):
    """A layer written with DGL's message passing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.maps = _Maps(width)

    def forward(self, graph: Any, h: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        maps = self.maps
        with graph.local_scope():
            graph.ndata["sent"], graph.ndata["source"], graph.ndata["target"] = (
                maps.sent(h),
                maps.source(h),
                maps.target(h),
            )
            graph.apply_edges(fn.u_add_v("source", "target", "ends"))
            new_e = graph.edata["ends"] + maps.edge(e)
            graph.edata["gate"] = new_e.sigmoid()
            graph.update_all(fn.u_mul_e("sent", "gate", "m"), fn.sum("m", "messages"))
            graph.update_all(fn.copy_e("gate", "m"), fn.sum("m", "gates"))
            new_h = maps.own(h) + graph.ndata["messages"] / (graph.ndata["gates"] + SMALL)
        return maps.finished(h, e, new_h, new_e)


class PygLayer(gnn.MessagePassing):
    """A layer written as a class of message passing."""

    def __init__(self, width: int) -> None:
        super().__init__(aggr="add")
        self.maps = _Maps(width)

    def forward(self, h: Tensor, edge_index: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        maps = self.maps
        source, target = edge_index
        new_e = maps.source(h)[source] + maps.target(h)[target] + maps.edge(e)
        gate = new_e.sigmoid()
        messages = self.propagate(edge_index, sent=maps.sent(h), gate=gate)
        gates = self.aggregate(gate, target, dim_size=h.shape[0])
        return maps.finished(h, e, maps.own(h) + messages / (gates + SMALL), new_e)

    def message(self, sent_j: Tensor, gate: Tensor) -> Tensor:
        return sent_j * gate


class DglGatedGCN(nn.Module):
    """Encoders, layers, a mean and a perceptron."""

    layer: type[nn.Module] = DglLayer

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode, self.encode_edges = Encoder(categories.nodes, width), Encoder(categories.edges, width)
        self.layers = nn.ModuleList(self.layer(width) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width // 2), nn.ReLU(), nn.Linear(width // 2, 1))

    def forward(self, graph: Any) -> Tensor:
        h, e = self.encode(graph.ndata["feat"]), self.encode_edges(graph.edata["feat"])
        for layer in self.layers:
            h, e = layer(graph, h, e)
        with graph.local_scope():
            graph.ndata["h"] = h
            score: Tensor = self.head(dgl.mean_nodes(graph, "h"))
        return score


class PygGatedGCN(DglGatedGCN):
    """The same with message passing of PyG."""

    layer = PygLayer

    def forward(self, data: Any) -> Tensor:
        h, e = self.encode(data.x), self.encode_edges(data.edge_attr)
        for layer in self.layers:
            h, e = layer(h, data.edge_index, e)
        score: Tensor = self.head(gnn.global_mean_pool(h, data.batch, data.num_graphs))
        return score
