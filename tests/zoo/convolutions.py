"""Models of convolutions over the bonds of molecules."""

from __future__ import annotations

from typing import Any

import dgl
import dgl.function as fn
import torch
from dgl.nn import AvgPooling, GATConv, GINConv, GINEConv, MaxPooling, NNConv, SAGEConv, Set2Set, SumPooling
from dgl.nn.functional import edge_softmax
from torch import Tensor, nn
from torch.nn.functional import elu, normalize, relu
from torch_geometric import nn as gnn

from tests.zoo.parts import AtomModel, BondModel, Encoder, perceptron

# GIN with jumping knowledge: every layer is read out by a sum (Xu et al., arXiv 1810.00826 and 1806.03536).


class DglGinJK(AtomModel):
    """The sums of each layer get a linear map of their own, and the results are added up."""

    def build(self, width: int, layers: int) -> None:
        self.convs = nn.ModuleList(GINConv(perceptron(width), "sum", learn_eps=True) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.heads = nn.ModuleList(nn.Linear(width, 1) for _ in range(layers + 1))
        self.pool = SumPooling()

    def forward(self, graph: Any) -> Tensor:
        h = self.encode(graph.ndata["feat"])
        score = self.heads[0](self.pool(graph, h))
        for conv, norm, head in zip(self.convs, self.norms, self.heads[1:], strict=True):
            h = norm(conv(graph, h)).relu()
            score = score + head(self.pool(graph, h))
        return score


class PygGinJK(AtomModel):
    """The sums of all layers stand side by side."""

    def build(self, width: int, layers: int) -> None:
        self.convs = nn.ModuleList(gnn.GINConv(perceptron(width), train_eps=True) for _ in range(layers))
        self.norms = nn.ModuleList(gnn.BatchNorm(width) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear((layers + 1) * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, data: Any) -> Tensor:
        h = self.encode(data.x)
        sums = [gnn.global_add_pool(h, data.batch, data.num_graphs)]
        for conv, norm in zip(self.convs, self.norms, strict=True):
            h = norm(conv(h, data.edge_index)).relu()
            sums.append(gnn.global_add_pool(h, data.batch, data.num_graphs))
        return self.head(torch.cat(sums, dim=1))


# GIN with edge features and a virtual node, as the baselines of OGB have it (Hu et al., arXiv 2005.00687).


class DglGinVN(AtomModel):
    """The virtual node is added to every node before a layer, and updated by their sum."""

    def build(self, width: int, layers: int) -> None:
        self.encode_edges = nn.ModuleList(Encoder(self.categories.edges, width) for _ in range(layers))
        self.convs = nn.ModuleList(self.conv(perceptron(width)) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.virtual = nn.Embedding(1, width)
        # Perceptrons over the virtual nodes, whose norms see a row for each graph.
        self.updates = nn.ModuleList(
            nn.Sequential(perceptron(width), nn.BatchNorm1d(width), nn.ReLU()) for _ in range(layers - 1)
        )
        self.sum, self.mean, self.head = SumPooling(), AvgPooling(), nn.Linear(width, 1)

    def conv(self, mlp: nn.Module) -> nn.Module:
        return GINEConv(mlp, learn_eps=True)

    def forward(self, graph: Any) -> Tensor:
        h, bonds = self.encode(graph.ndata["feat"]), graph.edata["feat"]
        virtual = self.virtual.weight.expand(graph.batch_size, -1)
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            h = h + dgl.broadcast_nodes(graph, virtual)
            out = norm(conv(graph, h, self.encode_edges[i](bonds)))
            if i < len(self.updates):
                out = out.relu()
                virtual = self.updates[i](self.sum(graph, h) + virtual)
            h = out
        return self.head(self.mean(graph, h))


class PygGinVN(DglGinVN):
    def conv(self, mlp: nn.Module) -> nn.Module:
        return gnn.GINEConv(mlp, train_eps=True)

    def forward(self, data: Any) -> Tensor:
        h = self.encode(data.x)
        virtual = self.virtual(data.edge_index.new_zeros(data.num_graphs))
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            h = h + virtual[data.batch]
            out = norm(conv(h, data.edge_index, self.encode_edges[i](data.edge_attr)))
            if i < len(self.updates):
                out = out.relu()
                virtual = self.updates[i](gnn.global_add_pool(h, data.batch, data.num_graphs) + virtual)
            h = out
        return self.head(gnn.global_mean_pool(h, data.batch, data.num_graphs))


# Graph attention with several heads and a mean over nodes (Velickovic et al., arXiv 1710.10903).

HEADS = 4


class DglGat(AtomModel):
    """Heads stand side by side. Padding nodes may have no incoming edge, and the layer has to allow it."""

    def build(self, width: int, layers: int) -> None:
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
            return self.head(dgl.mean_nodes(graph, "h"))


class PygGat(AtomModel):
    """Loops are left out: where the layer adds them, shapes depend on data, and the compiler fails on two layers."""

    def build(self, width: int, layers: int) -> None:
        self.convs = nn.ModuleList(
            gnn.GATConv(width, width // HEADS, HEADS, add_self_loops=False) for _ in range(layers)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, data: Any) -> Tensor:
        h = self.encode(data.x)
        for conv in self.convs:
            h = elu(conv(h, data.edge_index))
        return self.head(gnn.global_mean_pool(h, data.batch, data.num_graphs))


# GraphSAGE with a maximum over nodes (Hamilton et al., arXiv 1706.02216).


class DglSage(AtomModel):
    """Neighbours are pooled by a maximum, and rows have length 1."""

    def build(self, width: int, layers: int) -> None:
        self.convs = nn.ModuleList(
            SAGEConv(width, width, "pool", norm=normalize, activation=relu) for _ in range(layers)
        )
        self.pool, self.head = MaxPooling(), nn.Linear(width, 1)

    def forward(self, graph: Any) -> Tensor:
        h = self.encode(graph.ndata["feat"])
        for conv in self.convs:
            h = conv(graph, h)
        return self.head(self.pool(graph, h))


class PygSage(AtomModel):
    """PyG's own model: means of neighbours, graph norms, and the outputs of all layers side by side."""

    def build(self, width: int, layers: int) -> None:
        self.layers = gnn.GraphSAGE(width, width, layers, width, norm="graph_norm", jk="cat")
        self.head = nn.Linear(width, 1)

    def forward(self, data: Any) -> Tensor:
        h = self.layers(self.encode(data.x), data.edge_index, batch=data.batch, batch_size=data.num_graphs)
        return self.head(gnn.global_max_pool(h, data.batch, data.num_graphs))


# DeeperGCN: softmax aggregation with a temperature, and residuals around norms (Li et al., arXiv 2006.07739).

# Keeps messages positive.
SMALL = 1e-7


class DglGenConv(nn.Module):
    """Each channel of a message is weighted by a softmax over the messages to its node."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.temperature, self.mlp = nn.Parameter(torch.ones(())), perceptron(width)

    def forward(self, graph: Any, h: Tensor, e: Tensor) -> Tensor:
        with graph.local_scope():
            graph.ndata["h"], graph.edata["e"] = h, e
            graph.apply_edges(fn.u_add_e("h", "e", "m"))
            messages = graph.edata["m"].relu() + SMALL
            graph.edata["m"] = messages * edge_softmax(graph, messages * self.temperature)
            graph.update_all(fn.copy_e("m", "m"), fn.sum("m", "sum"))
            return self.mlp(h + graph.ndata["sum"])


class DglDeeperGCN(BondModel):
    """A norm and an activation stand before each convolution, and a residual goes around all three."""

    def build(self, width: int, layers: int) -> None:
        self.convs = nn.ModuleList(DglGenConv(width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, graph: Any) -> Tensor:
        h, e = self.encode(graph.ndata["feat"]), self.encode_edges(graph.edata["feat"])
        h = self.convs[0](graph, h, e)
        for conv, norm in zip(self.convs[1:], self.norms[1:], strict=True):
            h = h + conv(graph, norm(h).relu(), e)
        with graph.local_scope():
            graph.ndata["h"] = self.norms[0](h).relu()
            return self.head(dgl.mean_nodes(graph, "h"))


class PygDeeperGCN(BondModel):
    def build(self, width: int, layers: int) -> None:
        self.layers = nn.ModuleList(
            gnn.DeepGCNLayer(
                gnn.GENConv(width, width, aggr="softmax", t=1.0, learn_t=True),
                gnn.LayerNorm(width),
                nn.ReLU(),
                block="res+",
                dropout=0.0,
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, data: Any) -> Tensor:
        h, e = self.encode(data.x), self.encode_edges(data.edge_attr)
        h = self.layers[0].conv(h, data.edge_index, e)
        for layer in self.layers[1:]:
            h = layer(h, data.edge_index, e)
        h = self.layers[0].act(self.layers[0].norm(h))
        return self.head(gnn.global_mean_pool(h, data.batch, data.num_graphs))


# Message passing: edge networks, a recurrent update and Set2Set (Gilmer et al., arXiv 1704.01212).


class DglMpnn(BondModel):
    """One convolution and one GRU, used in every step."""

    def build(self, width: int, layers: int) -> None:
        self.steps = layers
        edge_network = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width * width))
        self.conv = self.conv_of(width, edge_network)
        self.gru = nn.GRU(width, width)
        self.pool = self.pool_of(width)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def conv_of(self, width: int, edge_network: nn.Module) -> nn.Module:
        return NNConv(width, width, edge_network, "sum")

    def pool_of(self, width: int) -> nn.Module:
        return Set2Set(width, 3, 1)

    def forward(self, graph: Any) -> Tensor:
        h, e = self.encode(graph.ndata["feat"]).relu(), self.encode_edges(graph.edata["feat"])
        state = h.unsqueeze(0)
        for _ in range(self.steps):
            messages = self.conv(graph, h, e).relu()
            out, state = self.gru(messages.unsqueeze(0), state)
            h = out.squeeze(0)
        return self.head(self.pool(graph, h))


class PygMpnn(DglMpnn):
    def conv_of(self, width: int, edge_network: nn.Module) -> nn.Module:
        return gnn.NNConv(width, width, edge_network, aggr="add")

    def pool_of(self, width: int) -> nn.Module:
        return gnn.Set2Set(width, 3)

    def forward(self, data: Any) -> Tensor:
        h, e = self.encode(data.x).relu(), self.encode_edges(data.edge_attr)
        state = h.unsqueeze(0)
        for _ in range(self.steps):
            messages = self.conv(h, data.edge_index, e).relu()
            out, state = self.gru(messages.unsqueeze(0), state)
            h = out.squeeze(0)
        return self.head(self.pool(h, data.batch, dim_size=data.num_graphs))
