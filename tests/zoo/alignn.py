"""ALIGNN: gated convolutions, in turn on a line graph and on its graph (Choudhary and DeCost, 2021)."""

from __future__ import annotations

from typing import Any

import dgl
from torch import Tensor, nn
from torch_geometric import nn as gnn

from tests.zoo.gated_gcn import DglLayer, PygLayer
from tests.zoo.parts import Categories, Encoder
from tests.zoo.schnet import CENTRES, RadialBasis

# The nodes of the line graph are the edges of the graph, in order.
TIES = {"dgl": {"nodes:bonds": "edges:atoms"}, "pyg": {"nodes:bond": "edges:atom:bond:atom"}}


class DglAlignn(nn.Module):
    """Two graphs by name; the convolutions are those of the gated graph convolution."""

    layer: type[nn.Module] = DglLayer

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode, self.basis = Encoder(categories.nodes, width), RadialBasis()
        self.encode_lengths, self.encode_cosines = nn.Linear(CENTRES, width), nn.Linear(CENTRES, width)
        self.on_line_graph = nn.ModuleList(self.layer(width) for _ in range(layers))
        self.on_graph = nn.ModuleList(self.layer(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, graphs: Any) -> Tensor:
        atoms, bonds = graphs["atoms"], graphs["bonds"]
        h = self.encode(atoms.ndata["feat"])
        e = self.encode_lengths(self.basis(atoms.edata["length"]))
        a = self.encode_cosines(self.basis(bonds.edata["cosine"]))
        for on_line_graph, on_graph in zip(self.on_line_graph, self.on_graph, strict=True):
            e, a = on_line_graph(bonds, e, a)
            h, e = on_graph(atoms, h, e)
        with atoms.local_scope():
            atoms.ndata["h"] = h
            score: Tensor = self.head(dgl.mean_nodes(atoms, "h"))
        return score


class PygAlignn(DglAlignn):
    """The same on a `HeteroData` whose second type of nodes are the bonds."""

    layer = PygLayer

    def forward(self, data: Any) -> Tensor:
        atoms, bonds, angles = data["atom"], data["bond"], data["bond", "angle", "bond"]
        ends = data["atom", "bond", "atom"].edge_index
        h = self.encode(atoms.x)
        e = self.encode_lengths(self.basis(bonds.length))
        a = self.encode_cosines(self.basis(angles.cosine))
        for on_line_graph, on_graph in zip(self.on_line_graph, self.on_graph, strict=True):
            e, a = on_line_graph(e, angles.edge_index, a)
            h, e = on_graph(h, ends, e)
        score: Tensor = self.head(gnn.global_mean_pool(h, atoms.batch, data.num_graphs))
        return score
