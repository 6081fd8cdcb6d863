"""A graph autoencoder with a loss of atoms and one of asked pairs of atoms (Kipf and Welling, arXiv 1611.07308)."""

from __future__ import annotations

from typing import Any

import dgl.function as fn
from dgl.nn import SAGEConv
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch_geometric import nn as gnn

from tests.zoo.parts import Categories, Encoder


class DglAutoencoder(nn.Module):
    """Convolutions along bonds; scores of atoms, and products of both ends of asked pairs."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode = Encoder(categories.nodes, width)
        self.convs = nn.ModuleList(SAGEConv(width, width, "mean") for _ in range(layers))
        self.decode = nn.Linear(width, categories.nodes[0])

    def forward(self, graph: Any) -> tuple[Tensor, Tensor]:
        h, bonds = self.encode(graph.ndata["feat"]), graph["bond"]
        for conv in self.convs:
            h = conv(bonds, h.relu())
        with graph.local_scope():
            graph.ndata["h"] = h
            graph.apply_edges(fn.u_dot_v("h", "h", "score"), etype="asked")
            scores = graph.edges["asked"].data["score"][:, 0]
        return self.decode(h), scores


class PygAutoencoder(nn.Module):
    """The same with layers of PyG; asked pairs are `edge_label_index`."""

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode = Encoder(categories.nodes, width)
        self.convs = nn.ModuleList(gnn.SAGEConv(width, width) for _ in range(layers))
        self.decode = nn.Linear(width, categories.nodes[0])

    def forward(self, data: Any) -> tuple[Tensor, Tensor]:
        h = self.encode(data.x)
        for conv in self.convs:
            h = conv(h.relu(), data.edge_index)
        first, second = data.edge_label_index
        return self.decode(h), (h[first] * h[second]).sum(1)


def losses_of(out: tuple[Tensor, Tensor], graph: Any, labels: Tensor) -> list[Tensor]:
    """Losses of each atom, which predicts its first category, and of each asked pair."""
    if hasattr(graph, "edge_label"):
        features, is_bond = graph.x, graph.edge_label
    else:
        features, is_bond = graph.ndata["feat"], graph.edges["asked"].data["is_bond"]
    of_atoms = cross_entropy(out[0], features[:, 0], reduction="none")
    return [of_atoms, binary_cross_entropy_with_logits(out[1], is_bond.to(out[1].dtype), reduction="none")]


def masks_of(batch: Any) -> list[Tensor]:
    """Masks of the rows of both losses, from a padded batch, its tensors or its `pyg`."""
    if hasattr(batch, "edge_label_index_mask"):
        return [batch.node_mask, batch.edge_label_index_mask]
    return [batch.node_mask["atom"], batch.edge_mask["atom", "asked", "atom"]]
