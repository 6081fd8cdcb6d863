"""Models that attend to the atoms of a molecule."""

from __future__ import annotations

from typing import Any

import dgl
import dgl.function as fn
import torch
from dgl.nn import AvgPooling, GINEConv, GraphormerLayer
from dgl.nn.functional import edge_softmax
from torch import Tensor, nn
from torch.nn.functional import elu, leaky_relu
from torch_geometric import nn as gnn
from torch_geometric.utils import degree, scatter, softmax

import dgl_tuplepack as tp
from tests.zoo.items import FAR, MOST_NODES
from tests.zoo.parts import AtomModel, BondModel, perceptron

# AttentiveFP: attention over bonds, then over the atoms of a molecule, with GRUs (Xiong et al., 2019).

READOUT_STEPS = 2


class _ScoreAndGru(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.score, self.value, self.gru = nn.Linear(2 * width, 1), nn.Linear(width, width), nn.GRUCell(width, width)


class DglAttention(_ScoreAndGru):
    """Attention to incoming messages, and a GRU that updates nodes by their sum."""

    def forward(self, graph: Any, h: Tensor, messages: Tensor) -> Tensor:
        with graph.local_scope():
            graph.ndata["h"], graph.edata["m"] = h, messages
            graph.apply_edges(lambda edges: {"s": torch.cat([edges.dst["h"], edges.data["m"]], dim=1)})
            weights = edge_softmax(graph, leaky_relu(self.score(graph.edata["s"])))
            graph.edata["m"] = weights * self.value(messages)
            graph.update_all(fn.copy_e("m", "m"), fn.sum("m", "sum"))
            return self.gru(elu(graph.ndata["sum"]), h).relu()


class DglReadout(_ScoreAndGru):
    """Attention of each molecule to its atoms, and a GRU that updates the molecule."""

    def forward(self, graph: Any, h: Tensor, molecules: Tensor) -> Tensor:
        with graph.local_scope():
            both = torch.cat([dgl.broadcast_nodes(graph, molecules.relu()), h], dim=1)
            graph.ndata["s"], graph.ndata["v"] = leaky_relu(self.score(both)), self.value(h)
            graph.ndata["w"] = dgl.softmax_nodes(graph, "s")
            return self.gru(elu(dgl.sum_nodes(graph, "v", "w")), molecules).relu()


class DglAttentiveFP(BondModel):
    """The first layer attends to neighbours with their bonds, the others to neighbours."""

    def build(self, width: int, layers: int) -> None:
        self.join = nn.Linear(2 * width, width)
        self.layers = nn.ModuleList(DglAttention(width) for _ in range(layers))
        self.readout, self.head = DglReadout(width), nn.Linear(width, 1)

    def forward(self, graph: Any) -> Tensor:
        h = leaky_relu(self.encode(graph.ndata["feat"]))
        with graph.local_scope():
            graph.edata["e"] = self.encode_edges(graph.edata["feat"])
            for i, layer in enumerate(self.layers):
                graph.ndata["h"] = h
                graph.apply_edges(fn.copy_u("h", "m"))
                messages = graph.edata["m"]
                if i == 0:
                    messages = leaky_relu(self.join(torch.cat([messages, graph.edata["e"]], dim=1)))
                h = layer(graph, h, messages)
            graph.ndata["h"] = h
            molecules = dgl.sum_nodes(graph, "h")
            for _ in range(READOUT_STEPS):
                molecules = self.readout(graph, h, molecules)
        return self.head(molecules)


class PygAttentiveFP(BondModel):
    """PyG's own model behind the encoders."""

    def build(self, width: int, layers: int) -> None:
        self.layers = gnn.AttentiveFP(width, width, 1, width, layers, READOUT_STEPS)

    def forward(self, data: Any) -> Tensor:
        return self.layers(self.encode(data.x), data.edge_index, self.encode_edges(data.edge_attr), data.batch)


# GraphGPS: a convolution and attention among all nodes in each layer (Rampasek et al., arXiv 2205.12454).

GPS_HEADS = 2


class DglGpsLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.mlp = GINEConv(perceptron(width)), perceptron(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm_local, self.norm_global, self.norm = (nn.BatchNorm1d(width) for _ in range(3))

    def forward(self, graph: Any, h: Tensor, e: Tensor) -> Tensor:
        local = self.norm_local(h + self.conv(graph, h, e))
        q, k, v = self.qkv(h).unflatten(1, (3, GPS_HEADS, -1)).unbind(1)
        seen = tp.nn.attention(q, k, v, graph, MOST_NODES)
        both = local + self.norm_global(h + self.out(seen.flatten(1)))
        return self.norm(both + self.mlp(both))


class DglGraphGPS(BondModel):
    def build(self, width: int, layers: int) -> None:
        self.layers = nn.ModuleList(DglGpsLayer(width) for _ in range(layers))
        self.mean, self.head = AvgPooling(), nn.Linear(width, 1)

    def forward(self, graph: Any) -> Tensor:
        h, e = self.encode(graph.ndata["feat"]), self.encode_edges(graph.edata["feat"])
        for layer in self.layers:
            h = layer(graph, h, e)
        return self.head(self.mean(graph, h))


class PygGraphGPS(BondModel):
    """PyG's layer, whose attention has as many slots as the largest graph of the batch has nodes."""

    def build(self, width: int, layers: int) -> None:
        self.layers = nn.ModuleList(
            gnn.GPSConv(width, gnn.GINEConv(perceptron(width)), heads=GPS_HEADS) for _ in range(layers)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, data: Any) -> Tensor:
        h, e = self.encode(data.x), self.encode_edges(data.edge_attr)
        for layer in self.layers:
            h = layer(h, data.edge_index, data.batch, edge_attr=e)
        return self.head(gnn.global_mean_pool(h, data.batch, data.num_graphs))


# Graphormer: attention among all nodes of a graph, with a bias for each distance (Ying et al., arXiv 2106.05234).

BIASED_HEADS, MOST_EDGES = 2, 7


class DglGraphormer(AtomModel):
    """Dense attention: a feature of the nodes has their distances to all nodes of their graph."""

    def build(self, width: int, layers: int) -> None:
        self.degrees, self.biases = nn.Embedding(MOST_EDGES + 1, width), nn.Embedding(FAR + 1, BIASED_HEADS)
        self.layers = nn.ModuleList(self.layer(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1)

    def layer(self, width: int) -> nn.Module:
        return GraphormerLayer(width, 2 * width, BIASED_HEADS, norm_first=True, dropout=0.0, attn_dropout=0.0)

    def forward(self, graph: Any) -> Tensor:
        degrees = graph.in_degrees().clamp(max=MOST_EDGES)
        rows = tp.nn.dense(self.encode(graph.ndata["feat"]) + self.degrees(degrees), graph, MOST_NODES)
        h, real = rows.values, rows.mask.unsqueeze(2)
        bias = self.biases(tp.nn.dense(graph.ndata["distance"], graph, MOST_NODES).values)
        mask = ~rows.attn_mask[:, 0].expand(-1, MOST_NODES, -1)
        for layer in self.layers:
            h = layer(h, bias, mask)
        return self.head((self.norm(h) * real).sum(1) / real.sum(1).clamp(min=1))


class PygBiasedLayer(nn.Module):
    """Attention over a list of pairs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.queries, self.keys, self.values, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, h: Tensor, pairs: Tensor, bias: Tensor) -> Tensor:
        (source, target), x = pairs, self.norm(h)
        queries, keys, values = (
            map_(x).view(len(x), BIASED_HEADS, -1) for map_ in (self.queries, self.keys, self.values)
        )
        scores = (queries[target] * keys[source]).sum(2) / keys.shape[2] ** 0.5 + bias
        weights = softmax(scores, target, num_nodes=len(x))
        seen = scatter(values[source] * weights.unsqueeze(2), target, 0, len(x))
        h = h + self.out(seen.flatten(1))
        return h + self.mlp(self.norm_mlp(h))


class PygGraphormer(DglGraphormer):
    """All pairs of nodes are a second list of edges, which limits count; no graph is too large."""

    layer = PygBiasedLayer

    def forward(self, data: Any) -> Tensor:
        degrees = degree(data.edge_index[1], len(data.x)).long().clamp(max=MOST_EDGES)
        h, bias = self.encode(data.x) + self.degrees(degrees), self.biases(data.pair_distance)
        for layer in self.layers:
            h = layer(h, data.pair_index, bias)
        return self.head(gnn.global_mean_pool(self.norm(h), data.batch, data.num_graphs))
