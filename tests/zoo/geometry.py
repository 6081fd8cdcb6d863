"""Models of distances and angles, and the gated convolution that one of them uses."""

from __future__ import annotations

import math
from typing import Any

import dgl
import dgl.function as fn
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch_geometric import nn as gnn

from tests.zoo.parts import AtomModel, BondModel

# Gated graph convolution: features, norms and residuals of nodes and edges (Bresson and Laurent, 2017).

# Keeps the quotient of sums defined for nodes without incoming edges.
SMALL = 1e-6


class _GatedMaps(nn.Module):
    """The linear maps and norms of a layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own, self.sent, self.source, self.target, self.edge = (nn.Linear(width, width) for _ in range(5))
        self.norm_nodes, self.norm_edges = nn.BatchNorm1d(width), nn.BatchNorm1d(width)

    def finished(self, h: Tensor, e: Tensor, new_h: Tensor, new_e: Tensor) -> tuple[Tensor, Tensor]:
        return h + self.norm_nodes(new_h).relu(), e + self.norm_edges(new_e).relu()


class DglGatedLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.maps = _GatedMaps(width)

    def forward(self, graph: Any, h: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        maps = self.maps
        with graph.local_scope():
            graph.ndata["sent"] = maps.sent(h)
            graph.ndata["source"], graph.ndata["target"] = maps.source(h), maps.target(h)
            graph.apply_edges(fn.u_add_v("source", "target", "ends"))
            new_e = graph.edata["ends"] + maps.edge(e)
            graph.edata["gate"] = new_e.sigmoid()
            graph.update_all(fn.u_mul_e("sent", "gate", "m"), fn.sum("m", "messages"))
            graph.update_all(fn.copy_e("gate", "m"), fn.sum("m", "gates"))
            new_h = maps.own(h) + graph.ndata["messages"] / (graph.ndata["gates"] + SMALL)
        return maps.finished(h, e, new_h, new_e)


class PygGatedLayer(gnn.MessagePassing):
    def __init__(self, width: int) -> None:
        super().__init__(aggr="add")
        self.maps = _GatedMaps(width)

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


class DglGatedGCN(BondModel):
    """Encoders, layers, a mean and a perceptron."""

    layer: type[nn.Module] = DglGatedLayer

    def build(self, width: int, layers: int) -> None:
        self.layers = nn.ModuleList(self.layer(width) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width // 2), nn.ReLU(), nn.Linear(width // 2, 1))

    def forward(self, graph: Any) -> Tensor:
        h, e = self.encode(graph.ndata["feat"]), self.encode_edges(graph.edata["feat"])
        for layer in self.layers:
            h, e = layer(graph, h, e)
        with graph.local_scope():
            graph.ndata["h"] = h
            return self.head(dgl.mean_nodes(graph, "h"))


class PygGatedGCN(DglGatedGCN):
    layer = PygGatedLayer

    def forward(self, data: Any) -> Tensor:
        h, e = self.encode(data.x), self.encode_edges(data.edge_attr)
        for layer in self.layers:
            h, e = layer(h, data.edge_index, e)
        return self.head(gnn.global_mean_pool(h, data.batch, data.num_graphs))


# SchNet: convolutions with filters of distances, and a sum over atoms (Schuett et al., arXiv 1706.08566).

CUTOFF, CENTRES = 5.0, 16


class ShiftedSoftplus(nn.Module):
    """A smooth activation that is 0 at 0."""

    def forward(self, x: Tensor) -> Tensor:
        return softplus(x) - math.log(2.0)


class RadialBasis(nn.Module):
    """Gaussians of distances around equidistant centres."""

    centres: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.0, CUTOFF, CENTRES))

    def forward(self, distances: Tensor) -> Tensor:
        width = CUTOFF / (CENTRES - 1)
        return (-0.5 * ((distances[:, None] - self.centres) / width) ** 2).exp()


class _Maps(nn.Module):
    """The filter network of an interaction, and the maps of atoms around it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.filters = nn.Sequential(
            nn.Linear(CENTRES, width), ShiftedSoftplus(), nn.Linear(width, width), ShiftedSoftplus()
        )
        self.before = nn.Linear(width, width, bias=False)
        self.after = nn.Sequential(nn.Linear(width, width), ShiftedSoftplus(), nn.Linear(width, width))

    def filters_of(self, distances: Tensor, basis: Tensor) -> Tensor:
        """Filters that go to 0 at the cutoff."""
        smooth = 0.5 * ((distances * (math.pi / CUTOFF)).cos() + 1.0) * (distances < CUTOFF)
        return self.filters(basis) * smooth[:, None]


