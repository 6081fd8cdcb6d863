"""AttentiveFP: attention over bonds, then over the atoms of a molecule, with GRUs (Xiong et al., 2019)."""

from __future__ import annotations

from typing import Any

import dgl
import dgl.function as fn
import torch
from dgl.nn.functional import edge_softmax
from torch import Tensor, nn
from torch.nn.functional import elu, leaky_relu
from torch_geometric import nn as gnn

from tests.zoo.parts import Categories, Encoder

READOUT_STEPS = 2


class DglAttention(nn.Module):
    """Attention to incoming messages, and a GRU that updates nodes by their sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.score, self.value, self.gru = nn.Linear(2 * width, 1), nn.Linear(width, width), nn.GRUCell(width, width)

    def forward(self, graph: Any, h: Tensor, messages: Tensor) -> Tensor:
        with graph.local_scope():
            graph.ndata["h"], graph.edata["m"] = h, messages
            graph.apply_edges(lambda edges: {"s": torch.cat([edges.dst["h"], edges.data["m"]], dim=1)})
            weights = edge_softmax(graph, leaky_relu(self.score(graph.edata["s"])))
            graph.edata["m"] = weights * self.value(messages)
            graph.update_all(fn.copy_e("m", "m"), fn.sum("m", "sum"))
            out: Tensor = self.gru(elu(graph.ndata["sum"]), h).relu()
        return out


class DglReadout(nn.Module):
    """Attention of each molecule to its atoms, and a GRU that updates the molecule."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.score, self.value, self.gru = nn.Linear(2 * width, 1), nn.Linear(width, width), nn.GRUCell(width, width)

    def forward(self, graph: Any, h: Tensor, molecules: Tensor) -> Tensor:
        with graph.local_scope():
            both = torch.cat([dgl.broadcast_nodes(graph, molecules.relu()), h], dim=1)
            graph.ndata["s"], graph.ndata["v"] = leaky_relu(self.score(both)), self.value(h)
            graph.ndata["w"] = dgl.softmax_nodes(graph, "s")
            out: Tensor = self.gru(elu(dgl.sum_nodes(graph, "v", "w")), molecules).relu()
        return out


class DglAttentiveFP(nn.Module):
    """The first layer attends to neighbours with their bonds, the others to neighbours."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode, self.encode_edges = Encoder(categories.nodes, width), Encoder(categories.edges, width)
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
        score: Tensor = self.head(molecules)
        return score


class PygAttentiveFP(nn.Module):
    """PyG's own model behind the encoders."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode, self.encode_edges = Encoder(categories.nodes, width), Encoder(categories.edges, width)
        self.layers = gnn.AttentiveFP(width, width, 1, width, layers, READOUT_STEPS)

    def forward(self, data: Any) -> Tensor:
        score: Tensor = self.layers(self.encode(data.x), data.edge_index, self.encode_edges(data.edge_attr), data.batch)
        return score
