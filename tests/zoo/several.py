"""Models of graphs with several types of nodes or edges."""

from __future__ import annotations

from typing import Any

import dgl
import dgl.function as fn
from dgl.nn import GraphConv, HeteroGraphConv, SAGEConv
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch_geometric import nn as gnn

from tests.zoo.items import RELATIONS, TYPES
from tests.zoo.parts import AtomModel, Categories, Encoder

# R-GCN: a convolution for each relation of a heterograph (Schlichtkrull et al., arXiv 1703.06103).


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
        return sum(head(means[t]) for t, head in self.heads.items())


class PygRGCN(nn.Module):
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
        means = {t: gnn.global_mean_pool(h[t], data[t].batch, data.num_graphs) for t in TYPES}
        return sum(head(means[t]) for t, head in self.heads.items())


# A graph autoencoder with a loss of atoms and one of asked pairs of atoms (Kipf and Welling, arXiv 1611.07308).


class DglAutoencoder(AtomModel):
    """Convolutions along bonds; scores of atoms, and products of both ends of asked pairs."""

    def build(self, width: int, layers: int) -> None:
        self.convs = nn.ModuleList(self.conv(width) for _ in range(layers))
        self.decode = nn.Linear(width, self.categories.nodes[0])

    def conv(self, width: int) -> nn.Module:
        return SAGEConv(width, width, "mean")

    def forward(self, graph: Any) -> tuple[Tensor, Tensor]:
        h, bonds = self.encode(graph.ndata["feat"]), graph["bond"]
        for conv in self.convs:
            h = conv(bonds, h.relu())
        with graph.local_scope():
            graph.ndata["h"] = h
            graph.apply_edges(fn.u_dot_v("h", "h", "score"), etype="asked")
            scores = graph.edges["asked"].data["score"][:, 0]
        return self.decode(h), scores


class PygAutoencoder(DglAutoencoder):
    def conv(self, width: int) -> nn.Module:
        return gnn.SAGEConv(width, width)

    def forward(self, data: Any) -> tuple[Tensor, Tensor]:
        h = self.encode(data.x)
        for conv in self.convs:
            h = conv(h.relu(), data.edge_index)
        first, second = data.edge_label_index
        return self.decode(h), (h[first] * h[second]).sum(1)


def losses_of(out: tuple[Tensor, Tensor], graph: Any, labels: Tensor) -> list[Tensor]:
    """Losses of each atom, which predicts its first category, and of each asked pair."""
    # Of its class: torch's tracer fails at `hasattr` of an attribute that a TensorGraph lacks.
    if hasattr(type(graph), "ndata"):
        features, is_bond = graph.ndata["feat"], graph.edges["asked"].data["is_bond"]
    else:
        features, is_bond = graph.x, graph.edge_label
    of_atoms = cross_entropy(out[0], features[:, 0], reduction="none")
    return [of_atoms, binary_cross_entropy_with_logits(out[1], is_bond.to(out[1].dtype), reduction="none")]


def masks_of(batch: Any) -> list[Tensor]:
    """Masks of the rows of both losses, from a padded batch, its tensors or its `pyg`."""
    if hasattr(batch, "edge_label_index_mask"):
        return [batch.node_mask, batch.edge_label_index_mask]
    return [batch.node_mask["atom"], batch.edge_mask["atom", "asked", "atom"]]