class DglSchNet(AtomModel):
    """Distances are computed from positions by message passing."""

    interaction: type[nn.Module] = _Maps

    def build(self, width: int, layers: int) -> None:
        self.basis = RadialBasis()
        self.interactions = nn.ModuleList(self.interaction(width) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width // 2), ShiftedSoftplus(), nn.Linear(width // 2, 1))

    def forward(self, graph: Any) -> Tensor:
        h = self.encode(graph.ndata["feat"])
        with graph.local_scope():
            graph.apply_edges(fn.u_sub_v("pos", "pos", "difference"))
            distances = graph.edata["difference"].norm(dim=1)
            basis = self.basis(distances)
            for maps in self.interactions:
                graph.ndata["sent"], graph.edata["filter"] = maps.before(h), maps.filters_of(distances, basis)
                graph.update_all(fn.u_mul_e("sent", "filter", "m"), fn.sum("m", "messages"))
                h = h + maps.after(graph.ndata["messages"])
            graph.ndata["h"] = self.head(h)
            return dgl.sum_nodes(graph, "h")


class PygInteraction(gnn.MessagePassing):
    """An interaction as a class of message passing."""

    def __init__(self, width: int) -> None:
        super().__init__(aggr="add")
        self.maps = _Maps(width)

    def forward(self, h: Tensor, edge_index: Tensor, distances: Tensor, basis: Tensor) -> Tensor:
        filters = self.maps.filters_of(distances, basis)
        messages = self.propagate(edge_index, sent=self.maps.before(h), filters=filters)
        return h + self.maps.after(messages)

    def message(self, sent_j: Tensor, filters: Tensor) -> Tensor:
        return sent_j * filters


class PygSchNet(DglSchNet):
    interaction = PygInteraction

    def forward(self, data: Any) -> Tensor:
        h = self.encode(data.x)
        source, target = data.edge_index
        distances = (data.pos[source] - data.pos[target]).norm(dim=1)
        basis = self.basis(distances)
        for interaction in self.interactions:
            h = interaction(h, data.edge_index, distances, basis)
        return gnn.global_add_pool(self.head(h), data.batch, data.num_graphs)


# ALIGNN: gated convolutions, in turn on a line graph and on its graph (Choudhary and DeCost, 2021).

# The nodes of the line graph are the edges of the graph, in order.
TIES = {"dgl": {"nodes:bonds": "edges:atoms"}, "pyg": {"nodes:bond": "edges:atom:bond:atom"}}


class DglAlignn(AtomModel):
    """Two graphs by name; the convolutions are those of the gated graph convolution."""

    layer: type[nn.Module] = DglGatedLayer

    def build(self, width: int, layers: int) -> None:
        self.basis = RadialBasis()
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
            return self.head(dgl.mean_nodes(atoms, "h"))


class PygAlignn(DglAlignn):
    layer = PygGatedLayer

    def forward(self, data: Any) -> Tensor:
        atoms, bonds, angles = data["atom"], data["bond"], data["bond", "angle", "bond"]
        ends = data["atom", "bond", "atom"].edge_index
        h = self.encode(atoms.x)
        e = self.encode_lengths(self.basis(bonds.length))
        a = self.encode_cosines(self.basis(angles.cosine))
        for on_line_graph, on_graph in zip(self.on_line_graph, self.on_graph, strict=True):
            e, a = on_line_graph(e, angles.edge_index, a)
            h, e = on_graph(h, ends, e)
        return self.head(gnn.global_mean_pool(h, atoms.batch, data.num_graphs))
